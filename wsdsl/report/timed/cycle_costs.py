"""Costs of ops in cycles: the GPU's rates, corrected by the cost model's whole-kernel factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wsdsl.ir.effects import Access, Arrive, Wait
from wsdsl.ir.hardware.wgmma_shapes import MAX_COLUMNS
from wsdsl.ir.op import Makers, Op
from wsdsl.ir.ops import Map
from wsdsl.ir.types import BOOL, I32, Fragment, Type
from wsdsl.lowering.cooperation import num_cooperating, num_pingpong_consumers
from wsdsl.lowering.cost_model.predict import Prediction, astray
from wsdsl.lowering.cost_model.speeds import (
    crowding,
    issuing,
    l2_bytes,
    loaded_cycles,
    pace_of,
    power,
)
from wsdsl.lowering.instruction_counts import per_element
from wsdsl.rates import Rates
from wsdsl.record import record
from wsdsl.schedule import Schedule


@record
class Speeds:
    """Cycles of one SM: per byte, per instruction of one thread, or from one event to the next. Of
    units that all SMs share (L2, memory), an SM has its part at the kernel's number of busy SMs.
    """

    rates: Rates
    pace: float
    """Of all that an SM does."""
    power: float
    """Of products."""
    load: float
    memory: float
    """DRAM time per byte that is loaded or stored, averaged over hits in L2."""
    direct_load: float
    store: float
    beside: float
    """Slowdown of stores concurrent with another warpgroup's MMAs."""
    workspace_store: float
    send: float
    shared: float
    instruction: float
    own_instruction: float
    """Of one warpgroup, while others have theirs."""
    loaded: float
    """Until threads have what they load."""
    filled: float
    """Until the data are in a pipeline stage."""
    has_products: bool
    start: float
    """From the launch until the partitions begin."""

    @classmethod
    def of(cls, prediction: Prediction, schedule: Schedule) -> Speeds:
        asked, rates, busy = prediction.tile, prediction.tile.rates, prediction.busy
        moved = sum(s.times * (s.loaded + s.direct + s.stored) for s in asked.steps)
        longer, pace, crowded = asked.crossing * astray(asked, schedule), 1.0, 1.0
        if not prediction.plain:
            pace, crowded = pace_of(asked, busy), crowding(rates, busy)
        filled = loaded_cycles(asked, busy)
        own = num_cooperating(schedule)
        issued = issuing(rates, own * prediction.resident)
        waits = rates.tma_l2_cycles if asked.product_cycles else filled
        # The first operands come within what a start takes.
        first = filled + rates.mbarrier_cycles if asked.product_cycles else 0.0
        return cls(
            rates=rates,
            pace=pace,
            power=power(rates, asked.bytes_per_cycle) * pace,
            load=longer / (prediction.gain * l2_bytes(rates, busy)),
            memory=prediction.memory / max(1.0, moved * prediction.rounds),
            direct_load=crowded / rates.l2_load_bytes,
            store=crowded / rates.l2_tma_store_bytes,
            beside=2.0 if num_pingpong_consumers(schedule) > 1 else 1.0,
            workspace_store=1 / rates.l2_store_bytes,
            send=2 / rates.cluster_send_bytes,
            shared=pace / rates.smem_read_bytes,
            instruction=pace / issued,
            own_instruction=pace * own / issued,
            loaded=waits,
            filled=filled,
            has_products=asked.product_cycles > 0,
            start=asked.start - first,
        )

    def product(self, columns: int, bits: int, steps: float, **operands: Any) -> float:
        """Of `steps` instructions; `operands` are as in `Rates.tensor_cycles`."""
        each = self.rates.tensor_cycles(min(MAX_COLUMNS, columns), bits, **operands)
        return steps * each * self.power


class OpEffects(NamedTuple):
    """Instructions of an op, its first access to each memory space, its arrivals and waits."""

    instructions: float
    accesses: Mapping[str, Access]
    events: Sequence[Arrive | Wait]


def op_effects(op: Op, made: Makers) -> OpEffects:
    effects = [*op.effects(made)]
    accesses = {e.space: e for e in reversed(effects) if isinstance(e, Access)}
    events = [e for e in effects if isinstance(e, Arrive | Wait)]
    each, kind = per_element(op) or (0.0, None)
    # Integers and conditions are addresses and masks.
    if not isinstance(kind, Fragment) or (isinstance(op, Map) and kind.dtype in (I32, BOOL)):
        return OpEffects(0.0, accesses, events)
    return OpEffects(each * (kind.rows * kind.columns), accesses, events)


def num_bytes(kind: Type) -> float:
    return kind.rows * kind.columns * kind.dtype.bits / 8 if isinstance(kind, Fragment) else 0.0
