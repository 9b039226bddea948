"""Walk an axis index by index where both axes of a tile are summed.

Before:
    for_tiles(index=%m: axis<m of M>) {
      for_tiles(index=%n: axis<n of N>) {
        %x: f32[m, n] = load(tensor=%X, index=(%m, %n))
        %rows: f32[m] = reduce(fn="add", x=%x, axis="n")
        %sum: f32 = reduce(fn="add", x=%rows, axis="m")
        store(tensor=%S, index=(%zero,), value=%sum, accumulate=True)
After:
    for_each(dim="M", index=%m: i32) {
      for_tiles(index=%n: axis<n of N>) {
        %x: f32[n] = load(tensor=%X, index=(%m, %n))
        %rows: f32 = reduce(fn="add", x=%x, axis="n")
        store(tensor=%S, index=(%zero,), value=%rows, accumulate=True)

What tiles of the output's loops add up is the same for all sizes of them, one index, too: all
threads then share what lies along memory.

Why here: everything behind knows tiles of which one axis is reduced.
"""

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.rewriter import definitions, retype, rewrite
from wsdsl.ir.types import I32, Tile
from wsdsl.lowering.axes import output_nest


def walk_reduced_rows(kernel: Kernel) -> Kernel:
    for loop in output_nest(kernel)[0]:
        if isinstance(loop, ops.ForTiles) and _is_walked(kernel, loop):
            return kernel.with_body(_walked(kernel, loop))
    return kernel


def _is_walked(kernel: Kernel, loop: ops.ForTiles) -> bool:
    """Whether tiles of the loop are summed along it and another axis, and no more than that."""
    axis = loop.index.as_axis
    if loop.whole or axis.size or kernel.of(ops.Contract):
        return False
    reduced = {op.axis for op in kernel.of(ops.Reduce)} - {axis.name}
    both = any(
        isinstance(v.type, Tile) and axis.name in v.type.axes and reduced & {*v.type.axes}
        for v in definitions(kernel)
    )
    along = any(op.last == axis and len(op.axes) > 1 for op in kernel.of(ops.Load))
    sums = [op for op in kernel.of(ops.Reduce) if op.axis == axis.name]
    others = (*kernel.of(ops.Scan), *kernel.of(ops.TopK), *kernel.of(ops.ReduceBlocks))
    told = any(op.axis == axis.name for op in others) or any(
        op.axis == loop.index for op in kernel.of(ops.End)
    )
    return both and bool(sums) and not along and not told and all(op.fn == "add" for op in sums)


def _walked(kernel: Kernel, loop: ops.ForTiles) -> Region:
    axis, index = loop.index.as_axis, Value(loop.index.name, Tile(I32, ()))
    swap = {loop.index: index}
    for value in definitions(kernel):
        if isinstance(value.type, Tile) and axis.name in value.type.axes:
            left = tuple(a for a in value.type.axes if a != axis.name)
            swap[value] = Value(value.name, Tile(value.type.dtype, left))
    same = dict[Value, Value]()

    def change(op: Op) -> tuple[Op, ...]:
        match op:
            case ops.Index(axis=at) if at == loop.index:
                same[op.result] = index
            case ops.Reduce(axis=name) if name == axis.name:
                same[op.result] = op.x
            case ops.ForTiles(index=at) if at == loop.index:
                return (ops.ForEach(dim=axis.dim, index=at, body=op.body, loc=op.loc),)
            case _:
                return (op,)
        return ()

    body = rewrite(kernel.body, change)
    for value, other in same.items():
        while other in same:
            other = same[other]
        swap[value] = swap.get(other, other)
    return retype(body, swap)
