"""Which tensors in GMEM the ops of a TILE or SCHEDULED kernel access, and what they do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Value, once
from wsdsl.ir.ops import (
    AddBins,
    Load,
    Lookup,
    PrefetchTile,
    SemaphoreArrive,
    SemaphoreWait,
    Store,
    StoreBins,
)
from wsdsl.record import record

DIRECT = (
    ops.LoadGlobal, ops.StoreGlobal, AddBins, StoreBins, ops.ThreadLoad, ops.ThreadStore,
    PrefetchTile, SemaphoreArrive, SemaphoreWait,
)  # fmt: skip
"""Ops that have the address of a tensor."""


@record
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
    return {op.result: op.tensor.name for op in kernel.of(ops.MakeTensorMap)}


TOUCHES: dict[type[Op], tuple[str, ...]] = {
    **dict.fromkeys((ops.TmaLoad, Lookup, Load, ops.ThreadLoad, ops.LoadGlobal), ("reads",)),
    **dict.fromkeys((ops.TmaStore, Store, ops.ThreadStore, ops.StoreGlobal), ("writes",)),
    **dict.fromkeys((AddBins, StoreBins), ("writes", "adds")),
    **dict.fromkeys((SemaphoreArrive, SemaphoreWait), ("reads", "writes", "flag")),
}


def touch_of(op: Any, maps: Mapping[Value, str]) -> Touch | None:
    kinds = TOUCHES.get(type(op))
    if kinds is None:
        return None
    name = maps[op.map] if isinstance(op, ops.TmaLoad | ops.TmaStore) else op.tensor.name
    adds = getattr(op, "accumulate", "adds" in kinds)
    return Touch(name, "reads" in kinds, "writes" in kinds, adds, "flag" in kinds)


@once
def touches(kernel: Kernel) -> Sequence[tuple[Op, Touch]]:
    maps = mapped_tensors(kernel)
    found = [(op, touch_of(op, maps)) for op in kernel.of(*TOUCHES)]
    return [(op, touch) for op, touch in found if touch is not None]


@once
def written_tensors(kernel: Kernel) -> frozenset[str]:
    """Tensors that change while the kernel runs."""
    return frozenset(touch.tensor for _, touch in touches(kernel) if touch.writes)
