"""Copies of operands whose rows TMA can not take, to rows that begin where lines of L2 do.

A copy reads and writes the operand once more, at 1.3 to 2.3 TB/s on an H200, where threads of the
kernel would copy each tile for each CTA that wants it (`lowering/choice/padding.py` weighs that).
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.runtime import driver
from wsdsl.runtime.access import Access
from wsdsl.runtime.bind import tma_faults
from wsdsl.runtime.device import Context, context_for, current, may_allocate
from wsdsl.runtime.packing import MapAt, PackedArguments
from wsdsl.runtime.views import ArrayView, normalise

LINE = 128
WORD = 4
MAX_PITCH = 2**31 - 1
"""Bytes from a row to the next that the driver takes."""
KEPT_BYTES = 1 << 30
"""Of the memory for copies, what is not given back to the card while nothing uses it."""
MAX_KEPT = 16
"""Launches of a prepared call, by where their copies lie, whose arguments are remembered."""


@dataclass(frozen=True, slots=True)
class Padded:
    """`view` is of the copy, without an address yet; a row has `width` bytes, and begins `pitch`
    bytes behind the one before, in the original at `source`.
    """

    view: ArrayView
    source: int
    rows: int
    width: int
    pitch: int

    @property
    def line(self) -> int:
        """Bytes from a row of the copy to the next."""
        return -(-self.width // LINE) * LINE

    @property
    def bytes(self) -> int:
        return self.rows * self.line

    def copy_to(self, address: int) -> Any:
        """What `cuMemcpy2DAsync` takes."""
        cuda = driver.api()
        made = cuda.CUDA_MEMCPY2D()
        made.srcMemoryType = made.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        made.srcDevice, made.srcPitch = self.source, self.pitch
        made.dstDevice, made.dstPitch = address, self.line
        made.WidthInBytes, made.Height = self.width, self.rows
        return made


def padded(view: ArrayView) -> Padded | None:
    """Rows in the order of memory; None where they are not evenly apart, overlap, or are shorter
    than a line. An axis of stride 0 is copied once.
    """
    view = normalise(view)
    if view.is_empty or not view.shape or view.dtype.bits < 8:
        return None
    size = view.dtype.bytes
    width = view.shape[-1] * size
    line = -(-width // LINE) * LINE // size
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
    if pitch < width or width < LINE or max(pitch, line * size) > MAX_PITCH:
        return None
    copy = replace(view, pointer=0, strides=tuple(strides))
    return None if tma_faults(copy) else Padded(copy, view.pointer, rows, width, pitch)


def padded_array(array: Any) -> Any:
    """The copy of a NumPy array."""
    import numpy as np

    *outer, width = array.shape
    size = array.dtype.itemsize
    made = np.zeros((*outer, -(-width * size // LINE) * LINE // size), array.dtype)
    made[..., :width] = array
    return made[..., :width]


def to_pad(access: Access, views: Mapping[str, ArrayView]) -> list[str]:
    """What a kernel only reads, by tensor maps that can not describe it."""
    return [name for name in sorted(access.mapped - access.writes) if tma_faults(views[name])]


def copied_singly(view: ArrayView) -> bool:
    """Whether threads could not copy it by words."""
    strides = (s * view.dtype.bytes for s in normalise(view).strides[:-1])
    return any(at % WORD for at in (view.pointer, *strides))


def fits_in_memory(copies: list[Padded], device: str) -> bool:
    """Whether the card has twice as much to spare."""
    with current(context_for(int(device.removeprefix("cuda:")))):
        free, _ = driver.call("cuMemGetInfo")
    return 2 * sum(copy.bytes for copy in copies) <= free


class Copies:
    """The copies of a prepared call, made in front of each launch, in memory that is given back
    behind it, in the order of the stream. So launches on other streams, or by other threads, have
    memory of their own, and in a graph it belongs to the graph.
    """

    def __init__(self, context: Context, padded: Mapping[str, Padded], map_at: MapAt) -> None:
        self._context, self._padded, self._map_at = context, padded, map_at
        self._pool = _pool(context)
        self._kept: dict[tuple[int, ...], tuple[PackedArguments, tuple[Any, ...]]] = {}

    @contextmanager
    def made(self, packed: PackedArguments, stream: int) -> Generator[PackedArguments]:
        """Arguments that lead to the copies, for a launch inside."""
        held: list[int] = []
        with current(self._context):
            try:
                for copy in self._padded.values():
                    # One by one: what there is when memory runs out is given back.
                    held.append(self._allocate(copy.bytes, stream))  # noqa: PERF401
                arguments, copies = self._arguments(packed, held)
                for copy in copies:
                    driver.call("cuMemcpy2DAsync", copy, stream)
                yield arguments
            finally:
                for address in held:
                    driver.call("cuMemFreeAsync", address, stream)

    def forget(self) -> None:
        """The arguments have changed."""
        self._kept.clear()

    def _allocate(self, bytes: int, stream: int) -> int:
        try:
            return int(driver.call("cuMemAllocFromPoolAsync", bytes, self._pool, stream))
        except driver.DriverError as error:
            if error.code != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            message = f"there are no {bytes} bytes for a copy of an operand that TMA can not take"
            hint = "free memory, or give operands whose rows begin at multiples of 16 bytes"
            raise LaunchError(Finding(message, hint=hint)) from None

    def _arguments(
        self, packed: PackedArguments, held: list[int]
    ) -> tuple[PackedArguments, tuple[Any, ...]]:
        key = (packed.address, *held)
        found = self._kept.get(key)
        if found is None:
            pointers = dict(zip(self._padded, held, strict=True))
            arguments = packed.with_pointers(pointers, packed, self._map_at)
            copies = (copy.copy_to(pointers[name]) for name, copy in self._padded.items())
            found = arguments, tuple(copies)
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = found
        return found


_pools: dict[int, Any] = {}
_pool_lock = threading.Lock()


def _pool(context: Context) -> Any:
    """The memory of all copies on a card."""
    with _pool_lock:
        found = _pools.get(context.id)
        if found is None:
            cuda = driver.api()
            wanted = cuda.CUmemPoolProps()
            wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            wanted.location.id = context.device.index
            threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            with current(context), may_allocate():
                found = driver.call("cuMemPoolCreate", wanted)
                driver.call("cuMemPoolSetAttribute", found, threshold, cuda.cuuint64_t(KEPT_BYTES))
            _pools[context.id] = found
        return found
