"""Elements as the registers in which accesses to GMEM bring and take them."""

from __future__ import annotations

from collections.abc import Iterable

from wsdsl.codegen.convert_type import scalar_type
from wsdsl.codegen.writer import Writer
from wsdsl.ir.global_memory import ADDED_ATOMICALLY
from wsdsl.ir.types import DType

REDUCTIONS = {name: {"i32": "s32"}.get(name, name) for name in ADDED_ATOMICALLY}
"""What `red.global.add` calls the types that it can add."""


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
    """Elements of bytes, of which an i16 has two."""
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
