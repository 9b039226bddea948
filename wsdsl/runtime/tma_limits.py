"""Which arrays a tensor map can describe."""

from __future__ import annotations

from wsdsl.ir.tma import TMA_ALIGN
from wsdsl.runtime.views import ArrayView, normalise

TMA_MAX_STRIDE = 2**40
TMA_MAX_RANK = 5


def row_strides(view: ArrayView) -> list[tuple[int, int]]:
    """(axis, stride in bytes) of the axes but the last that have more than one element."""
    strides = normalise(view).strides
    return [
        (axis, strides[axis] * view.dtype.bits // 8)
        for axis in range(len(view.shape) - 1)
        if view.shape[axis] > 1
    ]


def tma_faults(view: ArrayView, *, written: bool = False) -> list[str]:
    """Why no tensor map can describe the array; empty where one can.

    A TMA store writes whole 16 bytes: what lies between the end of a row and the next multiple
    would be overwritten (seen on an H200, in no documentation). A stride of 0, as a broadcast has,
    is one like others; nobody writes there.
    """
    faults: list[str] = []
    if not 1 <= len(view.shape) <= TMA_MAX_RANK:
        faults.append(f"rank is {len(view.shape)}; TMA takes 1 to {TMA_MAX_RANK}")
    if view.is_empty:
        return faults
    row = view.shape[-1] * view.dtype.bits // 8 if view.shape else 0
    if written and row % TMA_ALIGN:
        faults.append(f"rows are {row} bytes long; a TMA store writes multiples of 16")
    if view.pointer % TMA_ALIGN:
        faults.append(f"the address is {view.pointer:#x}; TMA needs a multiple of 16 bytes")
    for axis, stride in row_strides(view):
        if stride % TMA_ALIGN:
            faults.append(f"the stride of axis {axis} is {stride} bytes; TMA needs multiples of 16")
        elif not 0 <= stride < TMA_MAX_STRIDE:
            faults.append(f"the stride of axis {axis} is {stride} bytes; TMA needs 0 to 2^40 - 16")
    return faults
