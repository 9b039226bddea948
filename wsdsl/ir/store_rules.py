"""Rules of SCHEDULED kernels about stores by TMA: what four warps write is what they copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from wsdsl.ir.memory_ops import MakeTensorMap, StoreShared, TmaStore
from wsdsl.ir.op import Kernel
from wsdsl.ir.protocol_rules import Problem
from wsdsl.ir.target import SWIZZLE_SPAN
from wsdsl.ir.types import Fragment, Shared, Tensor


def joined_panels_are_transposed(kernel: Kernel) -> Iterator[Problem]:
    """A warp writes 32 bytes of each of their lines."""
    for op in kernel.ops:
        if isinstance(op, StoreShared) and op.joined:
            assert isinstance(op.value.type, Fragment)
            if not op.transposed or op.swizzle != "128B" or op.value.type.dtype.bits != 16:
                yield op, 'joined panels are transposed, of 16-bit elements and swizzle="128B"'


def boxes_lie_in_their_item(kernel: Kernel) -> Iterator[Problem]:
    """Of each warp, one behind the other in SMEM as in the tensor."""
    made = kernel.definers
    for op in kernel.ops:
        mapped = made.get(op.map) if isinstance(op, TmaStore) else None
        if not isinstance(op, TmaStore) or not isinstance(mapped, MakeTensorMap):
            continue
        assert isinstance(mapped.tensor.type, Tensor) and isinstance(op.shared.type, Shared)
        if not 0 <= op.row_dim < len(mapped.box):
            yield op, f"row_dim={op.row_dim} of a tensor of {len(mapped.box)} dimensions"
            continue
        rows, item = mapped.box[op.row_dim], op.shared.type.bytes
        if op.lines != rows:
            yield op, f"a warp's box has {rows} lines along row_dim, not {op.lines}"
        size = math.prod(mapped.box) * mapped.tensor.type.dtype.bytes
        apart = op.apart or item // 4
        if apart < size or 3 * apart + size > item:
            yield op, f"four boxes of {size} bytes, {apart} apart, are not in {item} bytes"
        if op.apart % (8 * SWIZZLE_SPAN[mapped.swizzle]):
            yield op, f"a panel begins at a multiple of {8 * SWIZZLE_SPAN[mapped.swizzle]} bytes"


RULES: tuple[Callable[[Kernel], Iterator[Problem]], ...] = (
    joined_panels_are_transposed,
    boxes_lie_in_their_item,
)
