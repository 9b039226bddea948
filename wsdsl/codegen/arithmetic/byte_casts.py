"""Convert integers of 8 and 4 bits, and small floats, to 16-bit floats, two at a time, by their
bits: the hardware's conversions (I2F) run 16 per cycle and SM, an eighth of its arithmetic, and go
through f32.

A byte b in the mantissa of a float whose last bit is worth 1 adds b to the float's value;
subtracting that value is exact. The mantissa of f16 takes all of a byte with 1024. That of bf16
takes seven bits with 128; the eighth increments the exponent, to 256, which is distinct. Both take
four bits. The last bit of a signed integer is inverted, and its weight subtracted too.
"""

from wsdsl.codegen.arithmetic.bits import AND_OR, AND_XOR, arithmetic, lop3, spread, twice
from wsdsl.codegen.arithmetic.small_floats import SMALL_FORMATS, small_to_half
from wsdsl.codegen.llvm_types import is_packed
from wsdsl.codegen.value_registers import Raised, Registers
from wsdsl.codegen.writer import Writer
from wsdsl.ir.types import DType

IN_BF16, IN_F16 = 0x4300, 0x6400
"""128, 1024: floats whose last place is worth 1."""


def bytes_to_half(w: Writer, x: Registers, dtype: DType) -> Registers | None:
    """None where `x` are no packed elements of 8 or 4 bits, or `dtype` is none of these floats."""
    small = x.dtype.name in SMALL_FORMATS
    if not (small or x.dtype.name in ("i8", "u8", "i4", "u4")) or not is_packed(x.dtype, x.columns):
        return None
    if dtype.name not in ("bf16", "f16") or (x.dtype.name == "f8e8m0" and dtype.name == "f16"):
        return None
    results: list[str] = []
    signed, exact = x.dtype.kind == "int", IN_F16 if dtype.name == "f16" else IN_BF16
    table, subtract = AND_XOR if signed else AND_OR, f"sub.rn.{dtype.name}x2"
    offset = twice(exact + (signed << x.dtype.bits - 1))
    if x.dtype.bits == 4 and not small:
        raised = Raised(offset, tuple(lop3(w, pair, twice(15), offset, table) for pair in x.texts))
        results = [arithmetic(w, subtract, text, str(offset)) for text in raised.texts]
        return Registers(dtype, *x.shape, tuple(results), raised=raised)
    for pair in halves_of(w, x):
        if small:
            results.append(small_to_half(w, pair, x.dtype, dtype))
        elif x.dtype.bits == 8 and dtype.name == "bf16":
            results.append(_byte_to_bf16(w, pair, signed))
        else:
            value = lop3(w, pair, twice(0xFF), offset, table)
            results.append(arithmetic(w, subtract, value, str(offset)))
    return Registers(dtype, *x.shape, tuple(results))


def halves_of(w: Writer, x: Registers) -> tuple[str, ...]:
    """Packed elements of 8 or 4 bits, each in the lowest bits of half an i32; others are open."""
    if x.dtype.bits == 4:
        return x.texts
    return x.spread or tuple(spread(w, text) for text in x.texts)


def _byte_to_bf16(w: Writer, pair: str, signed: bool) -> str:
    one = twice(IN_BF16)
    low = lop3(w, pair, twice(0x7F), one, AND_OR)
    high = lop3(w, pair, twice(0x80), one, AND_OR)
    if not signed:
        low, high = (arithmetic(w, "sub.rn.bf16x2", b, str(one)) for b in (low, high))
    return arithmetic(w, f"{'sub' if signed else 'add'}.rn.bf16x2", low, high)
