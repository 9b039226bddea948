"""Cooperating consumers of a chain of products that follow one another once an iteration."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.case_data import inputs, simulated
from tests.kernels import CASES
from tests.simulator.mutants import exchange
from wsdsl import Schedule
from wsdsl.diagnostics import ProofError, ScheduleError, VerifyError
from wsdsl.ir import ops
from wsdsl.ir.ops import If
from wsdsl.ir.rewriter import walk
from wsdsl.prover.prove import prove
from wsdsl.prover.ptx.check_ptx import check_skeleton
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

CASE = CASES["attention"]
SIZES = dict(H=2, M=392, N=200, D=64)
NAMED = (ops.NamedBarrierSync, ops.NamedBarrierArrive)


def schedule(consumers: int, **more: Any) -> Schedule:
    tile = dict(m=64 * consumers, n=64)
    return Schedule(tile=tile, consumers=consumers, order_barriers=True, **more)


def compiled(consumers: int, **more: Any) -> Any:
    return CASE.kernel.compile(schedule(consumers, **more), D=64)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "made",
    [schedule(2), schedule(2, stages=1, scheduler="grid"), schedule(3, stages=3)],
    ids=lambda x: f"{x.consumers}, {x.stages}",
)
def test_right_and_proved(made: Schedule) -> None:
    kernel = CASE.kernel.compile(made, D=64)
    assert kernel.certificate is not None
    for sizes in SIZES, SIZES | dict(N=64):
        simulated(CASE, kernel.scheduled, sizes["N"], **sizes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("consumers", [2, 3])
def test_each_of_them_is_needed(consumers: int, each: Callable[[int], int]) -> None:
    """Without one (the arrival that is there before all others, the meeting behind all, each in the
    loop), or at another barrier, it is refuted or refused."""
    kernel = compiled(consumers).scheduled
    items = {op.item for op in walk(kernel.body) if isinstance(op, NAMED)} - {None}
    members = [(at, op) for at, op in enumerate(walk(kernel.body)) if isinstance(op, NAMED)]
    assert len(members) == 10 and len(items) == 2
    # Of whole tiles alone: the copies for others have the same.
    asked = (*members[:3], *members[7:]) if consumers == 2 else members[:3]
    for at, op in asked[:: each(3)]:
        (other,) = items - {op.item} if op.item else (None,)
        mutants = {
            "deleted": exchange(kernel, at),
            "next barrier": exchange(kernel, at, dataclasses.replace(op, barrier=op.barrier + 1)),
            "other item": exchange(kernel, at, dataclasses.replace(op, item=other)),
        }
        if op.item is None:
            del mutants["other item"]
        for mutant in mutants.values():
            with pytest.raises((ProofError, VerifyError)):
                prove(mutant)


def test_who_primes_and_who_is_left() -> None:
    """The last one arrives for the first, and the first one meets what is left over."""
    kernel = compiled(2).scheduled
    alone = [
        (at, op)
        for at, op in enumerate(walk(kernel.body))
        if isinstance(op, If) and any(isinstance(o, NAMED) for o in op.then) and not op.result
    ]
    (at, prime), (behind, left_over) = alone
    for place, own, other in (at, prime, left_over), (behind, left_over, prime):
        mutant = exchange(kernel, place, dataclasses.replace(own, cond=other.cond))
        with pytest.raises((ProofError, VerifyError), match="arrives twice"):
            prove(mutant)
        with pytest.raises(SimulationError, match="arrives twice"):
            simulate(mutant, inputs(CASE, **SIZES))


def test_the_ptx_names_the_barriers() -> None:
    made = compiled(3)
    lines = [line for line in made.ptx.splitlines() if "bar." in line and "%r" in line]
    assert len(lines) == 8
    sync, arrive = (line.split("%r")[1].split(",")[0] for line in lines[:2])
    for line in lines:
        own, other = (sync, arrive) if "sync" in line else (line.split("%r")[1].split(",")[0], sync)
        ptx = made.ptx.replace(line, line.replace(f"%r{own},", f"%r{other},"))
        with pytest.raises(VerifyError, match="at barrier"):
            check_skeleton(made.scheduled, ptx)
        assert line.rstrip().endswith("256;")


def test_who_has_none() -> None:
    with pytest.raises(ScheduleError, match="no loop has back-to-back MMAs"):
        CASES["gemm"].kernel.compile(Schedule(order_barriers=True, consumers=2))
    for alone in Schedule(mode="pingpong", consumers=2), Schedule(consumers=1):
        with pytest.raises(ScheduleError, match="no consumers split a tile"):
            CASE.kernel.compile(dataclasses.replace(alone, order_barriers=True), D=64)
    with pytest.raises(ScheduleError, match="one thread issues all MMAs"):
        CASE.kernel.compile(Schedule(arch="sm_100a", order_barriers=True, consumers=2), D=64)


def test_chosen_by_cycles() -> None:
    """With D = 128 the products of one consumer take longer than what the other computes."""
    for head, consumers, chosen in (128, 2, True), (64, 2, False), (64, 3, True):
        own = Schedule(tile=dict(m=64 * consumers, n=128), consumers=consumers)
        plan = CASE.kernel.plan(own, D=head)
        assert plan.order_barriers is chosen
        assert ("once per iteration" in str(plan)) is chosen
    assert not CASES["gemm"].kernel.plan(Schedule(consumers=2)).order_barriers
    assert not CASE.kernel.plan(Schedule(order_barriers=False), D=128).order_barriers
