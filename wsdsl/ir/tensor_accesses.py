"""Which tensors in GMEM the ops of a TILE or SCHEDULED kernel access, and what they do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wsdsl.ir import memory_ops as m
from wsdsl.ir.barrier_ops import ArriveFlag, WaitFlag
from wsdsl.ir.counter_ops import AddCounters, StoreCounters
from wsdsl.ir.op import Kernel, Op, Value, once
from wsdsl.ir.prefetch_ops import PrefetchTile
from wsdsl.ir.tile_ops import Load, Lookup, Store

DIRECT = (
    m.LoadGlobal, m.StoreGlobal, AddCounters, StoreCounters, m.ThreadLoad, m.ThreadStore,
    PrefetchTile, ArriveFlag, WaitFlag,
)  # fmt: skip
"""Ops that have the address of a tensor."""


@dataclass(frozen=True, slots=True)
class Touch:
    """An access to `tensor`, by name. `adds`: it writes what it adds to what is there."""

    tensor: str
    reads: bool = False
    writes: bool = False
    adds: bool = False
    flag: bool = False
    """Of flags, which others change while they are waited for."""


@once
def mapped_tensors(kernel: Kernel) -> Mapping[Value, str]:
    """By a tensor map's value."""
    return {op.result: op.tensor.name for op in kernel.of(m.MakeTensorMap)}


TOUCHING = frozenset((
    m.TmaLoad, m.TmaStore, Lookup, Load, m.ThreadLoad, m.LoadGlobal, Store, m.ThreadStore,
    m.StoreGlobal, AddCounters, StoreCounters, ArriveFlag, WaitFlag,
))  # fmt: skip


def touch_of(op: Op, maps: Mapping[Value, str]) -> Touch | None:
    if type(op) not in TOUCHING:
        return None
    match op:
        case m.TmaLoad():
            return Touch(maps[op.map], reads=True)
        case m.TmaStore():
            return Touch(maps[op.map], writes=True, adds=op.accumulate)
        case Lookup():
            return Touch(op.table.name, reads=True)
        case Load() | m.ThreadLoad() | m.LoadGlobal():
            return Touch(op.tensor.name, reads=True)
        case Store() | m.ThreadStore() | m.StoreGlobal():
            return Touch(op.tensor.name, writes=True, adds=op.accumulate)
        case AddCounters() | StoreCounters():
            return Touch(op.tensor.name, writes=True, adds=True)
        case ArriveFlag() | WaitFlag():
            return Touch(op.tensor.name, reads=True, writes=True, flag=True)
        case _:
            return None


@once
def touches(kernel: Kernel) -> Sequence[tuple[Op, Touch]]:
    maps = mapped_tensors(kernel)
    found = [(op, touch_of(op, maps)) for op in kernel.of(*TOUCHING)]
    return [(op, touch) for op, touch in found if touch is not None]


@once
def written_tensors(kernel: Kernel) -> frozenset[str]:
    """Tensors that change while the kernel runs."""
    return frozenset(touch.tensor for _, touch in touches(kernel) if touch.writes)
