"""Copy operands with TMA-incompatible rows to rows that begin at L2 cache lines.

A copy reads and writes the operand once more, at 1.3 to 2.3 TB/s on an H200; without it threads of
the kernel copy each tile for each CTA that reads it (`lowering/heuristics/padding.py` weighs that).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wsdsl.artifact.artifact import Access
from wsdsl.ir.hardware.gmem_limits import COPY_WORD, L2_LINE, whole_lines
from wsdsl.record import record
from wsdsl.runtime import driver
from wsdsl.runtime.arrays.views import ArrayView, normalise, tma_faults

MAX_PITCH = 2**31 - 1
"""Bytes from a row to the next that the driver takes."""


@record
class Padded:
    """`view` describes the copy, without an address yet. In the original, at `source`, a row has
    `width` bytes, and rows begin `pitch` bytes apart.
    """

    view: ArrayView
    source: int
    rows: int
    width: int
    pitch: int

    @property
    def line(self) -> int:
        """Bytes from a row of the copy to the next."""
        return whole_lines(self.width)

    @property
    def bytes(self) -> int:
        return self.rows * self.line

    def copy_to(self, address: int) -> Any:
        """The argument of `cuMemcpy2DAsync`."""
        cuda = driver.api()
        made = cuda.CUDA_MEMCPY2D()
        made.srcMemoryType = made.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        made.srcDevice, made.srcPitch = self.source, self.pitch
        made.dstDevice, made.dstPitch = address, self.line
        made.WidthInBytes, made.Height = self.width, self.rows
        return made


def padded(view: ArrayView) -> Padded | None:
    """Rows in the order of memory; None where they are not evenly apart, overlap, or are shorter
    than a line, and for XLA. An axis of stride 0 is copied once.
    """
    view = normalise(view)
    if view.is_empty or not view.shape or view.dtype.bits < 8 or view.framework == "xla":
        return None
    size = view.dtype.bytes
    width = view.shape[-1] * size
    line = whole_lines(width) // size
    rows, pitch, strides = 1, width, [1] * len(view.shape)
    outer = range(len(view.shape) - 1)
    for axis in sorted(outer, key=lambda i: (view.strides[i], view.shape[i])):
        stride, num = view.strides[axis], view.shape[axis]
        if stride == 0:
            strides[axis] = 0
            continue
        strides[axis] = line * rows
        if num == 1:
            continue
        if rows == 1:
            pitch = stride * size
        elif stride * size != pitch * rows:
            return None
        rows *= num
    if pitch < width or width < L2_LINE or max(pitch, line * size) > MAX_PITCH:
        return None
    copy = replace(view, pointer=0, strides=tuple(strides))
    return None if tma_faults(copy) else Padded(copy, view.pointer, rows, width, pitch)


def padded_array(array: Any) -> Any:
    """The copy of a NumPy array."""
    import numpy as np

    *outer, width = array.shape
    size = array.dtype.itemsize
    made = np.zeros((*outer, whole_lines(width * size) // size), array.dtype)
    made[..., :width] = array
    return made[..., :width]


def to_pad(access: Access, views: Mapping[str, ArrayView]) -> list[str]:
    """Names of tensors that a kernel reads by TMA, does not write, and no tensor map describes."""
    return [name for name in sorted(access.mapped - access.writes) if tma_faults(views[name])]


def copied_singly(view: ArrayView) -> bool:
    """Whether threads could not copy it by words."""
    strides = (s * view.dtype.bytes for s in normalise(view).strides[:-1])
    return any(at % COPY_WORD for at in (view.pointer, *strides))
