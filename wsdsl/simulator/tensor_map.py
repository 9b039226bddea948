"""Tensor maps: boxes of a tensor in global memory, with the async proxy's rules for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wsdsl.ir.target import SWIZZLE_SPAN
from wsdsl.simulator.arithmetic import Array
from wsdsl.simulator.arrays import GlobalTensor

MAX_BOX = 256


@dataclass(frozen=True)
class TensorMapValue:
    """A tensor map; extents in the tensor's order."""

    tensor: GlobalTensor
    box: tuple[int, ...]
    swizzle: str

    @property
    def line_bytes(self) -> int:
        return self.box[-1] * self.tensor.dtype.bytes

    @property
    def bytes(self) -> int:
        return math.prod(self.box) * self.tensor.dtype.bytes

    def fault(self) -> str:
        """What TMA would refuse, "" if nothing."""
        if len(self.box) != self.tensor.array.ndim or not 1 <= len(self.box) <= 5:
            return f"a box of {len(self.box)} dimensions for one of {self.tensor.array.ndim}"
        if any(not 1 <= extent <= MAX_BOX for extent in self.box):
            return f"box {self.box}: each extent is 1 to {MAX_BOX}"
        span = SWIZZLE_SPAN[self.swizzle]
        if self.line_bytes != span:
            return (
                f"a box line of {self.line_bytes} bytes with swizzle {self.swizzle}, whose lines "
                f"are {span} bytes"
            )
        return ""

    def _overlap(
        self, coordinates: tuple[int, ...]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
        """Where the box lies in the tensor and that part in the box; None if all is outside."""
        inside: list[slice] = []
        part: list[slice] = []
        for at, extent, size in zip(coordinates, self.box, self.tensor.array.shape, strict=True):
            first, last = max(0, at), min(size, at + extent)
            if first >= last:
                return None
            inside.append(slice(first, last))
            part.append(slice(first - at, last - at))
        return tuple(inside), tuple(part)

    def read(self, coordinates: tuple[int, ...]) -> Array:
        """The box as lines; elements outside the tensor are 0."""
        box = np.zeros(self.box, self.tensor.array.dtype)
        overlap = self._overlap(coordinates)
        if overlap is not None:
            inside, part = overlap
            box[part] = self.tensor.array[inside]
        return box.reshape(-1, self.box[-1])

    def write(self, coordinates: tuple[int, ...], lines: Array) -> None:
        """Elements outside the tensor are dropped."""
        overlap = self._overlap(coordinates)
        if overlap is not None:
            inside, part = overlap
            box = lines.view(self.tensor.array.dtype).reshape(self.box)
            self.tensor.array[inside] = box[part]
