"""mbarriers and pipeline states."""

from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Op
from wsdsl.ir.types import Barriers
from wsdsl.simulator.state.mbarrier_state import Barrier, RemoteArrival
from wsdsl.simulator.warpgroup import Blocked, State, Steps, Warpgroup


def allocate_mbarriers(wg: Warpgroup, op: ops.AllocateMbarriers) -> None:
    held = wg.cta.barriers.get(op.result.name)
    if held is None:
        cta, num = wg.cta, op.result.type_as(Barriers).num
        names = [(op.label, stage, cta.index, cta.suffix) for stage in range(num)]
        components = range(cta.next_barrier, cta.next_barrier + num)
        held = [Barrier(n, op.arrivals, c, cta.clocks) for n, c in zip(names, components)]
        cta.next_barrier += len(held)
        cta.barriers[op.result.name] = held
    wg.values[op.result.name] = held


def mbarrier_init(wg: Warpgroup, op: ops.MbarrierInit) -> None:
    held: list[Barrier] = wg.values[op.barriers.name]
    for barrier in held:
        wg.effect(op, "write", "barrier", wg.one, barrier.stage, barrier.label)
        wg.check(op, barrier.initialise(wg.first))


def fence_mbarrier_init(wg: Warpgroup, op: ops.FenceMbarrierInit) -> None:
    wg.effect(op, "fence", "barrier", wg.actors)
    wg.cta.clocks.fence(wg.actors, wg.cta.clocks.init_fences)


def leave_remote(wg: Warpgroup, op: Op, barrier: Barrier, actors: slice) -> None:
    """An arrival at another CTA's barrier."""
    epoch = int(wg.cta.clocks.own[actors.start])
    barrier.remote[actors.start] = RemoteArrival(wg.told, op, actors.start, epoch)


def mbarrier_arrive(wg: Warpgroup, op: ops.MbarrierArrive) -> None:
    if op.pred is not None and not wg.get(op.pred, op):
        return
    cta = wg.cta if op.cta is None else wg.of_rank(op, op.cta)
    barrier = wg.barrier(op, op.barriers, wg.values[op.state.name], cta)
    actors = wg.everyone if op.each_thread else wg.one
    if cta is not wg.cta:
        leave_remote(wg, op, barrier, actors)
    if op.each_warp:
        for i in range(4):
            wg.arrive(op, barrier, wg.storing(i))
    else:
        wg.arrive(op, barrier, actors, 128 if op.each_thread else 1)


def mbarrier_arrive_expect_tx(wg: Warpgroup, op: ops.MbarrierArriveExpectTx) -> None:
    cta = wg.cta if op.cta is None else wg.of_rank(op, op.cta)
    barrier = wg.barrier(op, op.barriers, wg.values[op.state.name], cta)
    if cta is not wg.cta:
        leave_remote(wg, op, barrier, wg.one)
    wg.check(op, barrier.expect(op.tx_bytes))
    wg.arrive(op, barrier, wg.one)


def mbarrier_wait(wg: Warpgroup, op: ops.MbarrierWait) -> Steps:
    state: State = wg.values[op.state.name]
    barrier = wg.barrier(op, op.barriers, state)
    wg.check(op, barrier.too_early(state.parity, wg.actors))
    if not barrier.passes(state.parity):
        yield Blocked(
            op,
            lambda: barrier.passes(state.parity),
            lambda: f"{barrier}, parity {state.parity}; the barrier: {barrier.state()}",
        )
    wg.effect(op, "wait", "barrier", wg.actors, barrier.stage, barrier.label)
    wg.cta.clocks.acquire(wg.actors, barrier.completed)


def value_of_advance(wg: Warpgroup, op: ops.Advance) -> Any:
    before: State = wg.values[op.state.name]
    wraps = before.stage + 1 == op.num
    return State(0, before.parity ^ 1) if wraps else State(before.stage + 1, before.parity)


def value_of_initial_state(wg: Warpgroup, op: ops.InitialState) -> State:
    return State(0, op.parity)
