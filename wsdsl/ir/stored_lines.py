"""Where the lines lie that `store_shared` writes."""

from __future__ import annotations

from wsdsl.ir.op import Value
from wsdsl.ir.swizzle import SWIZZLE_SPAN


class StoredLines:
    """What follows from its attributes."""

    value: Value
    swizzle: str
    transposed: bool
    joined: bool
    half: int

    @property
    def before(self) -> int:
        """Bytes of the warp's panel in front of its rows."""
        kind = self.value.as_fragment
        return 16 * kind.dtype.size(kind.columns) if self.half == 2 and not self.transposed else 0

    @property
    def along(self) -> int:
        """Bytes of each line in front of its elements."""
        kind = self.value.as_fragment
        return kind.dtype.size(16) if self.half == 2 and self.transposed else 0

    @property
    def line(self) -> int:
        """Elements of a line, if lines are columns."""
        return 64 if self.joined else 32 if self.half else 16

    @property
    def panels(self) -> int:
        """Panels that the fragment reaches, of a tile."""
        kind = self.value.as_fragment
        return -(-kind.dtype.size(kind.columns) // SWIZZLE_SPAN[self.swizzle])
