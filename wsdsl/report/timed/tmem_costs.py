"""Effects of tensor memory ops on the agent that runs them; destinations of cluster ops."""

from __future__ import annotations

from wsdsl.ir import ops
from wsdsl.ir.hardware.block_scale_factors import TILE_COLUMNS, WORD
from wsdsl.ir.hardware.wgmma_shapes import k_step
from wsdsl.ir.types import DTYPES, Value
from wsdsl.report.timed.sm import Agent, Sm


def destinations(agent: Agent, multicast: Value | None) -> list[Sm]:
    """The SMs of the CTAs that a mask says, or one's own."""
    if multicast is None:
        return [agent.sm]
    mask = int(agent.get(multicast))
    return [other for rank, other in enumerate(agent.sm.cluster) if mask >> rank & 1]


def reached(agent: Agent, cta: Value | None, at_once: float) -> tuple[Sm, float]:
    """The SM of the CTA of that rank, or one's own, and how long it takes to tell it something."""
    sm = agent.sm
    other = sm if cta is None else sm.cluster[int(agent.get(cta))]
    return other, at_once if other is sm else sm.speeds.rates.cluster_exchange_cycles


def tcgen05_mma(agent: Agent, op: ops.Tcgen05Mma) -> None:
    """MMAs run one after the other; the issuing thread continues."""
    speeds, sm = agent.sm.speeds, agent.sm
    dtype = DTYPES[op.dtypes[0]]
    steps, group = op.k / k_step(dtype), op.cta_group
    cycles = speeds.product(op.columns, dtype.bits, steps, rows=op.rows, cta_group=group)
    first = sm.cluster.index(sm)
    busy = sm.cluster[first : first + group] if group > 1 else [sm]
    end = max(own.tensor.take(agent.now, cycles)[1] for own in busy)
    agent.products = [end + speeds.rates.tensor_latency_cycles * speeds.pace]


def store_scale_factors(agent: Agent, op: ops.StoreScaleFactors) -> None:
    """Each warp reads all of them in SMEM, of lines that share banks, or of those of atoms."""
    sm, moved = agent.sm, 4 * WORD * op.words * op.rows
    cycles = moved * sm.speeds.shared * (TILE_COLUMNS if op.atoms else min(32, op.line // WORD))
    agent.until(sm.shared.take(agent.now, cycles)[1], "SMEM")


def tcgen05_commit(agent: Agent, op: ops.Tcgen05Commit) -> None:
    sm, rates = agent.sm, agent.sm.speeds.rates
    over = max((agent.now, *agent.products))
    for other in destinations(agent, op.multicast):
        later = rates.mbarrier_cycles if other is sm else rates.cluster_exchange_cycles
        other.arrive(op.barriers, agent.get(op.state), over + later)
