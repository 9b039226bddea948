"""Run SCHEDULED ops in predicted cycles, by their effects: on an agent's clock and shared units."""

import sys
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.effects import Access, Arrive
from wsdsl.ir.hardware.block_scale_factors import TILE_COLUMNS, WORD
from wsdsl.ir.hardware.wgmma_shapes import k_step
from wsdsl.ir.op import Op, Value, by_op, results_of
from wsdsl.ir.types import DTYPES, Fragment, Shared
from wsdsl.lowering.cost_model.constants import PRODUCT_ISSUE
from wsdsl.report.timed import access_costs as costs
from wsdsl.report.timed.cycle_costs import OpEffects
from wsdsl.report.timed.event_times import Landed, arrive, targets, wait
from wsdsl.report.timed.sm import Agent, Steps


def perform(agent: Agent, op: Op, effects: OpEffects) -> Steps:
    """Run an op: its arithmetic, its accesses, then its arrivals and waits in their order."""
    yield None
    if own := OWN.get(type(op)):
        own(agent, op)
        return
    there = agent.ready(op)
    if effects.instructions:
        agent.until(there, "wait", "loads by threads")
        cycles = effects.instructions * agent.sm.speeds.instruction
        agent.until(agent.sm.instructions.take(agent.now, cycles)[1], "arithmetic")
        there = agent.now
    loaded, landed = _access(agent, op, effects) if effects.accesses else (None, [])
    for result in results_of(op):
        agent.wg.values[result.name] = there if loaded is None else loaded
    for event in effects.events:
        if isinstance(event, Arrive):
            arrive(agent, op, event, landed)
        else:
            yield from wait(agent, op, event)


def _access(agent: Agent, op: Op, effects: OpEffects) -> tuple[float | None, Landed]:
    """Return when threads have loaded the result, and what is written to SMEM asynchronously."""
    loaded, landed, rates = None, list[Any](), agent.sm.speeds.rates
    first = effects.accesses
    match first.get("smem"), first.get("gmem"):
        case smem, _ if isinstance(op, ops.Mma):
            _multiply(agent, op, first.get("tmem"))
        case None, Access(kind="read"):
            loaded = costs.load(agent, op)
        case Access() as smem, Access(kind="read") as gmem:
            landed = costs.copy_to_smem(agent, gmem, smem)
        case Access(asynchronous=True) as smem, Access():
            costs.store_by_tma(agent, smem)
        case Access(kind="add" | "take"), _:
            pass  # Counters in SMEM are not timed.
        case smem, Access() as gmem:
            costs.store(agent, op, gmem, smem)
        case Access(kind="write", asynchronous=True) as smem, None:
            landed = costs.landed_after(agent, smem, rates.tma_l2_cycles)
        case Access(kind="write", cta=Value()) as smem, None:
            landed = costs.send(agent, op, smem)
        case Access(kind="write") as smem, None if effects.instructions:
            # Reduced to a few bytes.
            landed = costs.landed_after(agent, smem, rates.cluster_exchange_cycles)
        case Access(kind="write"), None:
            costs.store_to_smem(agent, op)
        case Access(of=Value(type=Shared()), asynchronous=False) as smem, None:
            costs.load_from_smem(agent, op, smem)
            loaded = agent.now
        case _:
            pass
    return loaded, landed


def _multiply(agent: Agent, op: Any, tmem: Access | None) -> None:
    """MMAs run one after another; the issuing thread continues."""
    speeds, sm, dtype = agent.sm.speeds, agent.sm, DTYPES[op.dtypes[0]]
    agent.until(agent.ready(op), "wait", "loads by threads")
    in_registers = isinstance(op.a.type, Fragment)
    busy = targets(agent, tmem) if tmem else [sm]
    shape = dict(rows=op.rows, cta_group=len(busy)) if tmem else {}
    cycles = speeds.product(
        op.num_columns, dtype.bits, op.k / k_step(dtype), a_in_registers=in_registers, **shape
    )
    end = max(own.tensor.take(agent.now, cycles)[1] for own in busy)
    if in_registers and agent.decodes:
        # Threads that compute the next operand and products both read and write registers.
        sm.instructions.take(agent.now, PRODUCT_ISSUE * cycles)
    end += speeds.rates.tensor_latency_cycles * speeds.pace
    agent.issue("MMA", end, end)


# Ops whose effects do not state their cost.
def clc_query_cancel(agent: Agent, op: ops.ClcQueryCancel) -> None:
    claimed, at = agent.sm.claimed, agent.answers
    agent.answers = at + 1
    agent.wg.values[op.result.name] = claimed[at] if at < len(claimed) else ops.NOTHING_LEFT


def store_scale_factors(agent: Agent, op: ops.StoreScaleFactors) -> None:
    """Each warp reads all of them in SMEM, of lines that share banks, or of those of atoms."""
    sm, moved = agent.sm, 4 * WORD * op.words * op.rows
    cycles = moved * sm.speeds.shared * (TILE_COLUMNS if op.atoms else min(32, op.line // WORD))
    agent.until(sm.shared.take(agent.now, cycles)[1], "SMEM")


OWN = by_op(sys.modules[__name__])
