"""The signature of a SCHEDULED kernel."""

from __future__ import annotations

import math

from wsdsl.artifact.signature import (
    Argument,
    MapArgument,
    NarrowingArgument,
    PointerArgument,
    ScalarArgument,
    Signature,
    SizeArgument,
    StrideArgument,
    WorkspaceTensor,
)
from wsdsl.ir.barrier_ops import (
    AllocateBarriers,
    ArriveFlag,
    LaunchGrid,
    WaitFlag,
    WaitPredecessor,
)
from wsdsl.ir.counter_ops import AddCounters, StoreCounters
from wsdsl.ir.memory_ops import (
    AllocateGlobal,
    AllocateShared,
    LoadGlobal,
    MakeTensorMap,
    StoreGlobal,
    ThreadLoad,
    ThreadStore,
)
from wsdsl.ir.narrowing import narrowing_of
from wsdsl.ir.op import Kernel, Value, operands
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.prefetch_ops import PrefetchTile
from wsdsl.ir.tensor_ops import AllocateTensorMemory
from wsdsl.ir.tile_ops import DimSize
from wsdsl.ir.types import Barriers, Shared, Tensor, Tile


def signature(kernel: Kernel) -> Signature:
    """Read the launch signature off a SCHEDULED kernel."""
    maps: list[Argument] = []
    direct: dict[str, Tensor] = {}
    sizes: dict[str, None] = {}
    used: set[Value] = set()
    lent: list[WorkspaceTensor] = []
    threads, smem_bytes, waits = 0, 0, False
    grid = LaunchGrid(tiles=())
    for op in kernel.ops:
        used.update(operands(op))
        match op:
            case MakeTensorMap():
                narrowed = op.narrowed if op.narrower is not None else -1
                maps.append(MapArgument(op.tensor.name, op.box, op.swizzle, narrowed))
            case (
                LoadGlobal()
                | StoreGlobal()
                | AddCounters()
                | StoreCounters()
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
            case AllocateTensorMemory():
                smem_bytes = max(smem_bytes, op.offset + 8)
            case LaunchGrid():
                grid = op
            case AllocateGlobal():
                assert isinstance(op.result.type, Tensor)
                lent.append(WorkspaceTensor(op.result.name, op.result.type, op.each, op.zeroed))
            case WaitPredecessor():
                waits = True
            case _:
                pass
    # A product of 64 bits for each row, under way with others, costs more than the row is worth.
    seldom = {op.tensor.name for op in kernel.of(LoadGlobal) if op.only is not None}
    pointers: list[Argument] = []
    for name, tensor in direct.items():
        pointers.append(PointerArgument(name))
        known = [_known(tensor, d) if name in seldom else None for d in range(len(tensor.dims))]
        pointers += [StrideArgument(name, d, known[d]) for d in range(len(tensor.dims) - 1)]
    scalars = [
        ScalarArgument(p.name, p.type.dtype)
        for p in kernel.params
        if isinstance(p.type, Tile) and p in used
    ]
    widths = narrowing.widths if (narrowing := narrowing_of(kernel)) else 1
    told = [NarrowingArgument()] if narrowing else []
    return Signature(
        name=kernel.name,
        arguments=(*maps, *pointers, *scalars, *(SizeArgument(d) for d in sizes), *told),
        threads=threads,
        smem_bytes=smem_bytes,
        tiles=grid.tiles,
        scheduler=grid.scheduler,
        cluster=grid.cluster,
        contraction=grid.contraction,
        splits=grid.splits,
        ctas_per_sm=grid.ctas_per_sm,
        together=grid.together,
        lent=tuple(lent),
        waits=waits,
        widths=widths,
        narrowed=grid.narrowed,
    )


def _known(tensor: Tensor, dim: int) -> int | None:
    """The stride of rows that lie one behind the other, if all that is in one has a fixed size."""
    inner = [d for d in tensor.dims[dim + 1 :] if isinstance(d, int)]
    return math.prod(inner) if len(inner) == len(tensor.dims) - dim - 1 else None
