"""Costs of accesses to GMEM and SMEM: bytes, times the rate of the unit that moves them."""

from wsdsl.ir.effects import Access
from wsdsl.ir.op import Op, operands, results_of
from wsdsl.ir.types import ACCUMULATOR, Fragment, State
from wsdsl.lowering.instruction_counts import of_load
from wsdsl.report.timed.cycle_costs import num_bytes
from wsdsl.report.timed.event_times import Landed, targets
from wsdsl.report.timed.sm import Agent


def copy_to_smem(agent: Agent, gmem: Access, smem: Access) -> Landed:
    """Copy a tile from GMEM, by TMA or by threads."""
    speeds, moved, name = agent.sm.speeds, _size(smem), _name(gmem)
    ends: Landed = []
    for sm in targets(agent, smem):
        begin, end = sm.loads.take(agent.now, moved * speeds.load)
        ends.append((sm, max(end, sm.memory.take(begin, moved * speeds.memory)[1])))
    if gmem.asynchronous:
        agent.until(agent.now + speeds.rates.tma_issue_cycles * speeds.pace, "issue", name)
        return [(sm, end + speeds.filled) for sm, end in ends]
    agent.until(ends[0][1] + speeds.rates.tma_l2_cycles, "loads", name)
    return []


def load(agent: Agent, op: Op) -> float:
    """Return when threads have loaded a fragment from GMEM."""
    speeds, sm, kind = agent.sm.speeds, agent.sm, results_of(op)[0].type
    if not isinstance(kind, Fragment):
        # Data are not known: where they are indices, any do.
        return 0
    num, issued = _distinct(op), agent.now
    # In memory-bound kernels all loads of an iteration are issued at its begin.
    if not speeds.has_products:
        cycles = of_load(kind.dtype, kind.lanes != ACCUMULATOR) * num * speeds.own_instruction
        issued = agent.loading.take(agent.begun, cycles)[1]
    moved = num * kind.dtype.bits / 8
    begin, end = sm.thread_loads.take(issued, moved * speeds.direct_load)
    return max(end + speeds.loaded, sm.memory.take(begin, moved * speeds.memory)[1])


def store(agent: Agent, op: Op, gmem: Access, smem: Access | None) -> None:
    """Store to GMEM by threads, from registers or SMEM."""
    if smem is None and not _fragments(op):
        return
    speeds, sm, name = agent.sm.speeds, agent.sm, _name(gmem)
    agent.until(agent.ready(op), "wait", "loads by threads")
    assert gmem.of is not None
    moved = _size(smem) if smem else _distinct(op) * gmem.of.as_tensor.dtype.bits / 8
    if name in sm.workspace:
        end = sm.stores.take(agent.now, moved * speeds.workspace_store)[1]
    else:
        end = sm.stores.take(agent.now, moved * speeds.store)[1]
        end = max(end, sm.memory.take(agent.now, moved * speeds.memory)[1])
    agent.until(end, "stores", name)


def store_by_tma(agent: Agent, smem: Access) -> None:
    speeds, sm, moved = agent.sm.speeds, agent.sm, _size(smem)
    cycles = moved * speeds.store
    # Concurrent with another warpgroup's MMAs each store takes longer, but two overlap.
    beside = speeds.beside if sm.tensor.free > agent.now else 1.0
    begin, read = sm.stores.take(agent.now, cycles * max(1.0, beside / 2))
    read = max(read, agent.storing.take(agent.now, cycles * beside)[1])
    end = max(read, sm.memory.take(begin, moved * speeds.memory)[1])
    agent.issue("stores", read, end + speeds.rates.tma_l2_cycles)
    sm.last = max(sm.last, end)


def store_to_smem(agent: Agent, op: Op) -> None:
    """Store fragments to SMEM."""
    if stored := sum(map(num_bytes, _fragments(op))):
        agent.until(agent.ready(op), "wait", "loads by threads")
        end = agent.sm.shared.take(agent.now, stored * agent.sm.speeds.shared)[1]
        agent.until(end, "SMEM")


def send(agent: Agent, op: Op, smem: Access) -> Landed:
    """Send fragments to the SMEM of another CTA."""
    speeds, moved = agent.sm.speeds, sum(map(num_bytes, _fragments(op)))
    agent.until(agent.sm.exchange.take(agent.now, moved * speeds.send)[1], "DSMEM")
    return landed_after(agent, smem, speeds.rates.cluster_exchange_cycles)


def landed_after(agent: Agent, smem: Access, cycles: float) -> Landed:
    """Return when data are there that take no unit's time."""
    return [(sm, agent.now + cycles) for sm in targets(agent, smem)]


def load_from_smem(agent: Agent, op: Op, smem: Access) -> None:
    sm, moved = agent.sm, sum(num_bytes(v.type) for v in results_of(op))
    agent.decodes |= smem.item is not None and isinstance(smem.item.type, State)
    agent.until(sm.shared.take(agent.now, moved * sm.speeds.shared)[1], "SMEM")


def _size(smem: Access) -> int:
    return sum(span.size for warp in smem.spans for span in warp)


def _name(gmem: Access) -> str:
    return gmem.of.name if gmem.of else ""


def _fragments(op: Op) -> list[Fragment]:
    return [v.type for v in operands(op) if isinstance(v.type, Fragment)]


def _distinct(op: Op) -> int:
    """Return the number of elements that the operands of an access address."""
    kinds = _fragments(op)
    return max((k.rows for k in kinds), default=1) * max((k.columns for k in kinds), default=1)
