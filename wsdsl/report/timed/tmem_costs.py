"""Costs of tcgen05 ops for the agent that runs them."""

from wsdsl.ir import ops
from wsdsl.ir.hardware.block_scale_factors import TILE_COLUMNS, WORD
from wsdsl.ir.hardware.wgmma_shapes import k_step
from wsdsl.ir.types import DTYPES
from wsdsl.report.timed.arrivals import arrive
from wsdsl.report.timed.sm import Agent


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
    rates, over = agent.sm.speeds.rates, max((agent.now, *agent.products))
    arrive(agent, op, over, rates.mbarrier_cycles, rates.cluster_exchange_cycles)
