"""Recorded effects of runs agree with the tables of threads and of places that ops access.

Kernels of all forms are run, so that each op of SCHEDULED is executed by one of them.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import pytest

from tests.case_data import inputs
from tests.case_table import Case
from tests.claimed_kernels import claimed
from tests.corpus.texts import TEXTS
from tests.decoded_kernels import DECODED
from tests.in_place_kernels import arrays, in_place
from tests.kernels import CASES
from tests.quantized.test_product import BF16, normal
from tests.scaled_kernels import SCALED
from wsdsl import Schedule
from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import touch_in
from wsdsl.ir.effects import Access, Arrive, Fence, Wait
from wsdsl.ir.hardware.tcgen05_shapes import COLUMNS
from wsdsl.ir.op import Kernel, Op, effects
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.ops import Tcgen05Dealloc, TmemColumns
from wsdsl.ir.types import Columns, Shared, Tile
from wsdsl.ir.verify.threads import THREADS, threads_of
from wsdsl.kernels import quantized
from wsdsl.prover.memory import smem_accesses
from wsdsl.prover.memory.gmem_regions import GlobalPlaces
from wsdsl.prover.prove import prove
from wsdsl.simulator import simulation
from wsdsl.simulator.recorded_effects import Effect, recorded
from wsdsl.simulator.simulation import simulate

SCAN = """
@kernel
def scan(X: f32[M, N], Y: f32[M, N], Z: i32[M, N]):
    for m in tiles(M):
        before = zeros(f32[m])
        for n in tiles(N):
            Y[m, n] = cumsum(X[m, n], over=n) + before
            Z[m, n] = bitcast(X[m, n], i32)
            before += sum(X[m, n], over=n)
"""
OWN = {
    "histogram": Case(TEXTS["histogram"][0], dict, dict(N=3000, B=30)),
    "scan": Case(SCAN, dict, dict(M=40, N=200)),
}
SMALL = dict(m=64, n=64)


@dataclass(eq=False)
class Run:
    kernel: Kernel
    effects: list[Effect]

    @cached_property
    def items(self) -> list[tuple[str, str, int, int, int]]:
        """Space, name, first address, and size and number of items of each array."""
        shared, columns = self.kernel.making(Shared), self.kernel.making(Columns)
        found = [("shared", op.result, op.offset, op.result.type.bytes) for op in shared]
        found += [("tensor", op.result, op.first, op.result.type.columns) for op in columns]
        return [(space, v.name, first, size, v.type.num) for space, v, first, size in found]

    def place(self, effect: Effect) -> tuple[str, int, Any]:
        """Return the array that is accessed, its size, and which bytes of an item, or which columns
        of one half of the lanes, then of the other.
        """
        if effect.space == "tensor":
            cells = np.zeros((4, 2, 16, COLUMNS), np.bool_)
            cells.reshape(-1, COLUMNS)[effect.at] = True
            halves, at = cells.any((0, 2)).nonzero()
        else:
            halves = 0
            at = effect.at.bytes.ravel()
        for space, name, first, size, count in self.items:
            if space == effect.space and first <= at[0] < first + size * count:
                start = first + (at[0] - first) // size * size
                assert at.max() < start + size and at.min() >= start, effect
                return name, size * (1 + (space == "tensor")), at - start + halves * size
        raise AssertionError(f"no array is at {at[0]}: {effect}")

    def accesses(self, *spaces: str) -> Iterator[Effect]:
        """Return accesses to items; Tcgen05Dealloc is none of one."""
        kinds = "read", "write", "add"
        found = (e for e in self.effects if e.kind in kinds and e.space in spaces)
        return (e for e in found if not isinstance(e.op, Tcgen05Dealloc))

    def scalars(self, op: Op) -> list[dict[str, int]]:
        """Return the scalars of each execution of an op."""
        return self._scalars[id(op)]

    @cached_property
    def _scalars(self) -> dict[int, list[dict[str, int]]]:
        found = defaultdict[int, list[dict[str, int]]](list)
        for e in self.effects:
            if e.kind == "run":
                found[id(e.op)].append(e.at)
        return found

    @cached_property
    def num_warpgroups(self) -> int:
        return max(e.threads.stop for e in self.effects if e.kind == "run") // 128


def _case(name: str, sizes: dict[str, int] | None = None, **schedule: Any) -> None:
    case = {**DECODED, **CASES, **SCALED, **OWN}[name]
    case.kernel.simulate(**inputs(case, **sizes or {}), schedule=Schedule(**schedule))


def _in_place() -> None:
    kernel = in_place("loop", "f32")
    kernel.simulate(*arrays(kernel, dict(M=70, N=72, E=2)))


def _claims() -> None:
    simulation.simulate(claimed("cluster"), inputs(CASES["gemm"]))


RUNS: dict[str, Callable[[], None]] = {
    **{name: partial(_case, name) for name in (
        "attention", "bytes_in", "bytes_out", "epilogue", "row_softmax", "second_operand_first",
        "quantised", "two_types", "scaled_rows", "part", "reduce_narrow", "histogram", "scan",
        "two_loops",
    )},
    "bins": partial(_case, "histogram", smem_privatize=dict(H=(2,))),
    "in place": _in_place,
    "decoded in SMEM": partial(_case, "across", operand_transform="smem", tile=dict(**SMALL, k=64)),
    "pingpong": partial(_case, "gemm", mode="pingpong", tile=SMALL),
    "split_k": partial(_case, "gemm", scheduler="split_k", splits=2, mode="cooperative"),
    "parallel": partial(
        _case, "gemm", scheduler="split_k", splits=3, reduction="parallel", mode="cooperative"
    ),
    "stream_k": partial(_case, "gemm", scheduler="stream_k", tile=dict(n=56)),
    "multicast": partial(_case, "gemm", tile=SMALL, consumers=1, cluster=dict(m=2)),
    "exchange": partial(_case, "gemm", tile=dict(**SMALL, k=32), consumers=1, cluster=dict(k=4)),
    "widths": partial(_case, "gemm", tile=SMALL, consumers=1, mma_m="n", tile_n_variants=8),
    "odd strides": partial(_case, "gemm", dict(M=70, N=77, K=81)),
    "prefetched": partial(
        _case, "widened", dict(M=130, N=72, K=512), tile=dict(m=64, n=32), consumers=1, stages=3
    ),
    "tensor memory": partial(_case, "gemm", arch="sm_100a", tile=dict(m=128, n=64)),
    "pair": partial(_case, "gemm", arch="sm_100a", tile=dict(m=128, n=64), cta_group=2),
    "chain": partial(_case, "attention", arch="sm_100a"),
    "scale factors": partial(_case, "mx", arch="sm_100a"),
    "copied scale factors": partial(_case, "mx_atoms", arch="sm_100a"),
    "claims": _claims,
    "one row": lambda: quantized.matmul(
        normal(1, 64, dtype=BF16), quantized.quantize(normal(64, 64), "i4", 64)
    ),
}  # fmt: skip


@cache
def runs() -> list[Run]:
    """Run all kernels."""
    found: list[Run] = []

    def run(kernel: Kernel, *args: Any, **named: Any) -> Any:
        with recorded() as effects:
            simulate(kernel, *args, **named)
        found.append(Run(kernel, effects))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "simulate", run)
        for start in RUNS.values():
            start()
    return found


NOT_RUN = {ops.LaunchNarrowing}
"""The simulator runs the kernel of one width, without it."""
BY_ALL_THREADS = {
    ops.SemaphoreArrive, ops.GriddepLaunchDependents, ops.SemaphoreWait, ops.GriddepWait,
    ops.WarpgroupIndex, ops.StoreGlobal, ops.Bitcast, ops.Cast, ops.Constant, ops.DimSize,
    ops.Full,
}  # fmt: skip
"""Ops that one thread may run, too, which no kernel makes use of."""


def test_each_op_is_run() -> None:
    ran = {type(e.op) for run in runs() for e in run.effects if e.kind == "run"}
    assert THREADS.keys() - ran == NOT_RUN


def test_threads_of_ops_are_those_of_the_table() -> None:
    sizes, warps = defaultdict[type[Op], set[int]](set), defaultdict[type[Op], set[int]](set)
    warpgroups = defaultdict[Any, set[int]](set)
    for run in runs():
        for e in run.effects:
            threads, warpgroup = threads_of(e.op), e.threads.start // 128
            count, at = len(e.threads), (run, e.op, e.cta)
            if e.kind == "run":
                sizes[type(e.op)].add(count)
                if threads == "cta":
                    warpgroups[at].add(warpgroup)
                assert count == (1 if threads == "one" else 128) or threads == "any", e
                continue
            assert count == 1 or threads != "one", e
            assert e.threads[0] // 32 == e.threads[-1] // 32 or threads != "warps", e
            assert threads != "kernel", e
            if threads in ("warps", "warpgroup") and e.space != "global":
                warps[type(e.op)].update(
                    thread // 32 % 4 for thread in (e.threads[0], e.threads[-1])
                )
    for kind, found in warps.items():
        assert found >= {0, 3}, kind
    for (run, op, _), found in warpgroups.items():
        assert len(found) == run.num_warpgroups, op
    any_threads = {kind for kind, threads in THREADS.items() if threads == "any"}
    assert {kind for kind in any_threads if sizes[kind] != {1, 128}} == BY_ALL_THREADS


WIDER = {
    ("part", "ClearPanels"),
    ("part", "WgmmaMmaAsync"),
    ("histogram", "StoreBins"),
    ("bins", "StoreBins"),
    ("widths", "TmaLoad"),
    ("scale factors", "StoreScaleFactors"),
}
"""The prover takes more than is accessed: whole items where the size of the problem decides."""


@pytest.mark.parametrize("name", RUNS)
def test_prover_takes_the_accesses_of_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of SMEM and columns of TMEM, of any item."""
    run = runs()[list(RUNS).index(name)]
    moved, taken = dict[Any, Any](), defaultdict[Any, set[tuple[int, int]]](set)
    for e in run.accesses("shared", "tensor"):
        array, size, at = run.place(e)
        key = e.op, "read" if e.kind == "add" else e.kind, array
        size //= 1 + (e.space == "tensor")
        moved.setdefault(key, np.zeros(size, np.bool_))[at % size] = True

    def spy(kind: str, known: Any) -> Any:
        def spied(m: Any, a: Any, op: Op, where: Any, *more: Any, **named: Any) -> None:
            taken[op, kind, where[0].name].add(where[2:])
            known(m, a, op, where, *more, **named)

        return spied

    for kind in ("read", "write"):
        known = getattr(smem_accesses, kind)
        for module in [*sys.modules.values()]:
            if vars(module).get(kind) is known:
                monkeypatch.setattr(module, kind, spy(kind, known))
    prove(run.kernel)
    for (op, kind, array), at in moved.items():
        expected = np.zeros_like(at)
        for start, end in taken[op, kind, array]:
            expected[np.arange(start, end) % at.size] = True
        if (name, type(op).__name__) in WIDER:
            assert (at <= expected).all(), op
        else:
            np.testing.assert_array_equal(at, expected, str(op))


HALVES = {("scale factors", "Tcgen05Mma")}
"""Effects state both halves of the lanes; 16 scale factors fill one."""
SPACES = {
    "shared": "smem", "tensor": "tmem", "global": "gmem", "barrier": "mbarrier",
    "flag": "semaphore",
}  # fmt: skip
WAITS = {ops.Tcgen05WaitLd: "tcgen05.ld", ops.Tcgen05WaitSt: "tcgen05.st"}
Key = tuple[str, str, str]
"""Kind, space, and the name of the array, tensor or barriers."""
Moved = dict[Key, Any]
"""Bytes of an item (columns of TMEM) that are accessed; None where only the effect is compared."""


@cache
def moved(run: Run) -> dict[int, Moved]:
    """Return what each op did in a run, by the op's id."""
    found = defaultdict[int, Moved](dict)
    for e in run.effects:
        space = WAITS.get(type(e.op), SPACES.get(e.space, e.space))
        if e.kind == "run" or isinstance(e.op, Tcgen05Dealloc):
            found[id(e.op)] |= {("write", space, ""): None} if e.kind == "write" else {}
        elif space in ("smem", "tmem") and e.kind in ("read", "write", "add"):
            array, size, at = run.place(e)
            held = found[id(e.op)].setdefault((e.kind, space, array), np.zeros(size, np.bool_))
            held[at] = True
        else:
            found[id(e.op)][e.kind, space, e.name] = None
    return found


def stated(run: Run, op: Op, dropped: int = -1) -> Moved:
    """Return what the effects of an op say of a run, but for one of them."""
    found, made = Moved(), run.kernel.definers
    sizes = {name: size * (1 + (space == "tensor")) for space, name, _, size, _ in run.items}
    for number, effect in enumerate(op.effects(made)):
        of = getattr(effect, "of", None)
        name = of if isinstance(of, str) else getattr(of, "name", "")
        match effect:
            case Access(space="smem" | "tmem") if of is not None and name in sizes:
                key = "write" if effect.kind == "take" else effect.kind, effect.space, name
                held = found.setdefault(key, np.zeros(sizes[name], np.bool_))
                held = held.reshape(1 + (effect.space == "tmem"), -1)
                for values in run.scalars(op) if number != dropped else ():
                    for start, end, half in ranges(effect, values):
                        held[half, start:end] = True
            case Access(space="smem"):
                pass  # The address of columns, which the simulator knows.
            case Access() if number != dropped:
                made_by = made.get(of) if of is not None else None
                found[effect.kind, effect.space, getattr(made_by, "label", name)] = None
            case Fence() if number != dropped:
                found["fence", name, ""] = None
            case Arrive() | Wait() if number != dropped:
                kind = type(effect).__name__.lower()
                label = getattr(made.get(of), "label", name) if of is not None else ""
                found[kind, effect.on, label] = None
            case _:
                pass
    return {key: held for key, held in found.items() if held is None or held.any()}


def ranges(access: Access, values: dict[str, int]) -> Iterator[tuple[int, int, Any]]:
    for span in (span for warp in access.spans for span in warp):
        named = [(v if isinstance(v, str) else v.name, by) for v, by in span.terms]
        start = span.start + sum(values[name] * by for name, by in named)
        end = min(start + span.size, span.limit or start + span.size)
        assert start >= end or start % span.align == 0
        yield start, end, slice(None) if span.half is None else span.half


def differs(run: Run, op: Op, dropped: int = -1) -> bool:
    did, says = moved(run)[id(op)], stated(run, op, dropped)
    if did.keys() - says.keys():
        return True
    wider = (list(RUNS)[runs().index(run)], type(op).__name__) in WIDER | HALVES
    for key, held in did.items():
        if held is not None and ((held & ~says[key]).any() if wider else (held != says[key]).any()):
            return True
    return False


@cache
def ran(kind: type[Op]) -> list[tuple[Run, Op]]:
    """Return the ops of a class, with the runs that executed them."""
    return [(run, op) for run in runs() for op in run.kernel.of(kind) if run.scalars(op)]


WITH_EFFECTS = [cls for cls in THREADS if effects(cls) and cls not in NOT_RUN | {TmemColumns}]


@pytest.mark.parametrize("kind", WITH_EFFECTS, ids=op_name)
def test_effects_are_what_runs_do(kind: type[Op]) -> None:
    """Exactly: each effect of a class occurs in a run, on the bytes that its regions say."""
    did, says = set[tuple[str, str]](), set[tuple[str, str]]()
    for run, op in ran(kind):
        assert not differs(run, op), op
        did |= {key[:2] for key in moved(run)[id(op)]}
        says |= {key[:2] for key in stated(run, op)}
        written = [e for e in op.effects(run.kernel.definers) if isinstance(e, Access)]
        for arrival in op.effects(run.kernel.definers):
            if isinstance(arrival, Arrive) and arrival.tx < 0:
                spans = [s for e in written if e.kind == "write" for w in e.spans for s in w]
                assert arrival.tx == -sum(span.size for span in spans)
    assert did == says


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", WITH_EFFECTS, ids=op_name)
def test_effect_that_is_left_out_is_found(kind: type[Op]) -> None:
    left = {n for run, op in ran(kind) for n, _ in enumerate(op.effects(run.kernel.definers))}
    if kind is Tcgen05Dealloc:
        left.discard(0)  # It reads the address of its columns, which the simulator knows.
    for run, op in ran(kind):
        left -= {n for n in left if differs(run, op, n)}
    assert not left


def test_accesses_of_tensors_are_those_of_the_prover() -> None:
    """Boxes that the prover takes."""
    for run in runs():
        places = GlobalPlaces(run.kernel, frozenset(), frozenset())
        for e in run.accesses("global"):
            touch = touch_in(e.op.effects(run.kernel.definers))
            assert touch is not None and touch.tensor == e.name, e
            place = places.access(e.op).place
            elements = next(x.elements for x in e.op.effects(places.made) if x.space == "gmem")
            for dim, (at, along) in enumerate(zip(e.at, place.dims, strict=False)):
                size = at.stop - at.start if isinstance(at, slice) else np.ptp(at) + 1
                by_warp = place.rows is not None and place.rows[0] == dim and len(e.threads) <= 32
                limit = place.rows[1] if by_warp else along.extent
                assert limit is None or size <= limit, e
                if size and isinstance(elements.at[dim].type, Tile):
                    begin = at.start if isinstance(at, slice) else np.min(at)
                    starts = [held[elements.at[dim].name] for held in run.scalars(e.op)]
                    assert any(0 <= begin - x <= along.extent - size for x in starts), e


def test_effects_are_recorded_on_request() -> None:
    with recorded() as effects:
        pass
    _case("scan")
    assert not effects
