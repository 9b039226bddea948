"""The signature of a SCHEDULED kernel."""

import math

from wsdsl.artifact.artifact import Access
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
from wsdsl.codegen.addresses.byte_vectors import MOST, may_be_words
from wsdsl.ir import ops
from wsdsl.ir.analysis.complete_writes import written_whole
from wsdsl.ir.analysis.launch_narrowing import narrowing_of
from wsdsl.ir.analysis.tensor_accesses import direct_tensors, mapped_tensors, sized_dims, touches
from wsdsl.ir.effects import Wait, synchronizes
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.op import Kernel, once, operands
from wsdsl.ir.types import Tensor, TensorMap, Tile


@once
def signature(kernel: Kernel) -> Signature:
    """Read the launch signature off a SCHEDULED kernel."""
    maps: list[Argument] = []
    for op in kernel.making(TensorMap):
        narrowed = op.narrowed if op.narrower is not None else -1
        maps.append(MapArgument(op.tensor.name, op.box, op.swizzle, narrowed))
    direct = direct_tensors(kernel)
    sizes = sized_dims(kernel)
    lent = [
        WorkspaceTensor(op.result.name, op.result.as_tensor, op.each, op.zeroed)
        for op in kernel.making(Tensor)
    ]
    grid = ops.grid_of(kernel) or ops.LaunchGrid(tiles=())
    # A 64-bit multiplication per row, next to the loads in flight, costs more than the row.
    rare = {op.tensor.name for op in kernel.of(ops.LoadGlobal) if op.only is not None}
    pointers: list[Argument] = []
    for name, tensor in direct.items():
        pointers.append(PointerArgument(name))
        known = [_known(tensor, d) if name in rare else None for d in range(len(tensor.dims))]
        pointers += [StrideArgument(name, d, known[d]) for d in range(len(tensor.dims) - 1)]
    scalars = [
        ScalarArgument(p.name, p.type.dtype)
        for p in kernel.params
        if isinstance(p.type, Tile) and any(p in operands(op) for op in kernel.ops)
    ]
    widths = narrowing.widths if (narrowing := narrowing_of(kernel)) else 1
    narrow = [NarrowingArgument()] if narrowing else []
    return Signature(
        name=kernel.name,
        arguments=(*maps, *pointers, *scalars, *(SizeArgument(d) for d in sizes), *narrow),
        threads=128 * ops.num_warpgroups(kernel),
        smem_bytes=max([own.stop for _, own in kernel.allocations], default=0),
        tiles=grid.tiles,
        scheduler=grid.scheduler,
        cluster=grid.cluster,
        contraction=grid.contraction,
        splits=grid.splits,
        ctas_per_sm=grid.ctas_per_sm,
        together=grid.together,
        lent=tuple(lent),
        waits=any(synchronizes(effects, Wait, "grid") for _, effects in kernel.effects),
        widths=widths,
        narrowed=grid.narrowed,
    )


def _known(tensor: Tensor, dim: int) -> int | None:
    """The stride of contiguous rows if all of their inner dimensions have a fixed size."""
    inner = [d for d in tensor.dims[dim + 1 :] if isinstance(d, int)]
    return math.prod(inner) if len(inner) == len(tensor.dims) - dim - 1 else None


def access_of(kernel: Kernel) -> Access:
    """Read the accesses off a kernel, TILE or SCHEDULED."""
    results = list(touches(kernel))
    alignment: dict[str, int] = {}
    for op, touch in results:
        if isinstance(op, ops.ByElements):
            needed = op.tensor.as_tensor.dtype.size(op.vector)
            if isinstance(op, ops.LoadGlobal) and may_be_words(op):
                needed = 1 if touch.tensor in kernel.unaligned else MOST
            if op.tensor.as_tensor.packed:
                needed = TMA_ALIGN
            alignment[touch.tensor] = max(needed, alignment.get(touch.tensor, 1))
    return Access(
        reads=frozenset(touch.tensor for _, touch in results if touch.reads or touch.adds),
        writes=frozenset(touch.tensor for _, touch in results if touch.writes),
        mapped=frozenset(mapped_tensors(kernel).values()),
        alignment=alignment,
        whole=written_whole(kernel) if kernel.level == "tile" else {},
        positive=kernel.positive,
    )
