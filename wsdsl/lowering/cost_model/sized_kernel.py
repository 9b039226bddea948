"""A kernel at given sizes: extents of axes, trips of loops and bytes of tensors."""

import math
from collections.abc import Collection, Mapping, Sequence

from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import DimLoop, ForTiles
from wsdsl.ir.types import Axis, Role, Sizes, Tensor
from wsdsl.lowering.axes import axes_of, groups_around, output_nest, ragged_loop
from wsdsl.lowering.batch_coarsening import taken_in_turns
from wsdsl.lowering.passes.fit_last_tiles import units_within
from wsdsl.rates import rates_of

UNKNOWN_SIZE = 8192
"""The assumed size of a dimension whose size is unknown."""
Amount = tuple[float, tuple[str, ...]]
"""An amount per element of a tile along these axes."""
Walked = tuple[str, int]
"""The axis of a loop ("" without an axis), and the loop's extent."""
ANY = -1
"""An extent that equals the tile's, in steps of one."""


def elements(axes: tuple[str, ...], tile: Sizes) -> int:
    """Count the elements of a tile along these axes."""
    return math.prod(map(tile.__getitem__, axes))


def trips(loops: Sequence[Walked], tile: Sizes) -> int:
    """Count the iterations of nested loops over tiles."""
    found = 1
    for axis, size in loops:
        own = tile.get(axis, 1) if axis else 1
        found *= own if size == ANY else -(-size // (own or 1))
    return found


def total(amounts: Sequence[Amount], tile: Sizes) -> float:
    return sum([each * elements(axes, tile) for each, axes in amounts])


class SizedKernel:
    """`singly`: tensors that threads copy element by element, in addition to tensors whose rows
    require it; `ragged`: elements along an axis per trip of its loop, if not the dimension's size.
    """

    def __init__(
        self,
        kernel: Kernel,
        sizes: Sizes,
        singly: Collection[str] = (),
        ragged: Mapping[str, int] = {},
    ) -> None:
        self.kernel, self.sizes = kernel, dict(kernel.sizes) | dict(sizes)
        self.ragged = {**self._equal_parts(), **ragged}
        self.target, self.rates = kernel.target, rates_of(kernel.target)
        self.roles: dict[str, Role] = {name: axis.role for name, axis in axes_of(kernel).items()}
        (nest, self.body), self.in_turns = output_nest(kernel), taken_in_turns(kernel)
        self.nest = list[DimLoop](nest)
        self.outer = [*map(self.walked, self.nest)]
        self.within = units_within(kernel)
        self.copied, self.padded, self.singly = kernel.unaligned, kernel.padded, singly

    def _equal_parts(self) -> dict[str, int]:
        """The extents of the ragged loop of the output, and of others over parts of its dimension,
        if groups are equal parts of that.
        """
        apart = (op for op in self.kernel.of(ForTiles) if op.one_cta)
        if (ragged := ragged_loop(self.kernel) or next(apart, None)) is None:
            return {}
        around = groups_around(self.kernel, ragged)
        groups = math.prod(self.sizes.get(group.dim, 1) for group in around)
        part = -(-self.size(ragged.dim) // max(1, groups))
        loops = (op for op in self.kernel.of(ForTiles) if walks_a_part(op))
        return {op.index.as_axis.name: part for op in loops if op.dim == ragged.dim}

    def size(self, dim: str | int) -> int:
        return dim if isinstance(dim, int) else self.sizes.get(dim, UNKNOWN_SIZE)

    def num_bytes(self, kind: Tensor) -> float:
        return math.prod(self.size(d) for d in kind.dims) * kind.dtype.bits / 8

    def walked(self, loop: DimLoop) -> Walked:
        own = loop.index.type.name if isinstance(loop.index.type, Axis) else ""
        size = self.ragged.get(own, self.size(loop.dim))
        return loop.index.name if loop == self.in_turns else own, size

    def trips(self, loop: DimLoop, tile: Sizes) -> int:
        return trips((self.walked(loop),), tile)

    def num_tiles(self, tile: Sizes) -> int:
        return trips(self.outer, tile)

    def places(self, axis: str, tile: Sizes) -> int:
        """Count the tiles along an axis of the output."""
        return trips([walked for walked in self.outer if walked[0] == axis][:1], tile)
