"""Tensor maps: boxes of a tensor in global memory, with the async proxy's rules for them."""

import math
from dataclasses import dataclass

import numpy as np

from wsdsl.ir.hardware.swizzle import PACKED_LINES, PACKED_SPAN, SWIZZLE_SPAN
from wsdsl.ir.hardware.tma_box import TMA_ALIGN, box_fault
from wsdsl.lazy import cached_property
from wsdsl.simulator.reference.arithmetic import SMALL_MASK, Array, added
from wsdsl.simulator.reference.bound_arrays import GlobalTensor, bytes_of, elements_of
from wsdsl.simulator.state.smem_bytes import Region, tile

OF_THEIR_OWN = ("i4", "u4", *SMALL_MASK)


@dataclass(frozen=True, eq=False)
class TensorMapValue:
    """A tensor map; extents in the tensor's order."""

    tensor: GlobalTensor
    box: tuple[int, ...]
    swizzle: str

    @property
    def bytes(self) -> int:
        return self.tensor.dtype.size(math.prod(self.box))

    @property
    def in_shared(self) -> tuple[int, int]:
        """Lines of a span that it takes in SMEM, and their bytes: without swizzle all of it lies
        one after another.
        """
        span = SWIZZLE_SPAN[self.swizzle]
        return self.bytes // span, span

    def region(self, start: int) -> Region:
        """Return the box in SMEM."""
        return tile(start, *self.in_shared, self.swizzle)

    def fault(self) -> str:
        """The reason why TMA rejects the map, or ""."""
        array, dtype = self.tensor.array, self.tensor.dtype
        return box_fault(self.box, array.ndim, dtype, self.swizzle) or self._address_fault()

    def _address_fault(self) -> str:
        array = self.tensor.array
        # Elements of 4 and 6 bits are a copy here: their addresses are not the caller's.
        if not array.size or self.tensor.dtype.name in OF_THEIR_OWN:
            return ""
        if array.ctypes.data % TMA_ALIGN:
            told = f"its address is not a multiple of {TMA_ALIGN} bytes"
            return f"TMA cannot access {self.tensor.name}: {told}"
        for axis, stride in enumerate(array.strides[:-1]):
            if array.shape[axis] > 1 and stride % TMA_ALIGN:
                return (
                    f"TMA cannot access {self.tensor.name}: the stride of axis {axis} is {stride} "
                    f"bytes, not a multiple of {TMA_ALIGN}"
                )
        return ""

    def misplaced(self, coordinates: tuple[int, ...]) -> str:
        """Why TMA cannot copy the box there; a GPU says "illegal instruction"."""
        if self.swizzle in PACKED_SPAN:
            amid = any(at % PACKED_LINES for at in coordinates[-2:])
            told = f"TMA copies whole blocks of {self.tensor.name}: {coordinates} is within one"
            return told if amid else ""
        start = coordinates[-1] * self.tensor.dtype.bits // 8
        if start % TMA_ALIGN == 0:
            return ""
        return (
            f"a box of {self.tensor.name} that begins at element {coordinates[-1]} of a row, byte "
            f"{start}, is misaligned: TMA needs a multiple of {TMA_ALIGN}"
        )

    @cached_property
    def _to_units(self) -> tuple[Array, bool] | None:
        """The tensor with its rows made longer, to whole units, where they are not: a store writes
        what lies there as well. And whether the array that it is a part of holds all of that.
        """
        array = self.tensor.array
        over = array.shape[-1] * array.itemsize % TMA_ALIGN
        if not over or not array.size:
            return None
        longer = *array.shape[:-1], array.shape[-1] + (TMA_ALIGN - over) // array.itemsize
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        end = owner.ctypes.data + owner.nbytes
        last = sum((n - 1) * s for n, s in zip(longer, array.strides, strict=True))
        fits = array.ctypes.data + last + array.itemsize <= end
        return np.lib.stride_tricks.as_strided(array, longer, array.strides), fits

    def spills(self, coordinates: tuple[int, ...]) -> str:
        """Why a store there would write past the end of the tensor's memory."""
        if self._to_units is None or self._to_units[1]:
            return ""
        if self.inside(coordinates)[-1].stop < self.tensor.array.shape[-1]:
            return ""
        row = self.tensor.array.shape[-1] * self.tensor.array.itemsize
        return (
            f"a TMA store writes whole {TMA_ALIGN} bytes, and rows of {self.tensor.name} have "
            f"{row}: it writes past the end of the tensor"
        )

    def inside(self, coordinates: tuple[int, ...]) -> tuple[slice, ...]:
        """The part of the tensor that the box takes; empty slices if all is outside."""
        overlap = self._overlap(coordinates, self.tensor.array.shape)
        return (slice(0, 0),) * len(self.box) if overlap is None else overlap[0]

    def _overlap(
        self, coordinates: tuple[int, ...], shape: tuple[int, ...]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
        """Where the box lies in the tensor and that part in the box; None if all is outside."""
        inside: list[slice] = []
        part: list[slice] = []
        for at, extent, size in zip(coordinates, self.box, shape, strict=True):
            first, last = max(0, at), min(size, at + extent)
            if first >= last:
                return None
            inside.append(slice(first, last))
            part.append(slice(first - at, last - at))
        return tuple(inside), tuple(part)

    def read(self, coordinates: tuple[int, ...]) -> Array:
        """The box as lines of bytes; elements outside the tensor are 0."""
        box = np.zeros(self.box, self.tensor.array.dtype)
        overlap = self._overlap(coordinates, self.tensor.array.shape)
        if overlap is not None:
            inside, part = overlap
            box[part] = self.tensor.array[inside]
        return bytes_of(box.reshape(-1, self.box[-1]), self.tensor.dtype)

    def write(
        self,
        coordinates: tuple[int, ...],
        lines: Array,
        add: bool = False,
        whole_units: bool = True,
    ) -> None:
        """Elements outside the tensor are dropped; by TMA, `whole_units`: but for the last unit of
        each row."""
        target = self.tensor.array
        if whole_units and self._to_units is not None:
            target = self._to_units[0]
        overlap = self._overlap(coordinates, target.shape)
        if overlap is not None:
            inside, part = overlap
            box = elements_of(lines, self.tensor.dtype).view(target.dtype).reshape(self.box)
            if add:
                target[inside] = added(target[inside], box[part], self.tensor.dtype)
            else:
                target[inside] = box[part]
