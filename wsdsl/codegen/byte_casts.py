"""8-bit integers to 16-bit floats, two at a time, by their bits: the hardware's conversions (I2F)
take 16 a cycle of an SM, an eighth of its arithmetic, and go by f32.

A byte b that is put into the mantissa of a float whose last place is worth 1 makes its value plus
b; that value is then taken off, exactly. f16 has room for all of a byte beside 1024. bf16 has seven
bits beside 128; with the eighth the exponent grows by one, to 256, which tells it apart.
"""

from __future__ import annotations

from wsdsl.codegen.convert_type import is_packed
from wsdsl.codegen.held import Registers
from wsdsl.codegen.paired_maps import arithmetic
from wsdsl.codegen.writer import Writer
from wsdsl.ir.types import DType

AND_OR, AND_XOR = 0xEA, 0x6A
"""What lop3 does: (a & b) | c, (a & b) ^ c."""
IN_BF16 = 0x43004300
"""128 twice."""
IN_F16, SIGNED_IN_F16 = 0x64006400, 0x64806480
"""1024 twice; 1024 + 128, by which the sign's bit is turned over."""


def bytes_to_half(w: Writer, x: Registers, dtype: DType) -> Registers | None:
    """None where `x` are no packed bytes, or `dtype` is none of these floats."""
    if x.dtype.name not in ("i8", "u8") or dtype.name not in ("bf16", "f16"):
        return None
    if not is_packed(x.dtype, x.columns):
        return None
    signed, made = x.dtype.name == "i8", list[str]()
    for pair in x.spread or tuple(spread(w, text) for text in x.texts):
        if dtype.name == "f16" and signed:
            held = _lop3(w, pair, 0x00FF00FF, SIGNED_IN_F16, AND_XOR)
            made.append(arithmetic(w, "sub.rn.f16x2", held, str(SIGNED_IN_F16)))
        elif dtype.name == "f16":
            held = _lop3(w, pair, 0x00FF00FF, IN_F16, AND_OR)
            made.append(arithmetic(w, "sub.rn.f16x2", held, str(IN_F16)))
        else:
            low = _lop3(w, pair, 0x007F007F, IN_BF16, AND_OR)
            high = _lop3(w, pair, 0x00800080, IN_BF16, AND_OR)
            if not signed:
                low, high = (arithmetic(w, "sub.rn.bf16x2", b, str(IN_BF16)) for b in (low, high))
            made.append(arithmetic(w, f"{'sub' if signed else 'add'}.rn.bf16x2", low, high))
    return Registers(dtype, x.rows, x.columns, tuple(made))


def spread(w: Writer, pair: str) -> str:
    """Two bytes of an i16 in bytes 0 and 2 of an i32."""
    wide = w.value(f"zext i16 {pair} to i32")
    return w.binary("or", "i32", wide, w.binary("shl", "i32", wide, 8))


def gathered(w: Writer, apart: str) -> str:
    """The same back again, whatever lies between."""
    first = w.binary("and", "i32", apart, 0xFF)
    second = w.binary("and", "i32", w.binary("lshr", "i32", apart, 8), 0xFF00)
    return w.value(f"trunc i32 {w.binary('or', 'i32', first, second)} to i16")


def _lop3(w: Writer, x: str, mask: int, other: int, table: int) -> str:
    ptx = f"lop3.b32 $0, $1, {mask}, $2, {table};"
    return w.asm(ptx, "i32", "=r,r,r", [("i32", x), ("i32", str(other))], pure=True)
