"""Elements as the registers in which accesses to GMEM bring and take them."""

from __future__ import annotations

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
