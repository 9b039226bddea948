"""Kernels whose tiles are as wide as each launch says, and the kernel of one width.

A launch gives by how many columns of wgmma's N its tiles are narrower than the kernel's widest
(`launch_narrowing`), and what depends on it takes that as `narrower`: products, boxes that TMA
loads, bytes that barriers expect, lines that it stores, and the number of tiles. `narrowed` writes
a number in its place, which leaves a kernel of one width. Spec, prover, simulator and the model go
by these, one after the other; code is made of the kernel as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.ir.analysis.tile_widths import narrowings
from wsdsl.ir.op import Kernel, Op, once
from wsdsl.ir.ops import Constant, LaunchNarrowing
from wsdsl.ir.rewriter import rewrite


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
    """Return the kernel whose tiles are `columns` narrower than its widest."""
    if narrowing_of(kernel) is None:
        return kernel

    def at_width(op: Op) -> tuple[Op]:
        if isinstance(op, LaunchNarrowing):
            return (Constant(result=op.result, value=columns, loc=op.loc),)
        return (op if getattr(op, "narrower", None) is None else op.at_width(columns),)

    return kernel.with_body(rewrite(kernel.body, at_width))
