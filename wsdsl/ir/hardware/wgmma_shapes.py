"""Shapes of wgmma: types of operands, elements of K per instruction, and columns."""

from __future__ import annotations

from wsdsl.ir.types import F32, I32, DType

WIDTH_STEP = 8
"""Columns of N from one width of a launch to the next."""
ROWS = 64
MAX_COLUMNS = 256
COLUMN_STEP = 8
K_BYTES = 32
"""Of a line of each operand, that one instruction takes."""

PTX_NAMES = {
    "f16": "f16",
    "bf16": "bf16",
    "tf32": "tf32",
    "f8e4m3": "e4m3",
    "f8e5m2": "e5m2",
    "i8": "s8",
    "u8": "u8",
}
FAMILIES = (("f16",), ("bf16",), ("tf32",), ("f8e4m3", "f8e5m2"), ("i8", "u8"))
"""Types that one instruction may mix."""
OPERANDS = (
    "tensor cores multiply f16 by f16, bf16 by bf16, tf32 by tf32 (for f32 arrays), f8e4m3 or "
    "f8e5m2 by either, and i8 or u8 by either"
)


def sum_of(a: DType, b: DType) -> DType | None:
    """The accumulator's type; None where the tensor cores do not multiply the two."""
    if not any(a.name in family and b.name in family for family in FAMILIES):
        return None
    return I32 if a.is_integer else F32


def cast_to(a: DType, b: DType) -> str:
    """The type of operands that two types are best converted to."""
    if not (a.is_float or b.is_float):
        return "i8"
    return next((t for t in ("tf32", "bf16", "f16") if t in (a.name, b.name)), "bf16")


def k_step(dtype: DType) -> int:
    """Elements of the contraction that one instruction takes."""
    return dtype.count(K_BYTES)


def may_be_mn_major(dtype: DType) -> bool:
    """Other operands have the contraction as their contiguous axis."""
    return dtype.bits == 16


def is_fp8(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 8


def columns_fault(columns: int, dtype: DType) -> str:
    """Why an instruction of operands of `dtype` has no such width; empty if it has."""
    if not COLUMN_STEP <= columns <= MAX_COLUMNS:
        return f"wgmma needs {COLUMN_STEP} to {MAX_COLUMNS} columns, not {columns}"
    if columns % COLUMN_STEP:
        return f"wgmma needs {ROWS} rows and a multiple of {COLUMN_STEP} columns, not {columns}"
    if dtype.is_integer and columns > 32 and columns % 16:
        return f"wgmma of {dtype} needs 8, 16, 24 or 32 columns, or a multiple of 16, not {columns}"
    return ""
