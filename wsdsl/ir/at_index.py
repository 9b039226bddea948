"""What loads, stores and lookups have in common: a tensor, and an index into it."""

from __future__ import annotations

from wsdsl.ir.op import Value
from wsdsl.ir.types import Axis, DType


class AtIndex:
    """Of ops about the elements of `tensor` at `index`."""

    tensor: Value
    index: tuple[Value, ...]

    @property
    def dtype(self) -> DType:
        return self.tensor.as_tensor.dtype

    @property
    def packed(self) -> bool:
        return self.tensor.as_tensor.packed

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The entries of the index that are axes."""
        return tuple([v.type for v in self.index if isinstance(v.type, Axis)])

    @property
    def last(self) -> Axis | None:
        """What runs along the tensor's contiguous dimension, if that is an axis."""
        last = self.index[-1].type if self.index else None
        return last if isinstance(last, Axis) else None
