"""Which tensors in GMEM the ops of a TILE or SCHEDULED kernel access, and what they do to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from wsdsl.ir.barrier_ops import ArriveFlag, WaitFlag
from wsdsl.ir.counter_ops import AddCounters, StoreCounters
from wsdsl.ir.memory_ops import (
    LoadGlobal,
    MakeTensorMap,
    StoreGlobal,
    ThreadLoad,
    ThreadStore,
    TmaLoad,
    TmaStore,
)
from wsdsl.ir.op import Op, Value
from wsdsl.ir.tile_ops import Load, Lookup, Store


@dataclass(frozen=True, slots=True)
class Touch:
    """An access to `tensor`, by name. `adds`: it writes what it adds to what is there."""

    tensor: str
    reads: bool = False
    writes: bool = False
    adds: bool = False
    flag: bool = False
    """Of flags, which others change while they are waited for."""


def mapped_tensors(ops: Iterable[Op]) -> dict[Value, str]:
    """By a tensor map's value."""
    return {op.result: op.tensor.name for op in ops if isinstance(op, MakeTensorMap)}


def touch_of(op: Op, maps: Mapping[Value, str]) -> Touch | None:
    match op:
        case TmaLoad():
            return Touch(maps[op.map], reads=True)
        case TmaStore():
            return Touch(maps[op.map], writes=True, adds=op.accumulate)
        case Lookup():
            return Touch(op.table.name, reads=True)
        case Load() | ThreadLoad() | LoadGlobal():
            return Touch(op.tensor.name, reads=True)
        case Store() | ThreadStore() | StoreGlobal():
            return Touch(op.tensor.name, writes=True, adds=op.accumulate)
        case AddCounters() | StoreCounters():
            return Touch(op.tensor.name, writes=True, adds=True)
        case ArriveFlag() | WaitFlag():
            return Touch(op.tensor.name, reads=True, writes=True, flag=True)
        case _:
            return None


def touches(ops: Iterable[Op]) -> Iterator[tuple[Op, Touch]]:
    """Of all ops of a kernel, its tensor maps among them."""
    ops = tuple(ops)
    maps = mapped_tensors(ops)
    for op in ops:
        if (touch := touch_of(op, maps)) is not None:
            yield op, touch


def written_tensors(ops: Iterable[Op]) -> frozenset[str]:
    """Tensors that change while the kernel runs."""
    return frozenset(touch.tensor for _, touch in touches(ops) if touch.writes)
