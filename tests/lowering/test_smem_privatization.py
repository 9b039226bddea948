"""What is added at computed places is counted in SMEM, whatever the schedule says of counters."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.lowering.test_column_sums import changed
from wsdsl import Schedule, parse
from wsdsl.cli.options import schedule_from
from wsdsl.diagnostics import ProofError, ScheduleError, VerifyError
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.ops import AddBins, ClearBins, NamedBarrierSync, StoreBins
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.prove import prove
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

KERNELS = parse("""
@kernel
def histogram(X: i32[N], H: i32[B]):
    for n in tiles(N):
        H[X[n]] += 1

@kernel
def weighted(X: i32[N], W: f32[N], H: f32[B]):
    for n in tiles(N):
        H[X[n]] += W[n]

@kernel
def rounded(X: i32[N], W: bf16[N], H: bf16[B]):
    for n in tiles(N):
        H[X[n]] += W[n]

@kernel
def segments(D: bf16[M, N], ids: i32[M], G: f32[V, N]):
    for m, n in tiles(M, N):
        G[ids[m], n] += D[m, n]

@kernel
def joint(A: i32[N], C: i32[N], H: u32[P, Q]):
    for n in tiles(N):
        H[A[n], C[n]] += cast(A[n] + C[n], u32)

@kernel
def rows(X: i32[R, N], H: i32[R, B]):
    for r, n in tiles(R, N):
        H[index(r), X[r, n]] += 1

@kernel
def odd(X: i32[M], D: f32[M, N], H: f32[B, N]):
    for m, n in tiles(M, N):
        H[X[m], n] += D[m, n]

@kernel
def turned(X: i32[M, N], D: f32[N, M], H: i32[B], Y: f32[M, N]):
    for m, n in tiles(M, N):
        H[X[m, n]] += 1
        Y[m, n] = D[n, m]

@kernel
def marked(X: i32[N], H: i32[B]):
    for n in tiles(N):
        H[X[n]] = 1
""")
N = 5001


def drawn(below: int, *shape: int) -> Any:
    """Some beyond both ends."""
    return np.random.default_rng(below).integers(-3, below + 3, shape).astype(np.int32)


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(1).integers(-8, 9, shape).astype(dtype)


BF16 = ml_dtypes.bfloat16
CASES: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "histogram": ((drawn(70, N), np.arange(70, dtype=np.int32)), (70,)),
    "weighted": ((drawn(70, N), floats(N), floats(70)), (70,)),
    "rounded": ((drawn(300, N), floats(N, dtype=BF16), floats(300, dtype=BF16)), (300,)),
    "segments": ((floats(300, 104, dtype=BF16), drawn(9, 300), floats(9, 104)), (9, 104)),
    "joint": ((drawn(9, N), drawn(7, N), np.zeros((9, 7), np.uint32)), (9, 7)),
    "rows": ((drawn(20, 5, 1112), np.zeros((5, 20), np.int32)), (5, 20)),
}
TEAMS = {
    "one warpgroup": dict(consumers=1),
    "four, a tile ahead": dict(consumers=4, stages=2, ctas_per_sm=2),
    "a CTA a tile": dict(consumers=2, scheduler="grid"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_reference(name: str, team: str) -> None:
    """With counters of all elements, of some, and of more than there are."""
    kernel, (arrays, whole) = getattr(KERNELS, name), CASES[name]
    wanted = [x.copy() for x in arrays]
    kernel.reference(*wanted)
    for extents in (whole, tuple(-(-e // 2) for e in whole), tuple(e + 3 for e in whole)):
        schedule = Schedule(smem_privatize={kernel.params[-1].name: extents}, **TEAMS[team])
        made = [x.copy() for x in arrays]
        kernel.simulate(*made, schedule=schedule, seed=2)
        np.testing.assert_array_equal(made[-1], wanted[-1])


def test_nothing_is_added_to_what_nobody_chose() -> None:
    """-0.0 stays, and NaN is added to its own element alone."""
    at, held = np.full(64, 2, np.int32), np.full(8, -0.0, np.float32)
    KERNELS.weighted.simulate(
        at, np.full(64, np.nan, np.float32), held, schedule=Schedule(smem_privatize=dict(H=(8,)))
    )
    assert np.isnan(held[2]) and np.signbit(held).sum() - np.signbit(held[2]) == 7


@pytest.mark.parametrize("counters", [{}, dict(H=(8,))], ids=["none", "of all"])
def test_minus_zero_adds_nothing(counters: dict[str, tuple[int, ...]]) -> None:
    at, nothing = np.full(64, 2, np.int32), np.full(64, -0.0, np.float32)
    held, wanted = np.full(8, -0.0, np.float32), np.full(8, -0.0, np.float32)
    KERNELS.weighted.simulate(at, nothing, held, schedule=Schedule(smem_privatize=counters))
    KERNELS.weighted.reference(at, nothing, wanted)
    assert np.signbit(held).all() and np.signbit(wanted).all()


def scheduled() -> Kernel:
    schedule = Schedule(smem_privatize=dict(H=(64,)), consumers=2, tile=dict(n=4096))
    return KERNELS.histogram.compile(schedule=schedule, N=1 << 16, B=64).scheduled


@pytest.mark.parametrize("nth", [0, 1], ids=["behind clearing", "before storing"])
def test_all_meet_between_clearing_adding_and_storing(nth: int) -> None:
    wrong = changed(scheduled(), NamedBarrierSync, lambda op: (), nth)
    with pytest.raises(ProofError, match="counters"):
        prove(wrong)
    with pytest.raises(SimulationError, match="counters"):
        simulate(wrong, {"X": drawn(64, N), "H": np.zeros(64, np.int32)})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (AddBins, lambda op: replace(op, copies=1)),
        (StoreBins, lambda op: replace(op, by=1)),
        (ClearBins, lambda op: replace(op, extents=(1 << 16,))),
    ],
)
def test_who_counts_says_the_same_of_counters(kind: type[Op], change: Callable[[Op], Op]) -> None:
    with pytest.raises(VerifyError):
        verify(changed(scheduled(), kind, lambda op: (change(op),), 0))


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("histogram", dict(smem_privatize=dict(X=(64,))), "names `X`.*\n.*\n.*\n.*choose from: H"),
        ("histogram", dict(smem_privatize=dict(H=(64, 2))), "2 extents; it has 1 dimension"),
        ("histogram", dict(smem_privatize=dict(H=(60000,))), "240640 bytes of SMEM"),
        ("marked", dict(smem_privatize=dict(H=(64,))), "must only add to it, at computed"),
        (
            "odd",
            dict(smem_privatize=dict(H=(4, 9))),
            "`H`, whose tiles are not vectors",
        ),
    ],
)
def test_what_can_not_be_counted_is_refused(name: str, given: Any, told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        getattr(KERNELS, name).compile(schedule=Schedule(**given), N=(1 << 20) + 1)


def test_counters_by_the_command_line() -> None:
    made = schedule_from(["counters.G=64x256", "stages=2"])
    assert made == Schedule(smem_privatize=dict(G=(64, 256)), stages=2)


def test_counters_are_chosen_where_they_fit_and_pay() -> None:
    def chosen(size: int, bins: int) -> Any:
        return KERNELS.histogram.schedule(N=size, B=bins).counters

    assert chosen(1 << 24, 64) == dict(H=(64,))
    assert chosen(1000, 64) is None
    assert chosen(1 << 24, 1 << 20) is None
    small = Schedule(smem_privatize=dict(H=(64,)), tile=dict(n=64))
    assert KERNELS.histogram.schedule(small, N=1 << 24, B=64).consumers == 1
    told = str(KERNELS.histogram.plan(N=1 << 24, B=64))
    assert "64 of H, 32 copies by lane" in told and "8320 bytes: privatized bins" in told


def test_lanes_share_counters_where_tiles_take_smem() -> None:
    schedule = Schedule(smem_privatize=dict(H=(1750,)), ctas_per_sm=1)
    assert [held.copies for held in KERNELS.turned.plan(schedule).counters] == [16]
