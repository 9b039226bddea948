"""Kernels whose tiles are as wide as each launch says: what they are at one width.

A launch gives by how many columns of wgmma's N its tiles are narrower than the kernel's widest
(`launch_narrowing`), and what depends on it takes that as `narrower`: products, boxes that TMA
loads, bytes that barriers expect, lines that it stores, and the number of tiles. `narrowed` writes
a number in its place, which leaves a kernel of one width. Spec, prover, simulator and the model go
by these, one after the other; code is made of the kernel as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.ir.analysis.tile_widths import narrower_side, narrowings
from wsdsl.ir.op import Kernel, Op, Value, once, with_fields
from wsdsl.ir.ops import (
    Constant,
    LaunchGrid,
    LaunchNarrowing,
    MakeTensorMap,
    MbarrierArriveExpectTx,
    TmaStore,
    WgmmaMmaAsync,
)
from wsdsl.ir.rewriter import rewrite
from wsdsl.ir.types import Accumulator


def narrowing_of(kernel: Kernel) -> LaunchNarrowing | None:
    """The op by which a kernel gets it, if its launches differ in width."""
    return next(iter(kernel.of(LaunchNarrowing)), None)


def each_width(kernel: Kernel) -> Sequence[Kernel]:
    """Return a SCHEDULED kernel at each of its widths, the widest first; itself if it has one."""
    return _each_width(kernel) if narrowing_of(kernel) else (kernel,)


@once
def _each_width(kernel: Kernel) -> Sequence[Kernel]:
    found = kernel.of(LaunchNarrowing)[0]
    return [narrowed(kernel, columns) for columns in narrowings(found.widths)]


def narrowed(kernel: Kernel, columns: int) -> Kernel:
    """The kernel of the tiles that are by so many columns narrower than its widest."""
    if narrowing_of(kernel) is None:
        return kernel

    def told(op: Op) -> tuple[Op]:
        if isinstance(op, LaunchNarrowing):
            return (Constant(result=op.result, value=columns, loc=op.loc),)
        narrower: Value | None = getattr(op, "narrower", None)
        return (op if narrower is None else _at(op, columns),)

    return kernel.with_body(rewrite(kernel.body, told))


def _at(op: Op, columns: int) -> Op:
    match op:
        case LaunchGrid():
            sizes = narrower_side(op.tiles, op.narrowed, columns)
            return with_fields(op, tiles=sizes, narrower=None, narrowed=0)
        case MakeTensorMap():
            box = (n - columns * (d == op.narrowed) for d, n in enumerate(op.box))
            return with_fields(op, box=tuple(box), narrower=None, narrowed=0)
        case MbarrierArriveExpectTx():
            left = op.tx_bytes - columns * op.line_bytes
            return with_fields(op, tx_bytes=left, narrower=None, line_bytes=0)
        case TmaStore():
            return with_fields(op, lines=op.lines - columns, narrower=None)
        case WgmmaMmaAsync():
            left = op.acc.type_as(Accumulator).columns - columns if columns else 0
            return with_fields(op, columns=left, narrower=None, widths=1)
        case _:
            raise AssertionError(op)
