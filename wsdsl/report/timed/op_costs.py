"""Effects of SCHEDULED ops on the clock of the agent that runs them, and on shared units."""

import math
import sys
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.hardware.wgmma_shapes import k_step
from wsdsl.ir.op import Op, Value, by_op, results_of
from wsdsl.ir.ops import NOTHING_LEFT
from wsdsl.ir.types import ACCUMULATOR, DTYPES, Barriers, Fragment
from wsdsl.lowering.cost_model.constants import PRODUCT_ISSUE
from wsdsl.lowering.instruction_counts import of_load, per_element
from wsdsl.report.timed import tmem_costs
from wsdsl.report.timed.arrivals import arrive, destinations
from wsdsl.report.timed.cycle_costs import elements, num_bytes
from wsdsl.report.timed.sm import Agent, Effect, Steps
from wsdsl.report.timed.units import Barrier

# Threads ------------------------------------------------------------------------------------------


def compute(agent: Agent, op: Any) -> None:
    """Instructions of a fragment. Integers and conditions are addresses and masks."""
    speeds, sm = agent.sm.speeds, agent.sm
    there = agent.ready(op)
    counted = per_element(op)
    kind = counted[1] if counted else None
    if counted and isinstance(kind, Fragment) and _counts(op):
        agent.until(there, "wait", "loads by threads")
        _, end = sm.instructions.take(agent.now, counted[0] * elements(kind) * speeds.instruction)
        agent.until(end, "arithmetic")
        there = agent.now
    agent.wg.values[op.result.name] = there


def _counts(op: Op) -> bool:
    if not isinstance(op, ops.Map):
        return True
    made = op.result.type
    return isinstance(made, Fragment) and made.dtype.name not in ("i32", "bool")


def move_shared(agent: Agent, op: Any) -> None:
    """To SMEM or from it."""
    agent.decodes |= isinstance(op, (ops.LoadShared, ops.LoadPanels))
    stored = _stored(op)
    if stored:
        agent.until(agent.ready(op), "wait", "loads by threads")
    cycles = sum(num_bytes(v.type) for v in stored or results_of(op)) * agent.sm.speeds.shared
    agent.until(agent.sm.shared.take(agent.now, cycles)[1], "SMEM")
    if not stored:
        agent.wg.values[op.result.name] = agent.now


def _stored(op: Op) -> tuple[Value, ...]:
    match op:
        case ops.StoreShared():
            return (op.value,)
        case ops.StoreTransposed():
            return op.parts
        case _:
            return ()


def store_partials(agent: Agent, op: ops.StorePartials) -> None:
    """The transfer itself takes no time, since it is small; bytes count on arrival."""
    counted = per_element(op)
    agent.until(agent.ready(op), "wait", "loads by threads")
    if counted:
        cycles = counted[0] * elements(op.x.type) * agent.sm.speeds.instruction
        agent.until(agent.sm.instructions.take(agent.now, cycles)[1], "arithmetic")
    arrive(agent, op, agent.now + agent.sm.speeds.rates.cluster_exchange_cycles)


def load_global(agent: Agent, op: ops.LoadGlobal) -> None:
    kind = op.result.type
    if not isinstance(kind, Fragment):
        # Data are not known: where they are places, any do.
        agent.wg.values[op.result.name] = 0
        return
    speeds, sm = agent.sm.speeds, agent.sm
    num = _small(op.index)
    wanted = num * kind.dtype.bits / 8
    # In memory-bound kernels all loads of an iteration are issued at its begin.
    asked = agent.now
    if not speeds.has_products:
        cycles = of_load(kind.dtype, kind.lanes != ACCUMULATOR) * num * speeds.own_instruction
        asked = agent.loading.take(agent.begun, cycles)[1]
    begin, end = sm.thread_loads.take(asked, wanted * speeds.thread_load)
    from_memory = sm.memory.take(begin, wanted * speeds.memory)[1]
    agent.wg.values[op.result.name] = max(end + speeds.loaded, from_memory)


def _small(index: tuple[Any, ...]) -> int:
    """Elements that indices tell apart."""
    kinds = [v.type for v in index if isinstance(v.type, Fragment)]
    return max((k.rows for k in kinds), default=1) * max((k.columns for k in kinds), default=1)


def store_global(agent: Agent, op: ops.StoreGlobal) -> None:
    if not any(isinstance(v.type, Fragment) for v in (op.value, *op.index)):
        return
    speeds, sm = agent.sm.speeds, agent.sm
    agent.until(agent.ready(op), "wait", "loads by threads")
    moved = _small((op.value, *op.index)) * op.tensor.as_tensor.dtype.bits / 8
    between = op.tensor.name in sm.workspace
    each = speeds.thread_store if between else speeds.store
    _, end = sm.stores.take(agent.now, moved * each)
    if not between:
        end = max(end, sm.memory.take(agent.now, moved * speeds.memory)[1])
    agent.until(end, "stores", op.tensor.name)


# Copies -------------------------------------------------------------------------------------------


def tma_load(agent: Agent, op: ops.TmaLoad) -> None:
    speeds, sm = agent.sm.speeds, agent.sm
    box, name = sm.boxes[op.map.name]
    for other in destinations(agent, op.multicast):
        begin, end = other.loads.take(agent.now, box * speeds.load)
        end = max(end, other.memory.take(begin, box * speeds.memory)[1])
        arrive(agent, op, end + speeds.filled, to=other)
    agent.until(agent.now + speeds.rates.tma_issue_cycles * speeds.pace, "issue", name)


def thread_load(agent: Agent, op: ops.ThreadLoad) -> None:
    speeds, sm = agent.sm.speeds, agent.sm
    moved = op.rows * op.columns * op.tensor.as_tensor.dtype.bits / 8
    begin, end = sm.loads.take(agent.now, moved * speeds.load)
    end = max(end, sm.memory.take(begin, moved * speeds.memory)[1])
    agent.until(end + speeds.rates.tma_l2_cycles, "loads", op.tensor.name)


def tma_store(agent: Agent, op: ops.TmaStore) -> None:
    speeds, sm = agent.sm.speeds, agent.sm
    # A box for each warp, or more lower ones.
    size = sm.boxes[op.map.name][0]
    moved = size * sum(1 for _ in op.boxes(int(size)))
    cycles = moved * speeds.store
    # Concurrent with another warpgroup's MMAs each store takes longer, but two overlap.
    beside = speeds.beside if sm.tensor.free > agent.now else 1.0
    begin, read = sm.stores.take(agent.now, cycles * max(1.0, beside / 2))
    read = max(read, agent.storing.take(agent.now, cycles * beside)[1])
    end = max(read, sm.memory.take(begin, moved * speeds.memory)[1])
    agent.stores.append((read, end + speeds.rates.tma_l2_cycles))
    sm.last = max(sm.last, end)


def tma_store_commit(agent: Agent, op: ops.TmaStoreCommit) -> None:
    done = [max(times) for times in zip(*agent.stores, strict=True)] or [0.0, 0.0]
    agent.store_groups.append((done[0], done[1]))
    agent.stores = []


def tma_store_wait(agent: Agent, op: ops.TmaStoreWait) -> None:
    groups = agent.store_groups[: max(0, len(agent.store_groups) - op.pending)]
    agent.until(max((g[0 if op.read else 1] for g in groups), default=0.0), "stores")
    if not op.read:
        agent.store_groups = agent.store_groups[len(groups) :]


def thread_store(agent: Agent, op: ops.ThreadStore) -> None:
    speeds, sm = agent.sm.speeds, agent.sm
    moved = 4 * math.prod(op.box) * op.tensor.as_tensor.dtype.bits / 8
    _, end = sm.stores.take(agent.now, moved * speeds.store)
    agent.until(max(end, sm.memory.take(agent.now, moved * speeds.memory)[1]), "stores")


# Products -----------------------------------------------------------------------------------------


def wgmma_mma_async(agent: Agent, op: ops.WgmmaMmaAsync) -> None:
    speeds, sm = agent.sm.speeds, agent.sm
    agent.until(agent.ready(op), "wait", "loads by threads")
    dtype = DTYPES[op.dtypes[0]]
    in_registers = isinstance(op.a.type, Fragment)
    cycles = speeds.product(
        op.num_columns, dtype.bits, op.k / k_step(dtype), a_in_registers=in_registers
    )
    _, end = sm.tensor.take(agent.now, cycles)
    if in_registers and agent.decodes:
        # Threads that compute the next operand and products both read and write registers.
        sm.instructions.take(agent.now, PRODUCT_ISSUE * cycles)
    agent.products.append(end + speeds.rates.tensor_latency_cycles * speeds.pace)
    agent.wg.values[op.result.name] = 0.0


def wgmma_commit(agent: Agent, op: ops.WgmmaCommit) -> None:
    agent.groups.append(max(agent.products, default=0.0))
    agent.products, agent.decodes = [], False


def wgmma_wait(agent: Agent, op: ops.WgmmaWait) -> None:
    covered = len(agent.groups) - op.pending
    if covered > 0:
        agent.until(max(agent.groups[:covered]), "MMA")
        del agent.groups[:covered]
    for result in op.result:
        agent.wg.values[result.name] = 0.0


# Waiting ------------------------------------------------------------------------------------------


def allocate_mbarriers(agent: Agent, op: ops.AllocateMbarriers) -> None:
    held, num = agent.sm.barriers, op.result.type_as(Barriers).num
    if op.result.name not in held:
        held[op.result.name] = [Barrier(op.arrivals) for _ in range(num)]


def mbarrier_arrive(agent: Agent, op: ops.MbarrierArrive) -> None:
    rates = agent.sm.speeds.rates
    arrive(agent, op, agent.now, rates.mbarrier_cycles, rates.cluster_exchange_cycles)


def mbarrier_arrive_expect_tx(agent: Agent, op: ops.MbarrierArriveExpectTx) -> None:
    arrive(agent, op, agent.now, remote=agent.sm.speeds.rates.cluster_exchange_cycles)


def clc_try_cancel(agent: Agent, op: ops.ClcTryCancel) -> None:
    """The response takes the latency of L2."""
    arrive(agent, op, agent.now + agent.sm.speeds.rates.tma_l2_cycles)


def clc_query_cancel(agent: Agent, op: ops.ClcQueryCancel) -> None:
    claimed, at = agent.sm.claimed, agent.answers
    agent.answers = at + 1
    agent.wg.values[op.result.name] = claimed[at] if at < len(claimed) else NOTHING_LEFT


def mbarrier_wait(agent: Agent, op: ops.MbarrierWait) -> Steps:
    state = agent.get(op.state)
    barrier = agent.sm.barriers[op.barriers.name][state.stage]
    edge = agent.sm.edges[op.barriers.name]
    return agent.awaits(barrier, lambda: barrier.over(state.parity), edge)


def sync_cta(agent: Agent, op: ops.SyncCta) -> Steps:
    meeting = agent.sm.meeting
    own = agent.come(meeting, len(agent.sm.agents))
    return agent.awaits(meeting, lambda: meeting.over(own), "the CTA barrier")


def sync_cluster(agent: Agent, op: ops.SyncCluster) -> Steps:
    meeting = agent.sm.cluster[0].cluster_meeting
    own = agent.come(meeting, sum(len(sm.agents) for sm in agent.sm.cluster))
    # It is a part of what a start takes.
    return agent.awaits(meeting, lambda: meeting.over(own), "the cluster barrier")


def _come(agent: Agent, op: ops.NamedBarrierSync | ops.NamedBarrierArrive) -> tuple[Any, int]:
    number = op.barrier + (0 if op.item is None else int(agent.get(op.item)))
    meeting = agent.sm.named[number]
    return meeting, agent.come(meeting, op.num_warpgroups)


def named_barrier_sync(agent: Agent, op: ops.NamedBarrierSync) -> Steps:
    meeting, own = _come(agent, op)
    more = agent.sm.speeds.rates.named_barrier_cycles
    return agent.awaits(meeting, lambda: meeting.over(own), "other warpgroups", more)


def named_barrier_arrive(agent: Agent, op: ops.NamedBarrierArrive) -> None:
    _come(agent, op)


def semaphore_arrive(agent: Agent, op: ops.SemaphoreArrive) -> None:
    flag = agent.sm.flags[op.tensor.name, tuple(int(agent.get(i)) for i in op.index)]
    amount = op.amount if op.by is None or op.wrap is not None else int(agent.get(op.by))
    flag.added.append((agent.now, amount))
    agent.sm.wake(flag)


def semaphore_wait(agent: Agent, op: ops.SemaphoreWait) -> Steps:
    count = int(agent.get(op.count))
    flag = agent.sm.flags[op.tensor.name, tuple(int(agent.get(i)) for i in op.index)]
    more = agent.sm.speeds.rates.hand_over_cycles if count > 0 else 0.0
    return agent.awaits(flag, lambda: flag.reached(count), "accumulators of other CTAs", more)


def send_fragment(agent: Agent, op: ops.SendFragment) -> None:
    speeds, sm = agent.sm.speeds, agent.sm
    _, end = sm.exchange.take(agent.now, num_bytes(op.value.type) * speeds.send)
    arrive(agent, op, end + speeds.rates.cluster_exchange_cycles)
    agent.until(end, "DSMEM")


def setmaxnreg(agent: Agent, op: ops.Setmaxnreg) -> None:
    agent.wg.registers = op.count


INSTRUCTIONS = ops.Map, ops.Cast, ops.Bitcast, ops.ReduceColumns, ops.MmaSync, ops.ScanColumns
OF_SHARED = (
    ops.ReducePartials, ops.StoreShared, ops.LoadShared, ops.LoadPanels, ops.ReceiveFragment,
    ops.StoreTransposed, ops.LoadTransposed,
)  # fmt: skip
EFFECTS: dict[type[Op], Effect] = {
    **dict.fromkeys(INSTRUCTIONS, compute),
    **dict.fromkeys(OF_SHARED, move_shared),
    **by_op(sys.modules[__name__], tmem_costs),
}
"""Other ops take no time."""
