"""Shapes of tcgen05.mma, the size of tensor memory, and the fields of its instruction
descriptor. Types of operands and the depth of an instruction are those of wgmma.
"""

from __future__ import annotations

from wsdsl.ir.hardware.wgmma_shapes import MAX_COLUMNS, sum_of
from wsdsl.ir.types import DType

LANES = 128
COLUMNS = 512
"""Of tensor memory."""
LEAST_ALLOCATED = 32
"""Columns; a power of two of them is allocated."""
WARP_LANES = 32
"""That a warp of a warpgroup reads."""
CELL_BITS = 32
STORED_BITS = (16, 32)
"""Of elements that threads write to tensor memory."""
ADDRESS_BYTES = 4
ROWS = (64, 128)
"""Of a product of one CTA."""
COLUMN_STEP = {64: 8, 128: 16}
"""Columns of a product, by its rows. (PTX allows 8 for 128 rows; not all libraries do.)"""
PAIR_ROWS, PAIR_STEP = 128, 32
"""Of an MMA of two CTAs (cta_group::2), in each of them; and its columns. (PTX also has 64 rows,
in another layout, and for most types steps of 16 columns; by 32, each CTA's half of the operand is
a multiple of 16 rows, and all types and layouts are taken.)"""
KINDS = {
    "f16": "f16",
    "bf16": "f16",
    "tf32": "tf32",
    "f8e4m3": "f8f6f4",
    "f8e5m2": "f8f6f4",
    "i8": "i8",
    "u8": "i8",
}
"""`.kind` of the instruction, by the operands' type."""
TYPE_CODES = {"f16": 0, "bf16": 1, "tf32": 2, "f8e4m3": 0, "f8e5m2": 1, "u8": 0, "i8": 1}
SUM_CODES = {"f32": 1, "i32": 2}


def shape_fault(rows: int, columns: int, dtype: DType, cta_group: int = 1) -> str:
    """Return the fault of an MMA of `rows` (of each CTA) x `columns` of `dtype`; empty if there
    is one."""
    if cta_group > 1:
        return pair_fault(rows, columns)
    if rows not in ROWS:
        return f"tcgen05.mma needs 64 or 128 rows, not {rows}"
    step = COLUMN_STEP[rows]
    if not step <= columns <= MAX_COLUMNS or columns % step:
        return (
            f"tcgen05.mma of {rows} rows needs {step} to {MAX_COLUMNS} columns in steps of {step}"
        )
    if dtype.is_integer and columns > 32 and columns % 16:
        return f"tcgen05.mma of {dtype} needs 8, 16, 24 or 32 columns, or a multiple of 16"
    return ""


def pair_fault(rows: int, columns: int) -> str:
    """The same of two CTAs."""
    if rows != PAIR_ROWS:
        return f"a CTA pair needs {PAIR_ROWS} rows per CTA, not {rows}"
    if not PAIR_STEP <= columns <= MAX_COLUMNS or columns % PAIR_STEP:
        return f"a CTA pair needs {PAIR_STEP} to {MAX_COLUMNS} columns in steps of {PAIR_STEP}"
    return ""


def instruction_descriptor(
    a: DType, b: DType, rows: int, columns: int, a_k_major: bool = True, b_k_major: bool = True
) -> int:
    """Of a dense product that is neither saturated nor negated; `rows` of all CTAs."""
    total = sum_of(a, b)
    assert total is not None
    fields = (
        (SUM_CODES[total.name], 4),
        (TYPE_CODES[a.name], 7),
        (TYPE_CODES[b.name], 10),
        (int(not a_k_major), 15),
        (int(not b_k_major), 16),
        (columns >> 3, 17),
        (rows >> 4, 24),
    )
    return sum(value << at for value, at in fields)


def cell_columns(dtype: DType, elements: int) -> int:
    """Return the columns of elements of a row: one per cell of 32 bits, or two of 16 bits."""
    return -(-elements * dtype.bits // CELL_BITS)


def allocated(columns: int) -> int:
    """Return the smallest allocation that has these columns."""
    return max(LEAST_ALLOCATED, 1 << (columns - 1).bit_length())
