"""Rules of SCHEDULED kernels whose launches differ in width. What a kernel is at each width is held
to all other rules (`ir/analysis/launch_narrowing.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.analysis.launch_narrowing import narrowing_of
from wsdsl.ir.op import Kernel, Op, Problem, Region, regions
from wsdsl.ir.ops import (
    Constant,
    LaunchGrid,
    LaunchNarrowing,
    MakeTensorMap,
    Map,
    MbarrierArriveExpectTx,
    SmemDescriptor,
    TmaStore,
    WgmmaCommit,
    WgmmaMmaAsync,
)

OF_NARROWER: dict[type[Op], tuple[tuple[str, object], ...]] = {
    LaunchGrid: (("narrowed", 0),),
    MakeTensorMap: (("narrowed", 0),),
    MbarrierArriveExpectTx: (("line_bytes", 0),),
    WgmmaMmaAsync: (("widths", 1),),
}
"""Attributes that say what is narrower, and what they are where nothing is."""
BETWEEN = (WgmmaMmaAsync, SmemDescriptor, Constant, Map)
"""What may stand between the products of a group: nothing that others can notice."""


def what_is_narrower_is_told(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(*OF_NARROWER, TmaStore):
        narrower = getattr(op, "narrower", None)
        for name, nothing in OF_NARROWER.get(type(op), ()):
            if narrower is None and getattr(op, name) != nothing:
                yield op, f"{name}={getattr(op, name)!r} needs `narrower`, which is missing"
        if isinstance(op, LaunchGrid) and narrower and op.narrowed >= len(op.tiles):
            yield op, f"narrowed={op.narrowed} is not one of {len(op.tiles)} sizes"
        if isinstance(op, MakeTensorMap) and narrower and op.narrowed >= len(op.box) - 1:
            yield op, f"narrowed={op.narrowed}: the last dimension of a box cannot be narrowed"
        if isinstance(op, TmaStore) and not op.lines and (narrower or op.line_dim):
            yield op, "a narrowed copy needs `lines`"


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
            elif isinstance(op, WgmmaCommit):
                open = None
            elif open is not None and not isinstance(op, BETWEEN):
                yield open, "a narrowed group must be committed directly after its MMAs"
                open = None
            for inner in regions(op):
                yield from visit(inner)
        if open is not None:
            yield open, "a narrowed group must be committed in the region in which it begins"

    if any(op.narrower is not None for op in kernel.of(WgmmaMmaAsync)):
        yield from visit(kernel.body)
