"""What a compiled kernel takes at launch, in order: codegen declares it, the runtime fills it."""

from __future__ import annotations

from dataclasses import dataclass

from wsdsl.ir.barrier_ops import (
    AllocateBarriers,
    ArriveFlag,
    LaunchGrid,
    WaitFlag,
    WaitPredecessor,
)
from wsdsl.ir.memory_ops import (
    AllocateGlobal,
    AllocateShared,
    LoadGlobal,
    MakeTensorMap,
    PrefetchTile,
    StoreGlobal,
    ThreadLoad,
    ThreadStore,
)
from wsdsl.ir.op import Kernel, Value, operands
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.tile_ops import DimSize
from wsdsl.ir.types import Barriers, DType, Shared, Tensor, Tile


@dataclass(frozen=True, slots=True)
class MapArgument:
    """A 128-byte CUtensorMap by value; box and dimensions in the tensor's order."""

    tensor: str
    box: tuple[int, ...]
    swizzle: str


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """The tensor's address in GMEM (64 bits)."""

    tensor: str


@dataclass(frozen=True, slots=True)
class StrideArgument:
    """i64, in elements; the last dimension's stride is 1 and is not passed."""

    tensor: str
    dim: int


@dataclass(frozen=True, slots=True)
class SizeArgument:
    """i32: the size of a named dimension."""

    dim: str


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A scalar parameter: f32 as float, integers as i32 or u32 by their type."""

    name: str
    dtype: DType


Argument = MapArgument | PointerArgument | StrideArgument | SizeArgument | ScalarArgument


@dataclass(frozen=True, slots=True)
class LentTensor:
    """GMEM for one launch at a time: `each` lines of its first dimension for every slot of the tile
    scheduler. With `zeroed` it is full of zeros before a launch and after it.
    """

    name: str
    type: Tensor
    each: int
    zeroed: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """Arguments in order, and the launch's shape: there are as many work items as the product over
    `tiles` of ceil(size / tile), each done by a cluster of CTAs. The grid is a cluster an item, for
    the "persistent" scheduler at most as many as run at the same time.
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
    lent: tuple[LentTensor, ...] = ()
    waits: bool = False
    """It waits for the kernel in front of it by itself, and may start before that is over."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Of each argument the tensor, if it is its address or map; else nothing."""
        return tuple(
            a.tensor if isinstance(a, (MapArgument, PointerArgument)) else ""
            for a in self.arguments
        )


def signature(kernel: Kernel) -> Signature:
    """Read the launch signature off a SCHEDULED kernel."""
    maps: list[Argument] = []
    direct: dict[str, Tensor] = {}
    sizes: dict[str, None] = {}
    used: set[Value] = set()
    lent: list[LentTensor] = []
    threads, smem_bytes, waits = 0, 0, False
    grid = LaunchGrid(tiles=())
    for op in kernel.ops:
        used.update(operands(op))
        match op:
            case MakeTensorMap():
                maps.append(MapArgument(op.tensor.name, op.box, op.swizzle))
            case (
                LoadGlobal()
                | StoreGlobal()
                | ThreadLoad()
                | ThreadStore()
                | PrefetchTile()
                | ArriveFlag()
                | WaitFlag()
            ):
                assert isinstance(op.tensor.type, Tensor)
                direct[op.tensor.name] = op.tensor.type
                sizes |= {d: None for d in op.tensor.type.dims if isinstance(d, str)}
            case DimSize():
                sizes[op.dim] = None
            case Partition():
                threads += 128 * op.num_warpgroups
            case AllocateShared():
                assert isinstance(op.result.type, Shared)
                end = op.offset + op.result.type.bytes * op.result.type.num
                smem_bytes = max(smem_bytes, end)
            case AllocateBarriers():
                assert isinstance(op.result.type, Barriers)
                smem_bytes = max(smem_bytes, op.offset + 8 * op.result.type.num)
            case LaunchGrid():
                grid = op
            case AllocateGlobal():
                assert isinstance(op.result.type, Tensor)
                lent.append(LentTensor(op.result.name, op.result.type, op.each, op.zeroed))
            case WaitPredecessor():
                waits = True
            case _:
                pass
    pointers: list[Argument] = []
    for name, tensor in direct.items():
        pointers.append(PointerArgument(name))
        pointers += [StrideArgument(name, d) for d in range(len(tensor.dims) - 1)]
    scalars = [
        ScalarArgument(p.name, p.type.dtype)
        for p in kernel.params
        if isinstance(p.type, Tile) and p in used
    ]
    return Signature(
        name=kernel.name,
        arguments=(*maps, *pointers, *scalars, *(SizeArgument(d) for d in sizes)),
        threads=threads,
        smem_bytes=smem_bytes,
        tiles=grid.tiles,
        scheduler=grid.scheduler,
        cluster=grid.cluster,
        contraction=grid.contraction,
        splits=grid.splits,
        together=grid.together,
        lent=tuple(lent),
        waits=waits,
    )
