"""Ask of functions no more than what is kept of their results.

Before:
    %g: f32[m, n] = map(fn="gelu", args=(%x,))
    %wide: f32[m, n] = cast(x=%residual)
    %s: f32[m, n] = map(fn="add", args=(%g, %wide))
    store(tensor=%C, index=(%m, %n), value=%s)
After:
    %g: f32[m, n] = map(fn="gelu", args=(%x,), bits=8)

A relative error passes products, quotients and choices as it is, and is lost where they are rounded
to fewer bits, as those of a tensor. It passes a sum with what is itself known to so few bits; other
sums could cancel. What f32 keeps, or a reduction or another iteration takes, stays exact.

Why here: before anything counts instructions.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.op import Kernel, Op, Region, Value, operands
from wsdsl.ir.tile_ops import Cast, Map, Store
from wsdsl.ir.types import F32, Tensor, Tile
from wsdsl.ir.walk import walk, with_regions

RELAXED = ("exp", "gelu", "sigmoid", "silu", "tanh")
"""The functions of which there are quicker ones."""
PASSING = ("mul", "div", "neg", "abs", "relu", "min", "max", "where")
EXACT = F32.significant_bits


def relax_functions(kernel: Kernel) -> Kernel:
    needed = _needed_bits(kernel)

    def change(region: Region) -> Region:
        return tuple(relaxed(op) for op in region)

    def relaxed(op: Op) -> Op:
        if isinstance(op, Map) and op.fn in RELAXED:
            bits = needed.get(op.result, EXACT)
            return dataclasses.replace(op, bits=bits) if bits < op.bits else op
        return with_regions(op, change)

    return dataclasses.replace(kernel, body=change(kernel.body))


def _needed_bits(kernel: Kernel) -> dict[Value, int]:
    """Of a value's significand, by what becomes of it."""
    made, needed = kernel.definers, dict[Value, int]()

    def held(value: Value) -> int:
        """The bits that a value has to begin with."""
        known = _bits(value)
        match made.get(value):
            case Cast(x=x):
                return min(known, _bits(x))
            case _:
                return known

    def passed(op: Op, value: Value) -> int:
        """What the op needs of the operand."""
        match op:
            case Store(tensor=tensor, value=stored) if value == stored:
                return _bits(tensor)
            case Cast(result=result) if _bits(result) < EXACT:
                return needed.get(result, 0)
            case Map(fn=fn, result=result) if fn in PASSING:
                return needed.get(result, 0)
            case Map(fn="add" | "sub", result=result, args=args):
                bits = needed.get(result, 0)
                others = [a for a in args if a != value]
                return bits if others and all(held(a) <= bits for a in others) else EXACT
            case _:
                return EXACT

    # Uses come behind what they use, but those of another iteration, which a yield hands on.
    for op in reversed([*walk(kernel.body)]):
        for value in operands(op):
            needed[value] = max(needed.get(value, 0), min(_bits(value), passed(op, value)))
    return needed


def _bits(value: Value) -> int:
    dtype = value.type.dtype if isinstance(value.type, (Tile, Tensor)) else F32
    return dtype.significant_bits if dtype.is_float else EXACT
