"""Ops by which threads and the async proxy wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wsdsl.ir import barrier_ops as b
from wsdsl.ir.op import Op
from wsdsl.ir.types import Barriers
from wsdsl.simulator.barriers import Barrier
from wsdsl.simulator.context import Blocked, State, Steps, Warpgroup


def allocate_barriers(wg: Warpgroup, op: b.AllocateBarriers) -> None:
    held = wg.cta.barriers.get(op.result.name)
    if held is None:
        assert isinstance(op.result.type, Barriers)
        first = len(wg.cta.clocks.seen) + wg.cta.num_barriers
        held = [
            Barrier(op.label, stage, op.arrivals, first + stage, wg.cta.clocks)
            for stage in range(op.result.type.num)
        ]
        wg.cta.num_barriers += len(held)
        wg.cta.barriers[op.result.name] = held
    wg.values[op.result.name] = held


def initialize_barriers(wg: Warpgroup, op: b.InitializeBarriers) -> None:
    wg.only_elected(op)
    held: list[Barrier] = wg.values[op.barriers.name]
    for barrier in held:
        wg.check(op, barrier.initialise(wg.first))


def fence_barrier_init(wg: Warpgroup, op: b.FenceBarrierInit) -> None:
    del op
    wg.cta.clocks.fence(wg.actors, wg.cta.clocks.init_fences)


def fence_async_proxy(wg: Warpgroup, op: b.FenceAsyncProxy) -> None:
    del op
    wg.cta.clocks.fence(wg.actors, wg.cta.clocks.proxy_fences)


def sync_warp(wg: Warpgroup, op: b.SyncWarp) -> None:
    wg.only_whole(op)
    wg.cta.clocks.sync_warps(wg.everyone)


def arrive_barrier(wg: Warpgroup, op: b.ArriveBarrier) -> None:
    if op.pred is not None and not wg.get(op.pred, op):
        return
    barrier = wg.barrier(op, op.barriers, wg.values[op.state.name])
    if op.each_thread:
        wg.only_whole(op)
    actors = wg.everyone if op.each_thread else wg.one
    clock = wg.cta.clocks.release(actors)
    wg.check(op, barrier.arrive(128 if op.each_thread else 1, clock))


def arrive_expect_tx(wg: Warpgroup, op: b.ArriveExpectTx) -> None:
    wg.only_elected(op)
    barrier = wg.barrier(op, op.barriers, wg.values[op.state.name])
    wg.check(op, barrier.expect(op.tx_bytes))
    wg.check(op, barrier.arrive(1, wg.cta.clocks.release(wg.one)))


def wait_barrier(wg: Warpgroup, op: b.WaitBarrier) -> Steps:
    state: State = wg.values[op.state.name]
    barrier = wg.barrier(op, op.barriers, state)
    if not barrier.passes(state.parity):
        yield Blocked(
            op,
            lambda: barrier.passes(state.parity),
            lambda: f"{barrier}, parity {state.parity}; the barrier: {barrier.state()}",
        )
    wg.cta.clocks.acquire(wg.actors, barrier.completed)


def sync_cta(wg: Warpgroup, op: b.SyncCta) -> Steps:
    wg.only_whole(op)
    cta = wg.cta
    this_round = cta.sync_round
    cta.at_sync += 1
    if cta.at_sync == len(cta.warpgroups):
        everyone = slice(0, len(cta.clocks.seen))
        clock = cta.clocks.release(everyone)
        cta.clocks.acquire(everyone, clock)
        cta.at_sync, cta.sync_round = 0, this_round + 1
        return
    yield Blocked(
        op,
        lambda: cta.sync_round != this_round,
        lambda: f"all warpgroups to meet; {cta.at_sync} of {len(cta.warpgroups)} are there",
    )


def set_max_registers(wg: Warpgroup, op: b.SetMaxRegisters) -> Steps:
    wg.only_whole(op)
    cta = wg.cta
    if op.count % 8 or not 24 <= op.count <= 256:
        wg.fail(op, f"{op.count} registers; setmaxnreg takes multiples of 8 from 24 to 256")
    if op.increase != (op.count >= wg.registers) and op.count != wg.registers:
        more = "more" if op.increase else "fewer"
        wg.fail(op, f"{op.count} registers a thread are not {more} than the {wg.registers} held")
    taken = op.count - wg.registers
    if taken > cta.free_registers:
        yield Blocked(
            op,
            lambda: taken <= cta.free_registers,
            lambda: (
                f"{taken} more registers a thread (it holds {wg.registers}); the CTA's pool has "
                f"{cta.free_registers} to give"
            ),
        )
    cta.free_registers -= taken
    wg.registers = op.count


SYNC: dict[type[Op], Callable[[Warpgroup, Any], Steps | None]] = {
    b.AllocateBarriers: allocate_barriers,
    b.InitializeBarriers: initialize_barriers,
    b.FenceBarrierInit: fence_barrier_init,
    b.FenceAsyncProxy: fence_async_proxy,
    b.SyncWarp: sync_warp,
    b.ArriveBarrier: arrive_barrier,
    b.ArriveExpectTx: arrive_expect_tx,
    b.WaitBarrier: wait_barrier,
    b.SyncCta: sync_cta,
    b.SetMaxRegisters: set_max_registers,
}
