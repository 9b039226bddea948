"""Floats of 4 and 6 bits, and scales f8e8m0, to 16-bit floats by their bits, two at a time: sm_90a
has no conversion of them.

Sign, exponent and mantissa go to where a 16-bit float has its own; that float's exponent is then
too small by the difference of the biases, for subnormals, too, and a product with a power of two
makes up for it, exactly. A scale is an exponent of bf16 and nothing else.
"""

from __future__ import annotations

from wsdsl.codegen.halves import AND_OR, arithmetic, lop3, twice
from wsdsl.codegen.writer import Writer
from wsdsl.ir.types import DType

SMALL_FORMATS = {"f4e2m1": (2, 1), "f6e2m3": (2, 3), "f6e3m2": (3, 2), "f8e8m0": (8, 0)}
"""Bits of exponent and mantissa."""
HALVES = {"bf16": (8, 7), "f16": (5, 10)}


def small_to_half(w: Writer, pair: str, source: DType, target: DType) -> str:
    """`pair`: the codes in the lowest bits of both halves, with anything in the others."""
    if source.name == "f8e8m0":
        return _scales(w, pair)
    (exponent, mantissa), (wide, places) = SMALL_FORMATS[source.name], HALVES[target.name]
    sign = w.binary("shl", "i32", pair, 15 - exponent - mantissa)
    rest = w.binary("shl", "i32", pair, places - mantissa)
    sign = w.binary("and", "i32", sign, twice(0x8000))
    mask = (1 << exponent + mantissa) - 1 << places - mantissa
    held = lop3(w, rest, twice(mask), sign, AND_OR)
    bias, own = ((1 << bits - 1) - 1 for bits in (wide, exponent))
    power = twice(2 * bias - own << places)
    return arithmetic(w, f"mul.rn.{target.name}x2", held, str(power))


def _scales(w: Writer, pair: str) -> str:
    """As bf16; 0 is 2^-127, which is subnormal there, and 255 is NaN."""
    code = w.binary("and", "i32", pair, twice(0xFF))
    number = arithmetic(w, "max.u16x2", w.binary("shl", "i32", code, 7), str(twice(0x40)))
    over = w.binary("lshr", "i32", w.binary("add", "i32", code, twice(1)), 2)
    return lop3(w, over, twice(0x40), number, AND_OR)
