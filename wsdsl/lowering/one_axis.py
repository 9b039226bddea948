"""Walk contiguous tensors as one axis, where a kernel has no other use for theirs.

Before:
    for_tiles(index=%m: axis<m of M>) {
      for_tiles(index=%n: axis<n of N>) {
        %x: bf16[m, n] = load(tensor=%X, index=(%m, %n))
        ...
        store(tensor=%Y, index=(%m, %n), value=%y)
After:
    for_tiles(index=%n: axis<n of M_N>) {
      %x: bf16[n] = load(tensor=%X, index=(%n,))
      ...
      store(tensor=%Y, index=(%n,), value=%y)

Vectors then are aligned whatever the rows' length, and rows that are short fill a tile.
"""

import dataclasses

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, operands
from wsdsl.ir.rewriter import retype
from wsdsl.ir.types import Tensor, Tile
from wsdsl.lowering.axes import output_nest


def with_one_axis(kernel: Kernel) -> Kernel | None:
    """None where there is one axis already, or rows and columns are told apart."""
    nest, body = output_nest(kernel)
    plain = all(_is_plain(loop) for loop in nest)
    if (
        len(nest) < 2
        or not plain
        or not all(
            op.elementwise or isinstance(op, ops.Load | ops.Store | ops.Constant) for op in body
        )
    ):
        return None
    names = {loop.index.as_axis.name for loop in nest if isinstance(loop, ops.ForTiles)}
    axes = [v.type.axes for v in kernel.defined if isinstance(v.type, Tile)]
    if not names or any(own and {*own} != names for own in axes):
        return None
    if any(loop.index in _computed_with(op) for op in body for loop in nest):
        return None
    accesses = [op for op in body if isinstance(op, ops.Load | ops.Store)]
    whole, walked = {op.tensor for op in accesses if op.axes}, [loop.index for loop in nest]
    # Numbers that are the same for all elements may come from elsewhere.
    apart = [op for op in accesses if op.tensor not in whole and not {*op.index} & {*walked}]
    orders = {op.index for op in accesses if op not in apart}
    if len(orders) != 1:
        return None
    (order,) = orders
    dims = tuple(loop.dim for index in order for loop in nest if loop.index == index)
    if len(order) != len(nest) or not all(_has_dims(tensor, dims) for tensor in whole):
        return None
    return _walked(kernel, body, order, whole)


def _computed_with(op: Op) -> tuple[Value, ...]:
    """What it takes but for the place of an access."""
    if isinstance(op, ops.Load):
        return ()
    return (op.value,) if isinstance(op, ops.Store) else tuple(operands(op))


def _has_dims(tensor: Value, dims: tuple[str, ...]) -> bool:
    kind = tensor.type
    if not isinstance(kind, Tensor) or kind.packed:
        return False
    return kind.dtype.bits >= 8 and kind.dims == dims


def _is_plain(loop: ops.DimLoop) -> bool:
    if not isinstance(loop, ops.ForTiles):
        return not loop.init
    part = loop.start or loop.stop or loop.first or loop.offset or loop.every or loop.within
    return not (part or loop.whole or loop.index.as_axis.size)


def _walked(kernel: Kernel, body: Region, order: tuple[Value, ...], whole: set[Value]) -> Kernel:
    """`body` is what the loops run, `order` that of the tensors' dimensions."""
    nest = kernel.of(ops.ForTiles, ops.ForEach)
    dims = [next(loop.dim for loop in nest if loop.index == i) for i in order]
    tensors = [p.type for p in kernel.params if isinstance(p.type, Tensor)]
    dim, taken = "_".join(dims), {d for t in tensors for d in t.dims}
    while dim in taken:
        dim += "_"
    own = next(i for i in reversed(order) if not isinstance(i.type, Tile))
    index = Value(own.name, dataclasses.replace(own.as_axis, dim=dim))
    swap = dict[Value, Value]()
    for value in kernel.defined:
        if isinstance(value.type, Tile) and value.type.axes:
            swap[value] = Value(value.name, Tile(value.type.dtype, (own.as_axis.name,)))
        elif value in whole and isinstance(value.type, Tensor):
            swap[value] = Value(value.name, Tensor(value.type.dtype, (dim,)))

    def indexed(op: Op) -> Op:
        if isinstance(op, ops.Load | ops.Store) and op.tensor in whole:
            return dataclasses.replace(op, index=(index,))
        return op

    inner = retype(tuple(indexed(op) for op in body), swap)
    loop = ops.ForTiles(index=index, body=(*inner, ops.Yield()), loc=nest[-1].loc)
    params = tuple(swap.get(p, p) for p in kernel.params)
    return dataclasses.replace(kernel, params=params, body=(loop,))
