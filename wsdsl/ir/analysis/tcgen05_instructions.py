"""The instructions of a product on tensor memory, with the fields of their descriptors: codegen
writes them, and the PTX is checked against them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from wsdsl.ir.hardware.block_scale_factors import ROWS, kind_of, scale_columns, scaled_descriptor
from wsdsl.ir.hardware.tcgen05_shapes import KINDS, instruction_descriptor
from wsdsl.ir.hardware.wgmma_shapes import k_step
from wsdsl.ir.ops import Tcgen05Mma, Tcgen05St
from wsdsl.ir.types import DTYPES


class Instruction(NamedTuple):
    """`.kind` and what follows it, the instruction descriptor, and the columns of a stage of scales
    from which on the scales of both operands lie, if they have any.
    """

    kind: str
    descriptor: int
    a_scale: int
    b_scale: int
    is_scaled: bool


STORED = {"16x256b": 8, "16x128b": 4}
"""Columns of an `.x1`, by the shape of a store: lanes have of these columns what they have of 8
elements of an accumulator, of 32 bits or of 16.
"""
WIDEST = 128
"""Columns that one instruction loads or stores."""


def stored_shape(op: Tcgen05St) -> str:
    return "16x256b" if op.value.as_fragment.dtype.bits == 32 else "16x128b"


def at_once(columns: int) -> Iterator[tuple[int, int]]:
    """Where each instruction begins that loads or stores `columns`, and how many it takes: a power
    of two.
    """
    first = 0
    while first < columns:
        width = min(WIDEST, 1 << (columns - first).bit_length() - 1)
        yield first, width
        first += width


def instructions(op: Tcgen05Mma) -> list[Instruction]:
    """In their order."""
    a, b = (DTYPES[name] for name in op.dtypes)
    if op.scales is None:
        rows = op.cta_group * op.rows
        how = instruction_descriptor(a, b, rows, op.columns, op.a_k_major, op.b_k_major)
        return [Instruction(KINDS[op.dtype], how, 0, 0, False)] * (op.k // k_step(a))
    kind = kind_of(a.name, b.name, op.scale_dtype, op.block)
    assert kind is not None
    found = list[Instruction]()
    for step in range(op.k // kind.k):
        word, byte = kind.scale_of(step)
        how = scaled_descriptor(kind, a, b, op.columns, byte, op.cta_group * ROWS)
        columns = (
            op.a_scale + scale_columns(op.rows, word),
            op.b_scale + scale_columns(op.columns, word),
        )
        found.append(Instruction(kind.ptx, how, *columns, True))
    return found
