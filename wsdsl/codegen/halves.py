"""A register as two halves of 16 bits: what is done to both at once."""

from __future__ import annotations

from wsdsl.codegen.writer import Writer

AND_OR, AND_XOR = 0xEA, 0x6A
"""What lop3 does: (a & b) | c, (a & b) ^ c."""


def twice(half: int) -> int:
    return half << 16 | half


def arithmetic(w: Writer, name: str, a: str, b: str) -> str:
    return w.asm(f"{name} $0, $1, $2;", "i32", "=r,r,r", [("i32", a), ("i32", b)], pure=True)


def lop3(w: Writer, x: str, mask: int, other: str | int, table: int) -> str:
    ptx = f"lop3.b32 $0, $1, {mask}, $2, {table};"
    return w.asm(ptx, "i32", "=r,r,r", [("i32", x), ("i32", str(other))], pure=True)


def spread(w: Writer, pair: str) -> str:
    """Two bytes of an i16 in bytes 0 and 2 of an i32."""
    wide = w.value(f"zext i16 {pair} to i32")
    return w.binary("or", "i32", wide, w.binary("shl", "i32", wide, 8))


def gathered(w: Writer, apart: str) -> str:
    """The same back again, whatever lies between."""
    first = w.binary("and", "i32", apart, 0xFF)
    second = w.binary("and", "i32", w.binary("lshr", "i32", apart, 8), 0xFF00)
    return w.value(f"trunc i32 {w.binary('or', 'i32', first, second)} to i16")
