"""Elements as the registers in which accesses to GMEM bring and take them."""

from collections.abc import Iterable, Sequence

from wsdsl.codegen.llvm_types import scalar_type
from wsdsl.codegen.writer import Writer
from wsdsl.ir.hardware.gmem_limits import ADDED_ATOMICALLY
from wsdsl.ir.types import DType

REDUCTIONS = {name: {"i32": "s32"}.get(name, name) for name in ADDED_ATOMICALLY}
"""The names of types that `red.global.add` can add."""


def from_bits(w: Writer, text: str, dtype: DType) -> str:
    """An element from the register that an access of its width fills."""
    match dtype.name:
        case "f32" | "tf32":
            return w.value(f"bitcast i32 {text} to float")
        case "f16" | "bf16":
            return w.value(f"bitcast i16 {text} to {scalar_type(dtype)}")
        case "bool":
            return w.compare("ne", text, 0, "i16")
        case _ if dtype.bits == 8:
            return w.value(f"trunc i16 {text} to i8")
        case _:
            return text


def bools_of(w: Writer, pairs: Iterable[str], dtype: DType) -> list[str]:
    """Elements of 8 bits from pairs of them, each in an i16."""
    bytes = [
        byte
        for pair in pairs
        for byte in (w.binary("and", "i16", pair, 255), w.binary("lshr", "i16", pair, 8))
    ]
    return [from_bits(w, byte, dtype) for byte in bytes]


def to_bits(w: Writer, text: str, dtype: DType) -> str:
    match dtype.name:
        case "f32" | "tf32":
            return w.value(f"bitcast float {text} to i32")
        case "f16" | "bf16":
            return w.value(f"bitcast {scalar_type(dtype)} {text} to i16")
        case _ if dtype.bits == 8:
            return w.value(f"zext {scalar_type(dtype)} {text} to i16")
        case _:
            return text


def joined(w: Writer, parts: Sequence[str]) -> str:
    """The word of adjacent elements as they were loaded, the first lowest; i16 if there are
    several.
    """
    if len(parts) == 1:
        return parts[0]
    word = w.value(f"zext i16 {parts[0]} to i32")
    for i, text in enumerate(parts[1:], 1):
        wide = w.value(f"zext i16 {text} to i32")
        word = w.binary("or", "i32", word, w.binary("shl", "i32", wide, 32 // len(parts) * i))
    return word


def halves_of_word(w: Writer, word: str) -> list[str]:
    """The two elements of 16 bits of an i32."""
    return [w.value(f"trunc i32 {x} to i16") for x in (word, w.binary("lshr", "i32", word, 16))]


def pack_halves(w: Writer, type: str, low: str, high: str) -> str:
    """Two elements of 16 bits in an i32."""
    pair = w.value(f"insertelement <2 x {type}> poison, {type} {low}, i32 0")
    pair = w.value(f"insertelement <2 x {type}> {pair}, {type} {high}, i32 1")
    return w.value(f"bitcast <2 x {type}> {pair} to i32")


# Halves of 32-bit registers.
AND_OR, AND_XOR = 0xEA, 0x6A
"""Truth tables of lop3: (a & b) | c, (a & b) ^ c."""


def twice(half: int) -> int:
    return half << 16 | half


def arithmetic(w: Writer, name: str, a: str, b: str) -> str:
    return w.asm_value(f"{name} $0, $1, $2;", [("i32", a), ("i32", b)], pure=True)


def lop3(w: Writer, x: str, mask: int, other: str | int, table: int) -> str:
    ptx = f"lop3.b32 $0, $1, {mask}, $2, {table};"
    return w.asm_value(ptx, [("i32", x), ("i32", str(other))], pure=True)


def spread(w: Writer, pair: str) -> str:
    """Two bytes of an i16 in bytes 0 and 2 of an i32."""
    wide = w.value(f"zext i16 {pair} to i32")
    return w.binary("or", "i32", wide, w.binary("shl", "i32", wide, 8))


def gathered(w: Writer, apart: str) -> str:
    """The inverse of `spread`, for any bits in bytes 1 and 3."""
    first = w.binary("and", "i32", apart, 0xFF)
    second = w.binary("and", "i32", w.binary("lshr", "i32", apart, 8), 0xFF00)
    return w.value(f"trunc i32 {w.binary('or', 'i32', first, second)} to i16")
