"""Rows that are reduced to a value for each column: by threads, warps, consumers, and pieces."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.case_data import DTYPES
from tests.simulator.mutants import exchange
from wsdsl import Schedule, parse
from wsdsl.diagnostics import ProofError, ScheduleError, WsdslError
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.ops import (
    ForRange,
    LoadGlobal,
    Map,
    NamedBarrierSync,
    ReducePartials,
    SemaphoreArrive,
    SemaphoreWait,
    StoreGlobal,
    StorePartials,
)
from wsdsl.ir.rewriter import retype
from wsdsl.ir.types import Tensor
from wsdsl.prover.prove import prove
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

TEXTS = {
    "weights": """
@kernel
def weights(G: bf16[M, N], X: {x}[M, N], r: f32[M], S: f32[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        for m in tiles(M):
            total += sum(G[m, n] * (X[m, n] * r[m]), over=m)
        S[n] = total
""",
    "integers": """
@kernel
def integers(X: {x}[M, N], S: i32[N]):
    for n in tiles(N):
        total = zeros(i32[n])
        for m in tiles(M):
            total += sum(cast(X[m, n], i32), over=m)
        S[n] = total
""",
    "several": """
@kernel
def several(X: {x}[M, N], r: f32[M], S: f32[N], top: f32[N], low: f32[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        most = full(f32[n], -inf)
        least = full(f32[n], 0.5)
        for m in tiles(M):
            x = cast(X[m, n], f32)
            total += sum(x * x + 1.0, over=m)
            most = max(most, max(x, over=m))
            least = min(least, min(x * r[m], over=m))
        S[n] = total
        top[n] = most
        low[n] = least
""",
    "softmax": """
@kernel
def softmax(X: {x}[M, N], S: f32[M, N]):
    for n in tiles(N):
        most = full(f32[n], -inf)
        total = zeros(f32[n])
        for m in tiles(M):
            x = cast(X[m, n], f32)
            now = max(most, max(x, over=m))
            total = total * exp(most - now) + sum(exp(x - now), over=m)
            most = now
        for m in tiles(M):
            S[m, n] = exp(cast(X[m, n], f32) - most) / total
""",
    "batches": """
@kernel
def batches(X: {x}[B, M, N], S: f32[B, N]):
    for b in each(B):
        for n in tiles(N):
            total = zeros(f32[n])
            for m in tiles(M):
                total += sum(cast(X[b, m, n], f32), over=m)
            S[b, n] = total
""",
    "normed": """
@kernel
def normed(X: {x}[M, N], T: f32[M, N], S: f32[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        for m in tiles(M):
            total += sum(cast(X[m, n], f32), over=m)
        mean = total / cast(M, f32)
        S[n] += mean
        for m in tiles(M):
            T[m, n] = X[m, n] - mean
""",
    "places": """
@kernel
def places(X: {x}[M, N], S: i32[N]):
    for n in tiles(N):
        S[n] = argmax(X[:, n], over=M)
""",
}


def kernel_of(name: str, x: str = "bf16") -> Any:
    return vars(parse(TEXTS[name].format(x=x)))[name]


def inputs(kernel: Any, beyond: int = 0, **sizes: int) -> dict[str, Any]:
    """With rows that are `beyond` elements longer than what is taken of them."""
    random, found = np.random.default_rng(sum(sizes.values())), dict[str, Any]()
    for p in kernel.params:
        assert isinstance(p.type, Tensor)
        if p.name in ("G", "X", "r"):
            shape = [sizes[str(d)] for d in p.type.dims]
            held = random.standard_normal((*shape[:-1], shape[-1] + beyond)) * 20
            found[p.name] = held.astype(DTYPES[p.type.dtype.name])[..., : shape[-1]]
    return found


def is_right(kernel: Any, schedule: Schedule | None, beyond: int = 0, **sizes: int) -> None:
    given = inputs(kernel, beyond, **sizes)
    made = kernel.compile(schedule, **sizes).simulate(**given)
    wanted = kernel.reference(**given)
    if not isinstance(made, tuple):
        made, wanted = (made,), (wanted,)
    for got, want in zip(made, wanted, strict=True):
        if want.dtype.kind == "i":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "x", "M", "N"),
    [
        ("weights", "bf16", 301, 520),
        ("weights", "f32", 150, 132),
        ("weights", "f16", 67, 7),
        ("weights", "bf16", 1, 131),
        ("integers", "i8", 700, 272),
        ("integers", "i32", 97, 40),
        ("several", "bf16", 211, 136),
        ("several", "f16", 509, 67),
        ("softmax", "bf16", 150, 72),
        ("places", "bf16", 200, 72),
    ],
)
def test_results_are_those_of_the_reference(name: str, x: str, M: int, N: int) -> None:
    is_right(kernel_of(name, x), None, M=M, N=N)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("beyond", [1, 4, 8])
def test_rows_may_begin_anywhere(beyond: int) -> None:
    is_right(kernel_of("weights"), None, beyond, M=70, N=136 - beyond)


TEAMS = {
    "a warpgroup": Schedule(consumers=1, scheduler="grid"),
    "four": Schedule(consumers=4, scheduler="persistent"),
    "in turns": Schedule(scheduler="split_k", splits=3, reduction="serial"),
    "stream-K": Schedule(scheduler="stream_k"),
    "pieces": Schedule(consumers=1, scheduler="split_k", splits=3),
    "pieces of four": Schedule(consumers=4, scheduler="split_k", splits=5),
    "many pieces": Schedule(
        tile=dict(m=4, n=256), consumers=1, scheduler="split_k", splits=40, reduction="parallel"
    ),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("team", TEAMS)
def test_threads_share_rows_in_every_way(team: str) -> None:
    is_right(kernel_of("weights"), TEAMS[team], M=333, N=264)


def test_pieces_have_the_greatest_and_the_least() -> None:
    kernel = kernel_of("several")
    is_right(kernel, Schedule(splits=3), M=300, N=136)
    assert kernel.compile(M=20000, N=128).schedule.splits > 1


def test_pieces_go_over_their_part_again() -> None:
    """With the whole sums; the first one alone stores these."""
    kernel = kernel_of("normed")
    x, asked = inputs(kernel, M=700, N=136)["X"], Schedule(splits=3)
    got, want = np.zeros(136, np.float32), np.zeros(136, np.float32)
    made = kernel.compile(asked, M=700, N=136)
    held, wanted = made.simulate(x, None, got), kernel.reference(x, None, want)
    for one, other in zip(held, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)
    assert kernel.schedule(M=20000, N=128).splits > 1
    number = sum(isinstance(op, ForRange) for op in made.scheduled.ops) - 1
    wrong = changed(made.scheduled, ForRange, lambda op: (replace(op, start=op.stop),), number)
    found = [op for op in made.scheduled.ops if isinstance(op, ForRange)][number]
    moved = retype(found.body, {found.index: (place := Value("place", found.index.type))})
    fn: Any = Map(result=place, fn="sub", args=(found.index, found.start), loc=found.loc)
    alike = changed(made.scheduled, ForRange, lambda op: (replace(op, body=(fn, *moved)),), number)
    for kernel_of_same in (wrong, alike):
        with pytest.raises(ProofError, match="all splits of a tile may store these elements"):
            prove(kernel_of_same)


def test_a_loop_that_stores_one_row_is_not_cut() -> None:
    """All pieces would store there."""
    body = "d = X[m, n] - mean\n            S[n] += sum(d * d, over=m)"
    text = TEXTS["normed"].format(x="bf16").replace("T[m, n] = X[m, n] - mean", body)
    assert vars(parse(text))["normed"].schedule(M=20000, N=128).splits is None


def test_pieces_are_of_one_batch() -> None:
    is_right(kernel_of("batches"), Schedule(splits=2), B=3, M=150, N=40)


def test_sums_are_the_same_in_every_run() -> None:
    kernel = kernel_of("weights")
    given, made = (
        inputs(kernel, M=333, N=264),
        kernel.compile(TEAMS["pieces of four"], M=333, N=264),
    )
    first, *others = (made.simulate(**given, seed=seed) for seed in range(3))
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize(("M", "N"), [(16384, 8192), (65536, 1024), (1024, 65536)])
def test_vectors_are_loaded_and_reduced_by_threads(M: int, N: int) -> None:
    """All SMs have something to do, and threads 16 bytes of each row; between what they load and
    the end of the loop is nothing that warps wait for.
    """
    made = kernel_of("weights").compile(M=M, N=N)
    tiles = -(-N // made.schedule.tile["n"]) * (made.schedule.splits or 1)
    assert tiles >= 0.9 * 132
    loops = re.findall(r"^\$L__BB0_\d+:(.*?)@%p\d+ bra", made.ptx, re.S | re.M)
    loop = max(loops, key=lambda text: text.count("ld.global"))
    assert loop.count(".v4") >= 2 * 6
    assert "shfl" not in loop
    assert "bar.sync" not in loop
    assert made.artifact.resources.spill_store_bytes == 0


def test_rows_are_reduced_in_a_loop_where_they_are_needed() -> None:
    """In each iteration, whose buffers those of the next one do not overwrite."""
    made = kernel_of("softmax").compile(M=150, N=72).scheduled
    assert sum(isinstance(op, StorePartials) and op.over_rows for op in made.ops) >= 2
    prove(made)


def scheduled(team: str) -> Kernel:
    return kernel_of("weights").compile(TEAMS[team], M=333, N=264).scheduled


def changed(
    kernel: Kernel, kind: type[Op], change: Callable[[Any], Region], nth: int = 0
) -> Kernel:
    found = [op for op in kernel.ops if isinstance(op, kind)][nth]
    return exchange(kernel, found, *change(found))


def test_who_does_not_wait_for_other_warps_is_found() -> None:
    wrong = changed(scheduled("a warpgroup"), NamedBarrierSync, lambda op: ())
    with pytest.raises(ProofError, match="before it is written"):
        prove(wrong)
    given = inputs(kernel_of("weights"), M=333, N=264) | {"S": np.zeros(264, np.float32)}
    with pytest.raises(SimulationError):
        simulate(wrong, given)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("kind", "nth", "change"),
    [
        (StorePartials, 0, lambda op: (replace(op, part=None),)),
        (ReducePartials, 0, lambda op: (replace(op, parts=op.parts + 1),)),
        (StorePartials, 0, lambda op: (replace(op, over_rows=False),)),
        (NamedBarrierSync, 0, lambda op: ()),
        (NamedBarrierSync, 1, lambda op: ()),
        (SemaphoreWait, 0, lambda op: ()),
        (SemaphoreArrive, 0, lambda op: (replace(op, release=False),)),
        (SemaphoreArrive, 1, lambda op: ()),
        (StoreGlobal, 0, lambda op: (replace(op, pred=None),)),
        (StoreGlobal, 0, lambda op: (replace(op, index=(op.index[1], op.index[1])),)),
    ],
)
def test_what_is_wrong_with_pieces_is_found(
    kind: type[Op], nth: int, change: Callable[[Any], Region]
) -> None:
    made = scheduled("pieces of four")
    prove(made)
    with pytest.raises(WsdslError):
        prove(changed(made, kind, change, nth))


def test_lines_that_no_piece_has_left_are_not_read() -> None:
    """Those of the next tile, which its pieces may be writing."""
    made = scheduled("pieces of four")
    lines = next(
        op
        for op in made.ops
        if isinstance(op, LoadGlobal) and op.tensor.name.startswith("partials")
    )
    where = made.definers[lines.index[0]]
    wrong = changed(
        made, type(where), lambda op: (replace(op, args=(op.args[0], op.args[1], op.args[1])),),
        [op for op in made.ops if isinstance(op, type(where))].index(where),
    )  # fmt: skip
    with pytest.raises(ProofError, match="split"):
        prove(wrong)


def test_consumers_that_all_have_the_sums_do_not_hand_them_on() -> None:
    serial = Schedule(consumers=2, scheduler="split_k", splits=2, reduction="serial")
    with pytest.raises(ScheduleError, match="use consumers=1"):
        kernel_of("weights").compile(serial, M=333, N=264)
