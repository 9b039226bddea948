"""TILE: the computation of a kernel. Loops, loads, contractions, maps, reductions and stores.

`constant`, `dim_size`, `map`, `cast`, `if` and `yield` serve the later levels too, where the values
are scalars or fragments.
"""

from __future__ import annotations

from wsdsl.ir.effects import Access, Effects
from wsdsl.ir.op import TILE, TILES, Makers, OneResult, Op, Region, Unary, Value, binds, op_class
from wsdsl.ir.ops.control import Loop
from wsdsl.ir.types import Axis, DType, SharedTile, Tile


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
        """The axis along the tensor's contiguous dimension, if one is."""
        last = self.index[-1].type if self.index else None
        return last if isinstance(last, Axis) else None


class DimLoop(Loop):
    """Base of loops over a dimension: `for_tiles` and `for_each`."""

    dim: str


@op_class(TILES)
class ForTiles(DimLoop):
    """Iterate over a dimension in tiles; `index` is the axis, and represents the current tile.

    `init` are the carried variables' first values, `args` their names in the body, which ends in a
    `yield` of the next ones; `result` are the last. Without carried variables the tiles are
    independent of each other. With `start`, `stop` (i32 scalars) only that part of the dimension,
    with `every` (i32) only each `every`-th tile of it; with `offset` (i32) each tile begins
    `offset` elements later.

    With `within` > 0 the last tile of a dimension that is larger than a tile ends with it, rounded
    up to a multiple of `within` elements. Elements that it shares with the tile before are computed
    and stored twice, with the same bits.

    `whole`: one tile has all of the dimension, since its body reduces that.

    If only a part of a dimension is walked, its last tile ends with `stop`; `clipped` says that the
    dimension may go on within this tile. Its first tile starts with `first` (i32), where that is
    not the tile's beginning. `shifted`: tiles may begin elsewhere than at multiples of their size.
    `one_cta`: all tiles of the part are of one CTA, also where the loop is parallel.
    """

    index: Value = binds()
    start: Value | None = None
    stop: Value | None = None
    first: Value | None = None
    every: Value | None = None
    offset: Value | None = None
    within: int = 0
    whole: bool = False
    clipped: bool = False
    shifted: bool = False
    one_cta: bool = False
    init: tuple[Value, ...] = ()
    args: tuple[Value, ...] = binds(())
    body: Region = ()

    @property
    def dim(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.index.as_axis.dim


@op_class(TILES)
class ForEach(DimLoop):
    """Walk a dimension index by index; `index` is an i32 scalar. Carries like `for_tiles`."""

    dim: str
    index: Value = binds()
    init: tuple[Value, ...] = ()
    args: tuple[Value, ...] = binds(())
    body: Region = ()


@op_class(TILES, pure=True, result=Axis)
class Whole(OneResult):
    """The axis that takes a dimension whole (`:` in an index)."""


@op_class(TILES, repeatable=True)
class Load(AtIndex, OneResult):
    """Read from a tensor. An index entry, one per dimension, is an axis (that dimension's tile),
    an i32 scalar (one index) or an integer tile (a gather). Elements outside the tensor are 0.
    The result's axes are those of the entries, in order of first appearance. Of a last entry that
    is an axis each `block` elements have one index; of a tensor with two more dimensions these are
    scales in atoms (`ir/hardware/scale_factor_atoms.py`).
    """

    tensor: Value
    index: tuple[Value, ...] = ()
    block: int = 1

    def effects(self, made: Makers) -> Effects:
        yield Access("read", "gmem", self.tensor)


@op_class(TILES)
class Store(AtIndex, Op):
    """Write `value` to a tensor, axes matched by name, converted to the tensor's dtype as by a
    `cast` with `saturate`; elements outside the tensor are dropped. `accumulate` adds to what is
    there (atomically, where others may add to it, too).
    """

    tensor: Value
    index: tuple[Value, ...] = ()
    value: Value
    accumulate: bool = False

    def effects(self, made: Makers) -> Effects:
        yield Access("add" if self.accumulate else "write", "gmem", self.tensor)


@op_class(TILES, movable=True)
class Contract(OneResult):
    """Contract every axis that `a` and `b` share, in f32 (i32 for integers), plus `acc` if given.
    The result has the other axes, a's first. A tile's elements outside of the range of its loop
    count as 0. `a` and `b` are tiles (TILE) or tiles in pipeline stages (PARTITIONED). Of
    a contraction that is issued in parts (PARTITIONED) `blocks` are its blocks of 64 rows in each
    consumer's part, from the first up to the second number; other blocks are those of `acc`.
    `depth` are in the same way the elements of the contraction axis. With `in_turns` (PARTITIONED)
    blocks of rows use one accumulator one after another: the next one is issued when the result
    of the last one is computed. Where there are `a_scale` and `b_scale`, tiles like `a` and `b`
    whose elements are equal in each `block` of the contraction axis, operands are multiplied by
    them, without rounding.
    """

    a: Value
    b: Value
    acc: Value | None = None
    blocks: tuple[int, ...] = ()
    depth: tuple[int, ...] = ()
    in_turns: bool = False
    a_scale: Value | None = None
    b_scale: Value | None = None
    block: int = 0

    @property
    def tiles(self) -> tuple[Tile | SharedTile, Tile | SharedTile]:
        """The types of its operands."""
        a, b = self.a.type, self.b.type
        assert isinstance(a, (Tile, SharedTile)) and isinstance(b, (Tile, SharedTile))
        return a, b

    @property
    def dtype(self) -> DType:
        """Its first operand's."""
        return self.tiles[0].dtype

    @property
    def summed(self) -> tuple[str, ...]:
        """The axes that both operands have."""
        a, b = self.tiles
        return tuple([x for x in a.axes if x in b.axes])

    @property
    def free(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The other axes, of each operand."""
        a, b = (tile.axes for tile in self.tiles)
        return tuple([x for x in a if x not in b]), tuple([x for x in b if x not in a])

    @property
    def scales(self) -> tuple[Value, ...]:
        return (self.a_scale, self.b_scale) if self.a_scale and self.b_scale else ()


@op_class(TILES, pure=True, repeatable=False)
class Reduce(OneResult):
    """Reduce `x` over one axis; `fn` is "add", "max" or "min". Elements outside of what its loop
    walks take no part. Sums of floats accumulate in f32; the result keeps x's dtype. All `ctas`
    CTAs of a cluster have a tile each along the axis, which are reduced together.
    """

    fn: str
    x: Value
    axis: str
    ctas: int = 1


@op_class(TILES, pure=True)
class ReduceBlocks(OneResult):
    """Reduce `x` over each block of `size` elements of one axis, which begin at multiples of it:
    every element of a block gets what the block gives. `fn` and what takes part are as of `reduce`.
    """

    fn: str
    x: Value
    axis: str
    size: int


@op_class(TILES, pure=True, repeatable=False)
class Scan(Unary):
    """The inclusive prefix sum of `x` along an axis, over the range of its loop; of floats in
    f32.
    """

    axis: str


@op_class(TILE)
class TopK(Unary):
    """The largest elements of `x` along an axis, in descending order, as many as the axis `into`
    has; of equal ones the one with the least index comes first, and NaN before all. With `places`
    not what they are, but their indices; i32. Where `x` has fewer elements the rest is the lowest
    value of its dtype, at the index 2^31 - 1. `before`, if given, are the values and the places
    that were found in other tiles, among which the elements of `x` are sorted.
    """

    axis: str
    into: Value
    before: tuple[Value, ...] = ()
    places: bool = False


NOWHERE = 2**31 - 1
"""The index of nothing."""
OVER_AXIS = (Reduce, ReduceBlocks, Scan, TopK)
"""Ops that combine elements along `axis`, which so is the columns' one."""


@op_class(TILES, pure=True)
class Index(OneResult):
    """The index, in its dimension, of each element along an axis; i32."""

    axis: Value


@op_class(TILES, pure=True)
class End(OneResult):
    """One past the last index of an axis' current tile, clipped to what its loop walks; an i32
    scalar.
    """

    axis: Value


@op_class(TILES, pure=True)
class Block(OneResult):
    """The index at which an axis' tile begins, divided by `size` and rounded down; an i32 scalar.
    Along a contracted axis, whose tile size divides `size`, the whole tile is in this block.
    """

    axis: Value
    size: int


@op_class(TILES, repeatable=True, any_lanes=True)
class Lookup(OneResult):
    """`table[i]` for each element of the integer tile `i`; `table` is a 1-D tensor."""

    table: Value
    i: Value

    @property
    def tensor(self) -> Value:
        return self.table

    @property
    def index(self) -> tuple[Value, ...]:
        return (self.i,)

    def effects(self, made: Makers) -> Effects:
        yield Access("read", "gmem", self.table)
