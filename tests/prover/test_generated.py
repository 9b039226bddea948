"""Break what lowering makes of ping-pong, of clusters and of consumers with several blocks of rows:
turns, handshakes between CTAs, slots that are given back in the middle of a group.
"""

import dataclasses
import itertools
import sys
from collections.abc import Iterator

import pytest

import wsdsl
from tests.kernels import CASES
from tests.prover.test_mutants import missed_in_case
from tests.simulator.mutants import DELETED, exchange
from wsdsl import Schedule
from wsdsl.diagnostics import VerifyError
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, results_of
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.rewriter import walk, with_regions
from wsdsl.ir.types import State
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.machine.explore import Refuted, explore

TILE, LARGE = dict(m=64, n=64), dict(m=128, n=128)
SCHEDULES = {
    "pingpong": Schedule(tile=TILE, stages=2, mode="pingpong"),
    "cluster_m": Schedule(tile=TILE, stages=2, consumers=1, cluster=dict(m=2)),
    "cluster_m_n": Schedule(tile=TILE, stages=2, consumers=1, cluster=dict(m=2, n=2)),
    "cluster_8": Schedule(tile=TILE, stages=2, consumers=1, cluster=dict(m=4, n=2)),
    "sums": Schedule(tile=TILE, stages=2, consumers=1, cluster=dict(k=2)),
    "sums_of_two": Schedule(tile=LARGE, stages=2, consumers=2, cluster=dict(k=2)),
    "tall": Schedule(tile=dict(m=128, n=64), stages=2, consumers=1, mode="cooperative"),
    "columns": Schedule(tile=dict(m=64, n=128), stages=2, consumers=2, consumer_split="n"),
}
THREE = Schedule(tile=TILE, stages=2, mode="pingpong", consumers=3)
STATES = {
    "cooperative": (Schedule(tile=dict(m=128, n=256), mode="cooperative"), 15),
    "pingpong": (Schedule(tile=LARGE, mode="pingpong"), 40),
    "pingpong_3": (Schedule(tile=dict(m=64, n=128), mode="pingpong", consumers=3), 50),
    "cluster_m_n": (Schedule(tile=LARGE, mode="cooperative", cluster=dict(m=2, n=2)), 20),
    "cluster_k": (Schedule(tile=LARGE, cluster=dict(k=4)), 15),
    "cluster_m_k": (Schedule(tile=LARGE, cluster=dict(m=2, k=2)), 15),
    "pingpong_cluster": (Schedule(tile=LARGE, mode="pingpong", cluster=dict(m=4)), 30),
    "stream_k": (dataclasses.replace(THREE, scheduler="stream_k", reduction="serial"), 80),
    "parallel": (
        dataclasses.replace(THREE, scheduler="split_k", splits=3, reduction="parallel"),
        130,
    ),
}


def gemm(schedule: Schedule) -> Kernel:
    return CASES["gemm"].kernel._compile(schedule, {}, ()).scheduled


def proved(kernel: Kernel) -> bool:
    try:
        verify(kernel)
        explore(kernel)
    except Refuted as refuted:
        assert refuted.failure.kind != "unknown", refuted.failure.message
        return False
    except VerifyError:
        return False
    return True


QUICK = [name for name in SCHEDULES if name != "cluster_8"]
"""Two CTAs that meet along each axis show what eight do; those are for `make soak`."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", QUICK)
def test_mutants(name: str) -> None:
    """Every third one; `python -m tests.prover.test_generated` takes all."""
    assert missed_in_case("gemm", gemm(SCHEDULES[name]), each=3) == []


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", STATES)
def test_few_states_are_looked_at(name: str) -> None:
    """Whatever the number of stages is: the proof is a large part of a compilation."""
    schedule, states = STATES[name]
    assert explore(gemm(schedule)).states <= states


NOT_AT_FIRST = """
@kernel
def later(A: bf16[M, K], B: bf16[K, N], V: i8[M, E, D], W: i8[N, D], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[k, n]
        more = zeros(i32[m, n])
        for e in each(E):
            if e > 0:
                more += V[m, e, :] @ W[n, :]
        C[m, n] = acc + cast(more, f32)
"""


def test_slots_that_are_filled_in_two_ways() -> None:
    """A second way that no first iteration goes leaves its mark on every slot of the ring, whatever
    order they come in."""
    kernel = vars(wsdsl.parse(NOT_AT_FIRST))["later"]
    compiled = kernel._compile(Schedule(tile=TILE, stages=8, consumers=1), {"D": 64}, ())
    assert explore(compiled.scheduled).states <= 40


LOOP_IN_FRONT = """
@kernel
def in_front(Y: u16[M, N], A: bf16[M, L], B: bf16[K, L], Z: f32[M, K]):
    for m in tiles(M):
        for n in tiles(N):
            Y[m, n] = 2
        for k in tiles(K):
            acc = zeros(f32[m, k])
            for l in tiles(L):
                acc += A[m, l] @ B[k, l]
            Z[m, k] = acc
"""


def test_a_loop_of_its_own_is_entered_before_others_are_driven_on() -> None:
    """Who only counts the others' tiles could do so for ever, while they stand in front of it."""
    kernel = vars(wsdsl.parse(LOOP_IN_FRONT))["in_front"]
    schedule = Schedule(tile=TILE, stages=2, mode="pingpong", scheduler="persistent")
    assert explore(kernel._compile(schedule, {}, ()).scheduled).states <= 180


def test_a_test_inside_an_iteration_takes_nobody_further() -> None:
    """Attention whose keys end, beside two threads that load at their own pace: where others were
    driven on first, no state came again."""
    schedule = Schedule(arch="sm_100a", pdl_independent=("K", "V"))
    compiled = CASES["attention"].kernel._compile(schedule, dict(D=64), ())
    assert explore(compiled.scheduled).states <= 150


# Turns --------------------------------------------------------------------------------------------

CONTRARY = {"eq": "ne", "sub": "add", "add": "sub"}


def other_turns(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Whose turn it is, and whose it is next, in another way."""
    for at, op in enumerate(walk(kernel.body)):
        name = op.result.name.rstrip("_0123456789") if isinstance(op, ops.Map) else ""
        if not isinstance(op, ops.Map) or name not in ("mine", "next", "over", "left_over"):
            continue
        if op.fn == "where":
            test, first, second = op.args
            changed = dataclasses.replace(op, args=(test, second, first))
        else:
            changed = dataclasses.replace(op, fn=CONTRARY[op.fn])
        yield f"{at} {op.result.name}", exchange(kernel, at, changed)


@pytest.mark.parametrize(("schedule", "count"), [(SCHEDULES["pingpong"], 6), (THREE, 15)])
def test_turns(schedule: Schedule, count: int) -> None:
    mutants = list(other_turns(gemm(schedule)))
    assert len(mutants) == count
    assert [what for what, mutant in mutants if proved(mutant)] == []


# Subsets ------------------------------------------------------------------------------------------


BETWEEN_CTAS = (ops.MbarrierWait, ops.MbarrierArrive, ops.MbarrierArriveExpectTx, ops.SyncCluster)
ORDERING = {
    # After the last tile one arrival is left over, and somebody waits for it.
    "pingpong": ((ops.NamedBarrierSync, ops.NamedBarrierArrive), 7),
    "cluster_m": (BETWEEN_CTAS, 8),
    "cluster_m_n": (BETWEEN_CTAS, 9),
}
MOST_LEFT_OUT = 2
"""Ops at a time: two may hide each other. All subsets are looked at by `make soak`."""


def check_subsets(name: str, most: int) -> None:
    """Without any of the ops, but no more of them than so many, nothing is proved."""
    kernel, (kinds, count) = gemm(SCHEDULES[name]), ORDERING[name]
    places = [at for at, op in enumerate(walk(kernel.body)) if isinstance(op, kinds)]
    assert len(places) == count
    for kept in itertools.product((True, False), repeat=count):
        if kept.count(False) > most:
            continue
        mutant = kernel
        for at, keep in reversed(list(zip(places, kept, strict=True))):
            mutant = mutant if keep else exchange(mutant, at)
        assert proved(mutant) == all(kept), kept


@pytest.mark.parametrize("name", ORDERING)
def test_subsets(name: str) -> None:
    check_subsets(name, MOST_LEFT_OUT)


# Shifts -------------------------------------------------------------------------------------------

LATER = {
    ("mbarrier_init", "mbarrier_init"): "two arrays, in either order",
    (
        "mbarrier_arrive_expect_tx",
        "tma_load",
    ): "the phase awaits the arrival too, whenever bytes land",
    ("tma_load", "tma_load"): "two copies, in either order",
    ("setmaxnreg", "elect"): "who needs more registers gets them later",
    ("setmaxnreg", "for_range"): "who needs more registers has them later",
    ("setmaxnreg", "named_barrier_arrive"): "who needs more registers has them later",
    ("named_barrier_arrive", "wgmma_wait"): "the turn is passed on later, the products are issued",
    ("mbarrier_arrive", "tma_store_wait"): "the slot is given back later",
    ("mbarrier_arrive", "wgmma"): "the slot is given back later",
    ("mbarrier_arrive", "elect"): "the slot is given back later",
    ("mbarrier_arrive", "send_fragment"): "the slot is given back later",
    ("send_fragment", "elect"): "bytes are sent, and one's own expected, in either order",
    ("tma_store_commit", "mbarrier_wait"): "the stores' group is closed later",
    ("mbarrier_arrive", "mbarrier_arrive"): "two barriers, in either order",
    ("mbarrier_wait", "mbarrier_wait"): "all slots come back, in either order",
    ("mbarrier_wait", "wgmma_fence"): "the fence is for registers, the wait for SMEM",
}


def after(region: Region, first: Op, second: Op, where: Region) -> Region:
    """`first` put behind `second`, both in the region `where` (an op may stand in others too)."""
    made: list[Op] = []
    for op in region:
        if region is where and op is first:
            continue
        made.append(with_regions(op, lambda inner: after(inner, first, second, where)))
        if region is where and op is second:
            made.append(first)
    return tuple(made)


def later(kernel: Kernel) -> Iterator[tuple[str, str, Kernel]]:
    """Each synchronising op after the next one of its region: the two ops, the kernel."""
    pairs: list[tuple[Op, Op, Region]] = []
    kinds = (*DELETED, ops.WgmmaMmaAsync, ops.ForRange, ops.Elect, ops.If)

    def find(region: Region) -> Region:
        marked = [op for op in region if isinstance(op, kinds)]
        for first, second in itertools.pairwise(marked):
            if isinstance(first, DELETED) and not results_of(first):
                pairs.append((first, second, region))
        for op in region:
            with_regions(op, find)
        return region

    find(kernel.body)
    for first, second, where in pairs:
        body = after(kernel.body, first, second, where)
        yield op_name(type(first)), op_name(type(second)), dataclasses.replace(kernel, body=body)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", QUICK)
def test_shifts(name: str) -> None:
    kernel = gemm(SCHEDULES[name])
    harmless = {(first, second) for first, second, mutant in later(kernel) if proved(mutant)}
    assert harmless <= LATER.keys()
    assert ("mbarrier_wait", "wgmma_fence") in harmless


@pytest.mark.parametrize("stages", [1, 2])
def test_a_ring_begins_at_a_certain_stage(stages: int) -> None:
    """Waits at the end that begin again where the ring began are right for some sizes alone."""
    schedule = dataclasses.replace(SCHEDULES["cluster_m"], stages=stages)
    kernel = gemm(schedule)
    again = Value("again", State())

    def change(region: Region) -> Region:
        made: list[Op] = []
        for op in region:
            inner = with_regions(op, change)
            behind = bool(made) and isinstance(made[-1], ops.ForRange)
            if behind and isinstance(inner, ops.MbarrierWait):
                made.append(ops.InitialState(result=again, parity=1))
                inner = dataclasses.replace(inner, state=again)
            made.append(inner)
        return tuple(made)

    wrong = dataclasses.replace(kernel, body=change(kernel.body))
    assert wrong != kernel
    verify(wrong)
    with pytest.raises(Refuted):
        explore(wrong)


if __name__ == "__main__":
    for ordering in ORDERING:
        check_subsets(ordering, sys.maxsize)
    for schedule in SCHEDULES:
        assert missed_in_case("gemm", gemm(SCHEDULES[schedule])) == []
        test_shifts(schedule)
