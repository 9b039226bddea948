"""Make results independent of tile sizes: reject the kernel, or let a tile have a whole dimension.

A reduction over the axis of a loop that carries nothing has no other tiles to be combined with, so
it means the whole axis: the loop is marked `whole`. In a loop that carries variables partial
results may be combined: `acc += sum(x, over=k)` and `top = max(top, max(x, over=k))` are
independent of the tile size. Other carried variables (the rescaled accumulator of an attention) are
not decided here: `doubts` lists them, and `simulator/reference/tile_trials.py` evaluates them.
"""

import dataclasses
from collections.abc import Iterator

from wsdsl.diagnostics import Finding, Loc, TypeCheckError
from wsdsl.frontend.tile_classes import Escape, Tiling
from wsdsl.ir import ops
from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.op import Kernel, Op, Region, once, operands, with_fields
from wsdsl.ir.rewriter import with_regions
from wsdsl.ir.types import Tile
from wsdsl.record import record


@record
class Doubt:
    """A loop over tiles whose size may affect results, and the finding if it does."""

    axis: str
    finding: Finding

    def told(self, nan: bool) -> Finding:
        """Return the finding, with a hint if some tile sizes give NaN (a whole tile is masked)."""
        if not nan:
            return self.finding
        hint = (
            "some tile sizes give NaN: if all values of a tile are -inf, subtract "
            "where(top == -inf, 0.0, top) instead of the maximum `top`, since -inf - -inf is NaN"
        )
        return dataclasses.replace(self.finding, hint=f"{hint}. Otherwise {self.finding.hint}")


def settle_tile_sizes(kernel: Kernel) -> Kernel:
    """Mark loops whose tile must have the whole dimension. TypeCheckError if a tile size would
    affect results, or a loop cuts blocks of an axis.
    """
    if cut := tuple(_cut_blocks(kernel)):
        raise TypeCheckError(cut)
    findings: list[Finding] = []
    whole: set[str] = set()
    for loop, escape in _escapes(kernel):
        axis = loop.index.as_axis
        if _is_cured_by_one_tile(loop, escape):
            whole.add(axis.name)
        elif not _may_be_tried(loop, escape):
            findings.append(_finding(loop, escape))
    if findings:
        raise TypeCheckError(tuple(dict.fromkeys(findings)))
    return kernel.with_body(_marked(kernel.body, whole)) if whole else kernel


def _cut_blocks(kernel: Kernel) -> Iterator[Finding]:
    """Blocks, `max(x, over=n, per=32)`, must be whole in all tiles."""
    loops = {op.index.as_axis.name: op for op in kernel.of(ops.ForTiles)}
    for op in kernel.of(ops.ReduceBlocks):
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


def doubts(kernel: Kernel) -> tuple[Doubt, ...]:
    """Return the loops that must be evaluated, of a kernel whose tile sizes are settled."""
    found: dict[str, Finding] = {}
    for loop, escape in _escapes(kernel):
        found.setdefault(loop.index.as_axis.name, _finding(loop, escape))
    return tuple(Doubt(axis, finding) for axis, finding in found.items())


@once
def _escapes(kernel: Kernel) -> list[tuple[ops.ForTiles, Escape]]:
    loops = [op for op in kernel.of(ops.ForTiles) if not op.whole and not op.index.as_axis.size]
    return [(loop, escape) for loop in loops for escape in Tiling(loop).escapes()]


def _is_cured_by_one_tile(loop: ops.ForTiles, escape: Escape) -> bool:
    is_all = not loop.init and loop.start is None and loop.stop is None
    return is_all and isinstance(escape.cause, (ops.Reduce, ops.Scan, ops.TopK, ops.Contract))


def _may_be_tried(loop: ops.ForTiles, escape: Escape) -> bool:
    """Check whether an evaluation with small sizes decides: branches and saturating casts may
    depend on tile sizes for larger sizes only.
    """
    decided = isinstance(escape.cause, ops.End) or isinstance(escape.sink, (ops.If, ops.Cast))
    if decided or escape.certain:
        return False
    return bool(loop.init) or isinstance(escape.cause, ops.DimLoop)


def _marked(region: Region, whole: set[str]) -> Region:
    def mark(op: Op) -> Op:
        op = with_regions(op, lambda inner: _marked(inner, whole))
        if isinstance(op, ops.ForTiles) and op.index.as_axis.name in whole:
            return with_fields(op, whole=True)
        return op

    return tuple(mark(op) for op in region)


DEPENDS = "depends on the tile size, which the schedule chooses"


def _finding(loop: ops.ForTiles, escape: Escape) -> Finding:
    message, loc, hint = _escaped(loop, escape)
    return Finding(f"WS0196 {message}", loc, hint)


def _escaped(loop: ops.ForTiles, escape: Escape) -> tuple[str, Loc | None, str]:
    """The fact, its location and a hint."""
    name, dim = loop.index.as_axis.name, loop.index.as_axis.dim
    by = f"for {name} in tiles({dim}, by=128)"
    cause, place = escape.cause, (escape.cause or escape.sink).loc
    if isinstance(cause, ops.End):
        return (
            f"the result depends on `end({name})`, which {DEPENDS}",
            place,
            f"use `index({name})` or the size `{dim}`, or fix the tile size: {by}",
        )
    if isinstance(escape.sink, ops.If):
        return (
            f"this `if` tests a result of one tile of `{name}`, which {DEPENDS}",
            escape.sink.loc,
            f"choose by element with `where`, or fix the tile size: {by}",
        )
    if isinstance(escape.sink, ops.Cast):
        return (
            f"{escape.sink.result.as_tile.dtype} saturates, so the sum over `{name}` {DEPENDS}",
            escape.sink.loc,
            f"cast the sum after the loop over `{name}`, or fix the tile size: {by}",
        )
    if isinstance(escape.sink, ops.Store) and escape.sink.accumulate and cause is None:
        return (
            f"this is added once per tile of `{name}`; the schedule chooses their number",
            escape.sink.loc,
            f"add it outside of the loop over `{name}`, or add a sum over `{name}`",
        )
    if isinstance(cause, ops.Store):
        return (
            f"this stores a value that the loop over `{name}` changes later: it {DEPENDS}",
            place,
            f"store it after the loop over `{name}`",
        )
    if isinstance(cause, (ops.Load, ops.Lookup)):
        read = cause.tensor if isinstance(cause, ops.Load) else cause.table
        moved = any(isinstance(v.type, Tile) and v.type.axes for v in operands(cause))
        return (
            f"each tile of `{name}` reads and stores `{read.name}`: the result {DEPENDS}",
            place,
            f"store to another tensor than `{read.name}`; only `+=` combines the stores of tiles"
            if moved
            else f"carry a variable through the loop over `{name}`, and store it after the loop",
        )
    if isinstance(cause, ops.DimLoop):
        return (
            f"the trip count of this loop, and so the result, {DEPENDS} for `{name}`",
            place,
            f"mask the elements beyond, as in where(index({name}) >= index(t), s, 0.0)",
        )
    if not loop.init:
        return (
            f"this reduces one tile of `{dim}` at a time, but not only to add to a tensor",
            place,
            f"carry the result through the loop over `{name}`, or fix the tile size: {by}",
        )
    return (
        f"the result of the loop over `{name}` {DEPENDS}",
        place,
        "carry sums and maxima, as in `acc += sum(x, over=…)` or `top = max(top, max(x, over=…))`; "
        f"or fix the tile size: {by}",
    )
