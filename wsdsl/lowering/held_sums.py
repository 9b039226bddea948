"""What threads hold in registers of a kernel whose products are summed in tensor memory."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.op import Kernel, Region, Value, once, operands, results_of
from wsdsl.ir.tile_ops import Cast, ForEach, ForTiles, Map, Reduce
from wsdsl.ir.types import Tile
from wsdsl.lowering.axes import tile_axes
from wsdsl.lowering.tensor_chains import chains


@once
def held_by_threads(kernel: Kernel) -> tuple[Tile, ...]:
    """Tiles of rows and columns that a loop carries, or that are reduced in one: of these all
    columns are there before anything is made of them.
    """
    found = chains(kernel)
    loops = kernel.of(ForTiles, ForEach)
    carried = {v for op in loops for v in (*op.args, *op.result)}
    held = list[Tile]()
    for loop in loops:
        for init, arg in zip(loop.init, loop.args, strict=True):
            # What goes on from one loop to the next, or into an inner one, is the same registers.
            if arg not in found.sums and init not in carried and len(tile_axes(arg)) == 2:
                held.append(arg.as_tile)
        for op in loop.body if loop.args else ():
            held += (v.as_tile for v in found.ends(op) if any(_reduced(loop.body, v)))
    return tuple(held)


def _reduced(body: Region, value: Value) -> Iterator[bool]:
    """Whether a block reduces what it makes of a value, element by element."""
    following = {value}
    for op in body:
        if following & {*operands(op)}:
            yield isinstance(op, Reduce)
            following |= {*results_of(op)} if isinstance(op, (Cast, Map)) else set()
