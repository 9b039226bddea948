"""Rules of SCHEDULED kernels whose launches differ in width. Each width's
kernel obeys all other rules (`ir/analysis/launch_narrowing.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.analysis.launch_narrowing import narrowing_of
from wsdsl.ir.effects import Arrive
from wsdsl.ir.op import Kernel, Op, Problem, Region, regions
from wsdsl.ir.ops import LaunchNarrowing, WgmmaMmaAsync


def launches_have_one_width(kernel: Kernel) -> Iterator[Problem]:
    found = narrowing_of(kernel)
    for op in kernel.of(LaunchNarrowing)[1:]:
        yield op, "a kernel can have one launch_narrowing"
    for op in kernel.having("narrower"):
        narrower = getattr(op, "narrower", None)
        if narrower is not None and (found is None or narrower != found.result):
            yield op, "`narrower` must be the result of launch_narrowing"
        widths = found.widths if found and narrower is not None else 1
        if isinstance(op, WgmmaMmaAsync) and op.widths != widths:
            yield op, f"widths={op.widths}; launches have {widths} widths"


def groups_have_one_width(kernel: Kernel) -> Iterator[Problem]:
    """A branch by the width stands around a whole group and its commit: around single products
    ptxas would commit each by itself.
    """

    def visit(region: Region) -> Iterator[Problem]:
        open: Op | None = None
        for op in region:
            if isinstance(op, WgmmaMmaAsync) and op.narrower is not None:
                open = op
            elif open is not None and isinstance(op, WgmmaMmaAsync):
                yield op, "MMAs of a group must all have `narrower`, or none"
            elif Arrive("wgmma") in kernel.effects_of[id(op)]:
                open = None
            elif open is not None and not (op.pure or isinstance(op, WgmmaMmaAsync)):
                yield open, "a narrowed group must be committed directly after its MMAs"
                open = None
            for inner in regions(op):
                yield from visit(inner)
        if open is not None:
            yield open, "a narrowed group must be committed in the region in which it begins"

    if any(op.narrower is not None for op in kernel.of(WgmmaMmaAsync)):
        yield from visit(kernel.body)
