"""The size of a tile never shows in a result: where it would, the kernel is refused, or the tile is
made to hold its whole dimension.

A reduction over the axis of a loop that carries nothing has no other tiles to be combined with, so
it means the whole axis: the loop is marked `whole`. In a loop that carries variables the results of
tiles may be combined: `acc += sum(x, over=k)` and `top = max(top, max(x, over=k))` are known to be
the same for all sizes. Of any other way to carry a variable (the rescaled sum of an attention) that
is not decided here: `doubts` names them, and `simulator/tile_trials.py` tries them out.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from wsdsl.diagnostics import Finding, TypeCheckError
from wsdsl.frontend.tile_classes import Escape, Tiling
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Kernel, Op, Region, once, operands, with_fields
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import with_regions


@dataclass(frozen=True)
class Doubt:
    """A loop over tiles whose size may show, and what to say if it does."""

    axis: str
    finding: Finding

    def told(self, nan: bool) -> Finding:
        """With what to do where some sizes give NaN: a tile may be masked whole."""
        if not nan:
            return self.finding
        hint = (
            "some sizes give NaN: if a tile holds nothing but -inf, subtract "
            "where(top == -inf, 0.0, top) instead of the maximum `top`, since -inf - -inf is NaN"
        )
        return dataclasses.replace(self.finding, hint=f"{hint}. Else {self.finding.hint}")


def settle_tile_sizes(kernel: Kernel) -> Kernel:
    """The kernel with the loops marked whose tile must hold all of its dimension. TypeCheckError
    where the size of a tile would show.
    """
    findings: list[Finding] = []
    whole: set[str] = set()
    for loop, escape in _escapes(kernel):
        axis = _axis(loop)
        if _is_cured_by_one_tile(loop, escape):
            whole.add(axis.name)
        elif not _may_be_tried(loop, escape):
            findings.append(_finding(loop, escape))
    if findings:
        raise TypeCheckError(tuple(dict.fromkeys(findings)))
    return kernel.with_body(_marked(kernel.body, whole)) if whole else kernel


def doubts(kernel: Kernel) -> tuple[Doubt, ...]:
    """Of a kernel whose tile sizes are settled: the loops that must be tried out."""
    found: dict[str, Finding] = {}
    for loop, escape in _escapes(kernel):
        found.setdefault(_axis(loop).name, _finding(loop, escape))
    return tuple(Doubt(axis, finding) for axis, finding in found.items())


@once
def _escapes(kernel: Kernel) -> list[tuple[t.ForTiles, Escape]]:
    loops = [op for op in kernel.of(t.ForTiles) if not op.whole and not _axis(op).size]
    return [(loop, escape) for loop in loops for escape in Tiling(loop).escapes()]


def _is_cured_by_one_tile(loop: t.ForTiles, escape: Escape) -> bool:
    is_all = not loop.init and loop.start is None and loop.stop is None
    return is_all and isinstance(escape.cause, (t.Reduce, t.Scan, t.TopK, t.Contract))


def _may_be_tried(loop: t.ForTiles, escape: Escape) -> bool:
    """What is computed can be tried out on small sizes; what is decided, or saturates, may be so
    on larger ones alone.
    """
    decided = isinstance(escape.cause, t.End) or isinstance(escape.sink, (t.If, t.Cast))
    if decided or escape.certain:
        return False
    return bool(loop.init) or isinstance(escape.cause, (t.ForTiles, t.ForEach))


def _marked(region: Region, whole: set[str]) -> Region:
    def mark(op: Op) -> Op:
        op = with_regions(op, lambda inner: _marked(inner, whole))
        if isinstance(op, t.ForTiles) and _axis(op).name in whole:
            return with_fields(op, whole=True)
        return op

    return tuple(mark(op) for op in region)


def _axis(loop: t.ForTiles) -> Axis:
    assert isinstance(loop.index.type, Axis)
    return loop.index.type


def _finding(loop: t.ForTiles, escape: Escape) -> Finding:
    name, dim = _axis(loop).name, _axis(loop).dim
    by = f"for {name} in tiles({dim}, by=128)"
    cause, place = escape.cause, (escape.cause or escape.sink).loc
    if isinstance(cause, t.End):
        return Finding(
            f"the result would depend on `end({name})`, and so on how large the tiles of `{name}` "
            "are, which the schedule chooses",
            place,
            f"`index({name})` gives the indices, `{dim}` the size; or say how large the tiles "
            f"are: {by}",
        )
    if isinstance(escape.sink, t.If):
        return Finding(
            f"an `if` by what one tile of `{name}` gives: the result would depend on how large "
            "the tiles are, which the schedule chooses",
            escape.sink.loc,
            f"choose by element with `where`, or say how large the tiles are: {by}",
        )
    if isinstance(escape.sink, t.Cast):
        assert isinstance(escape.sink.result.type, Tile)
        return Finding(
            f"{escape.sink.result.type.dtype} saturates, and so what is made of this sum would "
            f"depend on how large the tiles of `{name}` are, which the schedule chooses",
            escape.sink.loc,
            f"cast the sum behind the loop over `{name}`, or say how large the tiles are: {by}",
        )
    if isinstance(escape.sink, t.Store) and escape.sink.accumulate and cause is None:
        return Finding(
            f"this is added once for each tile of `{name}`, however many the schedule makes",
            escape.sink.loc,
            f"add it outside of the loop over `{name}`, or add a sum over `{name}`",
        )
    if isinstance(cause, t.Store):
        return Finding(
            f"this stores what the loop over `{name}` has so far, and more comes to it behind the "
            "store: what stays would depend on how large the tiles are, which the schedule chooses",
            place,
            f"store it behind the loop over `{name}`",
        )
    if isinstance(cause, (t.Load, t.Lookup)):
        read = cause.tensor if isinstance(cause, t.Load) else cause.table
        moved = any(isinstance(v.type, Tile) and v.type.axes for v in operands(cause))
        return Finding(
            f"`{read.name}` is read and stored by each tile of `{name}`, so the result "
            "would depend on how large the tiles are, which the schedule chooses",
            place,
            f"store to another tensor than `{read.name}`; only `+=` combines what tiles store"
            if moved
            else f"carry a variable through the loop over `{name}`, and store it behind it",
        )
    if isinstance(cause, (t.ForTiles, t.ForEach)):
        return Finding(
            f"how far this loop runs depends on how large the tiles of `{name}` are, and so does "
            "the result",
            place,
            f"mask what lies beyond, as in where(index({name}) >= index(t), s, 0.0)",
        )
    if not loop.init:
        return Finding(
            f"this reduces a part of `{dim}`, tile by tile, and not only to add it to a tensor",
            place,
            f"carry the result through the loop over `{name}`, or say how large the tiles "
            f"are: {by}",
        )
    return Finding(
        f"what comes out of the loop over `{name}` depends on how large the tiles are, which the "
        "schedule chooses",
        place,
        "carry sums and maxima, as in `acc += sum(x, over=…)` or `top = max(top, max(x, over=…))`; "
        f"or say how large the tiles are: {by}",
    )
