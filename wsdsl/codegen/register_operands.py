"""Fragments that wgmma reads as its left operand: written before the fence, and there to stay.

PTX leaves undefined what wgmma reads of a register that was written after the last wgmma.fence.
LLVM takes a conversion for pure and moves it past the fence to its only user.
"""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.codegen import wgmma_ptx
from wsdsl.codegen.context import Context
from wsdsl.codegen.fragments import texts_of
from wsdsl.ir.fragment_ops import Join, Slice, Wgmma, WgmmaFence
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.types import Fragment


def made_before_fences(kernel: Kernel) -> dict[int, tuple[Value, ...]]:
    """By the id of a fence (all fences are equal): what the products after it read."""
    made = kernel.definers
    found: dict[int, dict[Value, None]] = {}
    fence: WgmmaFence | None = None
    for op in kernel.ops:
        if isinstance(op, WgmmaFence):
            fence = op
        elif isinstance(op, Wgmma) and isinstance(op.a.type, Fragment) and fence is not None:
            found.setdefault(id(fence), {}).update(dict.fromkeys(_written(op.a, made)))
    return {key: tuple(values) for key, values in found.items()}


def _written(value: Value, made: Mapping[Value, Op]) -> tuple[Value, ...]:
    """The fragments whose registers these are: slices and joins, which may follow the fence, have
    none of their own."""
    op = made.get(value)
    if isinstance(op, Slice):
        return _written(op.x, made)
    if isinstance(op, Join):
        return tuple(v for part in op.parts for v in _written(part, made))
    return (value,)


def pin_operands(c: Context, op: WgmmaFence) -> None:
    """The same registers go on from here: a copy would escape the wait that keeps them."""
    values = [v for v in c.before_fences.get(id(op), ()) if v in c.held]
    texts = [x for v in values for x in texts_of(c.w, c.registers(v))]
    if texts:
        wgmma_ptx.pin(c.w, texts)
