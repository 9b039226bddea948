"""SMEM descriptors of the operands of wgmma and tcgen05."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.hardware.wgmma_shapes import K_BYTES, k_step
from wsdsl.ir.ops import SmemDescriptor
from wsdsl.ir.types import DTYPES

MODE_BITS = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
VERSION = 1 << 14
"""A bit of the high half of descriptors for tcgen05, in addition to wgmma's fields."""
ATOM = 128 >> 4
"""The high half of a descriptor of atoms: from eight rows to the next eight, in units of 16
bytes, and no swizzle."""
START_MASK = 0x3FFF
"""Above these bits a shared address carries the CTA's rank in its cluster."""


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """`leading` and `stride` offsets in bytes; `steps[i]`: bytes from the start to step i of K;
    `per_start`: bytes by which one element along M or N moves the start; `start_unit`: the start
    must be a multiple of this number of elements.
    """

    leading: int
    stride: int
    steps: tuple[int, ...]
    per_start: int
    start_unit: int
    high: int


def layout(
    rows: int, columns: int, swizzle: str, k_major: bool, element_bytes: int = 2
) -> OperandLayout:
    """An operand of `rows` x `columns` elements; k-major: columns are the contraction."""
    span = SWIZZLE_SPAN[swizzle]
    panel = rows * span
    eight_lines = 8 * span
    if k_major:
        # 8-row groups follow each other in a panel. Without swizzle a k step reads two panels.
        leading = panel if swizzle == "none" else 16
        stride = eight_lines
        count = columns * element_bytes // K_BYTES
        steps = tuple(i * K_BYTES // span * panel + i * K_BYTES % span for i in range(count))
        per_start, start_unit = span, 8
    else:
        # Without swizzle the two offsets swap their meaning.
        leading, stride = (eight_lines, panel) if swizzle == "none" else (panel, eight_lines)
        steps = tuple(i * 2 * eight_lines for i in range(rows // 16))
        per_start, start_unit = rows * element_bytes, span // element_bytes
    high = stride >> 4 | MODE_BITS[swizzle] << 30
    return OperandLayout(leading, stride, steps, per_start, start_unit, high)


def layout_of(op: SmemDescriptor) -> OperandLayout:
    """From the first step that it has."""
    dtype = DTYPES[op.dtype]
    # Of halves of bytes lines run along K, and are told in bytes.
    columns = dtype.size(op.columns) if dtype.bits < 8 else op.columns
    held = layout(op.rows, columns, op.swizzle, op.k_major, dtype.bytes)
    return replace(held, steps=held.steps[op.first // k_step(dtype) :])


def low_half(layout: OperandLayout, address: int) -> int:
    """The low half that codegen computes at run time, for an address that is known."""
    return address >> 4 & START_MASK | layout.leading >> 4 << 16
