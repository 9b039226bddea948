"""Blocks of an axis, `max(x, over=n, per=32)`, must be whole in its tiles, of whatever size these
are: a loop that cuts them is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.diagnostics import Finding, TypeCheckError
from wsdsl.ir.intervals import walks_a_part
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import ForTiles, ReduceBlocks


def with_whole_blocks(kernel: Kernel) -> Kernel:
    """The kernel. TypeCheckError where blocks are cut."""
    if findings := tuple(_cut(kernel)):
        raise TypeCheckError(findings)
    return kernel


def _cut(kernel: Kernel) -> Iterator[Finding]:
    loops = {op.index.as_axis.name: op for op in kernel.of(ForTiles)}
    for op in kernel.of(ReduceBlocks):
        loop = loops.get(op.axis)
        if loop is None:
            continue
        size = loop.index.as_axis.size
        if walks_a_part(loop):
            tiles = f"a part of {loop.dim}"
            hint = f"loop over all of it, for {op.axis} in tiles({loop.dim}), and mask the rest"
        elif size % op.size:
            tiles, hint = f"tiles of {size}", f"set `by` to a multiple of {op.size}, or remove it"
        else:
            continue
        message = f"WS0195 {tiles} along `{op.axis}` may cut a block of {op.size}"
        yield Finding(message, op.loc, hint)
