"""Ops on mbarriers, fences and registers, by which threads and the async proxy wait."""

from __future__ import annotations

from wsdsl.ir import ops
from wsdsl.ir.op import Op
from wsdsl.ir.types import Barriers
from wsdsl.simulator.state.mbarriers import Barrier, RemoteArrival
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


def fence_async_proxy(wg: Warpgroup, op: ops.FenceAsyncProxy) -> None:
    clocks = wg.cta.clocks
    wg.effect(op, "fence", "shared", wg.actors)
    clocks.fence(wg.actors, clocks.proxy_fences)
    if op.everywhere:
        wg.effect(op, "fence", "global", wg.actors)
        clocks.fence(wg.actors, clocks.global_fences)


def sync_warp(wg: Warpgroup, op: ops.SyncWarp) -> None:
    for i in range(4):
        wg.effect(op, "arrive", "warp", wg.warp(i))
        wg.effect(op, "wait", "warp", wg.warp(i))
    wg.cta.clocks.sync_warps(wg.everyone)


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


def setmaxnreg(wg: Warpgroup, op: ops.Setmaxnreg) -> Steps:
    cta = wg.cta
    if op.count % 8 or not 24 <= op.count <= 256:
        wg.fail(op, f"setmaxnreg needs a multiple of 8 from 24 to 256, not {op.count} registers")
    if op.increase != (op.count >= wg.registers) and op.count != wg.registers:
        more = "more" if op.increase else "fewer"
        wg.fail(op, f"{op.count} registers per thread are not {more} than {wg.registers}")
    taken = op.count - wg.registers
    if taken > cta.free_registers:
        yield Blocked(
            op,
            lambda: taken <= cta.free_registers,
            lambda: (
                f"{taken} more registers per thread (now {wg.registers}); the pool of the CTA has "
                f"{cta.free_registers}"
            ),
        )
    cta.free_registers -= taken
    wg.registers = op.count
