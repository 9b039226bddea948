"""How many instructions a thread needs for an element of what an op computes."""

from __future__ import annotations

from wsdsl.ir.op import Op
from wsdsl.ir.tile_ops import Cast, Map
from wsdsl.ir.types import Tile

COUNTED = {
    "exp": 8, "log": 27, "log2": 31, "sqrt": 5, "rsqrt": 5, "sin": 25, "cos": 25, "tanh": 20,
    "sigmoid": 16, "silu": 16, "erf": 25, "gelu": 11, "div": 9, "floordiv": 9, "mod": 9, "pow": 78,
}  # fmt: skip
"""In the machine code of f32 functions, or 8 for each that is special, of which an SM has 16 a
cycle; of others, that are one, nothing is said here.
"""
RELAXED = {"gelu": {8: 8, 11: 9}, "tanh": {8: 8}}
"""By the bits that count, where that makes a difference."""


def instructions(op: Op) -> tuple[float, tuple[str, ...]] | None:
    """For each element, and the axes along which these lie; None if an op computes no tile. A
    conversion to 16 bits makes two elements.
    """
    match op:
        case Map(fn=fn, result=result, bits=bits):
            fewer = (n for most, n in RELAXED.get(fn, {}).items() if bits <= most)
            each = float(next(fewer, COUNTED.get(fn, 1)))
        case Cast(result=result):
            each = 0.5 if isinstance(result.type, Tile) and result.type.dtype.bits <= 16 else 1.0
        case _:
            return None
    axes = result.type.axes if isinstance(result.type, Tile) else ()
    return (each, axes) if axes else None
