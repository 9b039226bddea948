"""Describe a compiled kernel's launch arguments in order: codegen declares, the runtime fills."""

from __future__ import annotations

from dataclasses import replace

from wsdsl.ir.analysis.tile_widths import fastest_narrowing, narrower_side
from wsdsl.ir.types import DType, Sizes, Tensor
from wsdsl.record import record


@record
class MapArgument:
    """A 128-byte CUtensorMap by value; box and dimensions in the tensor's order. Along the
    dimension `narrowed`, unless that is -1, the box is as wide as a launch's tiles.
    """

    tensor: str
    box: tuple[int, ...]
    swizzle: str
    narrowed: int = -1


@record
class PointerArgument:
    """The tensor's address in GMEM (64 bits)."""

    tensor: str


@record
class StrideArgument:
    """i64, in elements; the last dimension's stride is 1 and is not passed. One that is `known`
    must be that: the kernel has it in its code.
    """

    tensor: str
    dim: int
    known: int | None = None


@record
class SizeArgument:
    """i32: the size of a named dimension."""

    dim: str


@record
class ScalarArgument:
    """A scalar parameter: f32 as float, integers as i32 or u32 by their type."""

    name: str
    dtype: DType


@record
class NarrowingArgument:
    """i32: by how many columns a launch's tiles are narrower than the widest."""

    columns: int = 0


Argument = (
    MapArgument
    | PointerArgument
    | StrideArgument
    | SizeArgument
    | ScalarArgument
    | NarrowingArgument
)


@record
class WorkspaceTensor:
    """GMEM for one launch at a time: `each` indices of its first dimension per split tile of the
    tile scheduler. With `zeroed` it is all zeros before and after a launch.
    """

    name: str
    type: Tensor
    each: int
    zeroed: bool


@record
class Signature:
    """Arguments in order, and the launch's shape: there are as many work items as the product over
    `tiles` of ceil(size / tile), each done by a cluster of CTAs. The grid is a cluster an item, for
    the "persistent" scheduler at most as many as run at the same time, `ctas_per_sm` on an SM.
    """

    name: str
    arguments: tuple[Argument, ...]
    threads: int
    smem_bytes: int
    tiles: tuple[tuple[str, int], ...]
    scheduler: str
    cluster: int = 1
    contraction: tuple[tuple[str, int], ...] = ()
    splits: int = 0
    together: bool = False
    lent: tuple[WorkspaceTensor, ...] = ()
    ctas_per_sm: int = 1
    waits: bool = False
    """The kernel itself waits for the kernel before it, and may start before that is complete."""
    widths: int = 1
    """Of how many each launch has one, in steps of 8; the arguments and `tiles` are for the
    widest."""
    narrowed: int = 0
    """Which of `tiles` it is."""

    def narrowing(self, dims: Sizes, num_sms: int, max_clusters: int | None = None) -> int:
        """By how many columns the tiles of a launch of these sizes are narrower. `max_clusters`: as
        of `num_ctas`."""
        if self.widths == 1:
            return 0
        room = num_sms * self.ctas_per_sm // self.cluster
        room = room if max_clusters is None else min(room, max_clusters)
        return fastest_narrowing(self.tiles, self.narrowed, self.widths, lambda d: dims[d], room)

    def at(self, columns: int) -> Signature:
        """The signature of launches whose tiles are narrower by `columns`."""
        if not columns:
            return self
        arguments = tuple(_narrower(a, columns) for a in self.arguments)
        tiles = narrower_side(self.tiles, self.narrowed, columns)
        return replace(self, arguments=arguments, tiles=tiles)

    @property
    def owners(self) -> tuple[str, ...]:
        """Of each argument the tensor, if it is its address or map; else nothing."""
        return tuple(
            a.tensor if isinstance(a, (MapArgument, PointerArgument)) else ""
            for a in self.arguments
        )


def _narrower(argument: Argument, columns: int) -> Argument:
    match argument:
        case MapArgument(box=box, narrowed=dim) if dim >= 0:
            return replace(argument, box=(*box[:dim], box[dim] - columns, *box[dim + 1 :]))
        case NarrowingArgument():
            return NarrowingArgument(columns)
        case _:
            return argument
