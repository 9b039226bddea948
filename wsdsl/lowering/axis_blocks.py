"""Blocks of an axis, that are reduced or stored as one element: tiles have whole ones."""

import math
from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Makers, Op, Value, once, operands
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest
from wsdsl.lowering.cooperation import num_shares
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.schedule_findings import extent_fault
from wsdsl.schedule import Schedule

MOST = 256
"""Elements of a block, as of a tile."""


def block_of(entry: Value, made: Makers) -> tuple[str, int] | None:
    """The axis and the size of blocks, if an index is `index(axis) // size`."""
    match made.get(entry):
        case ops.Map(fn="floordiv", args=(x, y)):
            index, size = made.get(x), made.get(y)
            if isinstance(index, ops.Index) and isinstance(size, ops.Constant) and size.value > 1:
                return index.axis.as_axis.name, int(size.value)
        case _:
            pass
    return None


def stored_blocks(op: ops.Store, made: Makers) -> dict[str, int]:
    """By axis: of how many elements a store keeps the last one alone."""
    along = {a.name for a in op.axes}
    found = (block_of(v, made) for v in op.index) if not op.accumulate else ()
    return {axis: size for axis, size in filter(None, found) if axis not in along}


def is_even(value: Value, axis: str, size: int, made: Makers) -> bool:
    """Whether all elements of a block are the same."""
    if axis not in value.axes:
        return True
    op, block = made.get(value), block_of(value, made)
    if block is not None:
        return block[0] != axis or block[1] % size == 0
    match op:
        case ops.ReduceBlocks() if op.axis == axis:
            return op.size % size == 0
        case ops.Map() | ops.Cast() | ops.Bitcast() | ops.Full():
            return all(is_even(v, axis, size, made) for v in operands(op))
        case ops.Load() | ops.Lookup():
            along = [v.type.name for v in op.index if isinstance(v.type, Axis)]
            return axis not in along and all(is_even(v, axis, size, made) for v in op.index)
        case _:
            return False


@once
def blocks_of(kernel: Kernel) -> tuple[tuple[str, int, Op], ...]:
    """Axes, sizes of blocks, and the ops that have them; not of tiles that hold a dimension."""
    made = kernel.definers
    whole = {op.index.as_axis.name for op in kernel.of(ops.ForTiles) if op.whole}
    found = [(op.axis, op.size, op) for op in kernel.of(ops.ReduceBlocks)]
    found += [(a, n, op) for op in kernel.of(ops.Store) for a, n in stored_blocks(op, made).items()]
    walked = {op.index.as_axis.name for op in kernel.of(ops.ForTiles)} - whole
    return tuple(each for each in found if each[0] in walked)


def block_step(kernel: Kernel, axis: str) -> int:
    """Of how many elements the axis' tiles must be a multiple."""
    return math.lcm(1, *(size for name, size, _ in blocks_of(kernel) if name == axis))


def block_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    sizes, shares = axis_sizes(kernel, chosen), num_shares(kernel, chosen)
    for op in kernel.of(ops.ReduceBlocks):
        num, size = shares[axes_of(kernel)[op.axis].role], sizes[op.axis]
        if size % (num * op.size) and num > 1:
            told = f"WS0402 {num} consumers split {size} columns, and so blocks of {op.size}"
            yield Finding(told, op.loc, "use consumers=1")
    for axis, size, op in blocks_of(kernel):
        if sizes[axis] % size:
            hint, own = "", axes_of(kernel)[axis]
            if own.size or size > MOST:
                hint = f"loop over it with tiles({own.dim}, by=…), a multiple of {size}"
            limit = f"a multiple of {size}: its blocks have {size} elements"
            yield extent_fault(kernel, axis, sizes[axis], limit, op.loc, hint)


def walked_blocks(kernel: Kernel) -> Iterator[Finding]:
    """Reject stores of one element per block in a sequential loop: other threads store those of the
    next tile, and the compiler does not prove that the elements differ.
    """
    made, nest = kernel.definers, {loop.index for loop in output_nest(kernel)[0]}
    inner = {op.index.as_axis.name for op in kernel.of(ops.ForTiles) if op.index not in nest}
    for op in kernel.of(ops.Store):
        for axis in stored_blocks(op, made).keys() & inner:
            name = loop_variable(axis)
            yield Finding(
                f"WS0306 a store of one element per block of `{name}` in a sequential loop over it "
                "is lowered only where a tile has the whole row",
                op.loc,
                f"store it in a kernel whose loop over `{name}` is parallel: for m, {name} in "
                "tiles(…), without carried values",
            )
