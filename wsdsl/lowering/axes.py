"""The axes of a kernel, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from wsdsl.ir.op import Kernel, Value, once
from wsdsl.ir.tile_ops import Whole
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import definitions, retype


@once
def axes_of(kernel: Kernel) -> Mapping[str, Axis]:
    """Every axis that a loop walks or that takes a dimension whole; names are unique."""
    return {v.type.name: v.type for v in definitions(kernel) if isinstance(v.type, Axis)}


def change_axes(kernel: Kernel, change: Callable[[Axis], Axis]) -> Kernel:
    """The kernel with the type of every axis value changed."""
    swap = {
        v: Value(v.name, change(v.type)) for v in definitions(kernel) if isinstance(v.type, Axis)
    }
    return dataclasses.replace(kernel, body=retype(kernel.body, swap))


def loop_variable(axis: str) -> str:
    """The name that a schedule uses: a second loop over `k` has the axis `k_1`."""
    head, _, tail = axis.rpartition("_")
    return head if head and tail.isdigit() else axis


@once
def whole_axes(kernel: Kernel) -> frozenset[str]:
    """Axes that are no loop's: of dimensions taken whole."""
    taken = (op.result.type for op in kernel.ops if isinstance(op, Whole))
    return frozenset(kind.name for kind in taken if isinstance(kind, Axis))


def tile_axes(value: Value) -> tuple[str, ...]:
    """None of a scalar, nor of what is no tile at all."""
    return value.type.axes if isinstance(value.type, Tile) else ()


def is_tile(value: Value) -> bool:
    return bool(tile_axes(value))
