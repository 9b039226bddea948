"""The tile, consumers and pieces by which rows are reduced, where columns are contiguous.

A warp has as long a part of a row as its lanes hold in vectors, and each thread as many rows at a
time as fill its registers. An SM has sixteen warps, which hide each other's latency: of one CTA
where there are few tiles, so that what they have in common is added up in SMEM, and of several
where there are many. Tiles that are fewer than the SMs are cut into pieces, all of which run at the
same time.
"""

import math
from collections.abc import Iterator

from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import ForTiles, Load, Reduce
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.held_rows import HELD_BYTES
from wsdsl.lowering.register_layout import (
    MOST_REDUCED,
    WARP,
    flat_axis,
    holds_vectors,
    piece_height,
    piece_lanes,
    reduces_rows,
    thread_vector,
)
from wsdsl.lowering.split_k_rules import cut_loop
from wsdsl.schedule import Schedule, changed

TEAM = 4
"""Warpgroups of an SM, whose threads have 128 registers, ..."""
ROOM, REGISTER = 88, 4
"""... of which addresses and what is computed leave so many, of four bytes."""
LEAST_LANES, SECTOR_LANES, MOSTLY = 4, 2, 0.75
"""That share a row, whose bytes L2 brings at once, or where that leaves more than half of the SMs
idle those of a sector; and of the SMs, those that are enough to have the memory's bandwidth.
"""
TURNS = 2
"""Of a loop, at the least: threads load for the second while others compute."""
PIECE_BYTES = 64 * 1024
"""That a piece reads at the least, which takes an SM a microsecond: as long as to wait for it."""


def reduced_row_option(kernel: Kernel, given: Schedule, work: Work) -> Schedule | None:
    """What is left open filled in; None if no rows are reduced, or in another way."""
    walked = {op.index.as_axis.name for op in kernel.of(ForTiles)}
    reduced = {op.axis for op in kernel.of(Reduce)} & walked
    if not reduced or not holds_vectors(kernel) or not reduces_rows(kernel):
        return None
    if given.mode == "pingpong" or cluster_size(given) > 1 or flat_axis(kernel):
        return None
    sides = {n: a.role for n, a in axes_of(kernel).items() if n in walked}
    columns = [loop_variable(n) for n, side in sides.items() if side == "columns"]
    rows = [loop_variable(n) for n, side in sides.items() if side == "rows"]
    if not columns or not rows:
        return None
    vector = thread_vector(kernel)
    width, usual, least = vector * WARP, vector * LEAST_LANES, vector * SECTOR_LANES
    option = _of_width(kernel, given, work, (columns, rows), width)
    while work.sized and not option.splits and width > least:
        tiles = work.num_tiles(axis_sizes(kernel, option))
        if tiles >= MOSTLY * work.target.num_sms:
            break
        if width == usual and 2 * tiles > MOSTLY * work.target.num_sms:
            break
        # Nobody would use the other SMs.
        width //= 2
        option = _of_width(kernel, given, work, (columns, rows), width)
    return option


def _of_width(
    kernel: Kernel, given: Schedule, work: Work, variables: tuple[list[str], list[str]], widest: int
) -> Schedule:
    columns, rows = variables
    width, least = widest, 2 * thread_vector(kernel)
    while work.sized and width > least and width >= 2 * max(work.columns.values(), default=width):
        width //= 2
    tile = {**dict.fromkeys(columns, width), **(given.tile or {})}
    one = changed(given, tile={**dict.fromkeys(rows, 1), **tile})
    tiles = work.num_tiles(axis_sizes(kernel, one))
    sms = work.target.num_sms if work.sized else 0
    if given.scheduler == "stream_k" or given.reduction == "serial":
        sms = 0  # Warpgroups that all have the same sums do not hand them on.
    consumers = given.consumers or next((c for c in (4, 2) if tiles * c <= TEAM * sms), 1)
    splits = _splits(kernel, given, work, sms // tiles, sum(tile[n] for n in columns))
    height = piece_height(piece_lanes(kernel, math.gcd(*(tile[n] for n in columns)))) * consumers
    at_once = min(_rows_at_once(kernel), MOST_REDUCED // height)
    if work.sized:
        shortest = _depth(kernel, work) // (max(1, splits) * TURNS * height)
        at_once = min(at_once, max(1, shortest))
    tile |= {n: height * at_once for n in rows if n not in tile}
    option = changed(given, mode="cooperative", consumers=consumers, tile=tile)
    if splits > 1:
        return changed(option, scheduler="split_k", splits=splits, reduction="parallel")
    resident = given.ctas_per_sm or TEAM // consumers
    return changed(option, ctas_per_sm=resident) if not given.cuts_tiles else option


def _rows_at_once(kernel: Kernel) -> int:
    """Of a thread, that registers have room for beside what is carried."""
    vector, loads = thread_vector(kernel), kernel.of(Load)
    each = sum(op.dtype.bytes for op in loads if len(op.axes) > 1) * vector
    lone = sum(len(op.axes) == 1 and op.axes[0].role == "rows" for op in loads)
    carried = sum(len(op.args) for op in kernel.of(ForTiles)) * vector
    fitting = (ROOM - carried) // max(1, each // REGISTER + lone)
    return max(1, min(HELD_BYTES // max(1, each), fitting))


def _depth(kernel: Kernel, work: Work) -> int:
    """Rows that are reduced."""
    reduced = {op.axis for op in kernel.of(Reduce)}
    return max(work.size(axes_of(kernel)[name].dim) for name in reduced)


def _splits(kernel: Kernel, given: Schedule, work: Work, most: int, columns: int) -> int:
    """Pieces of each tile, all of which run at the same time, `most` of them."""
    loop = cut_loop(output_nest(kernel)[1], lines=True)
    is_open = given.scheduler in (None, "auto", "split_k")
    if loop is None or not is_open or given.reduction not in (None, "parallel"):
        return 1
    if given.splits:
        return given.splits
    row = columns * sum(op.dtype.bytes for op in kernel.of(Load) if len(op.axes) > 1)
    fitting = min(most, _depth(kernel, work) * row // PIECE_BYTES)
    return max(fitting, 2) if given.scheduler == "split_k" else fitting


def with_fewer_rows(kernel: Kernel, chosen: Schedule, given: Schedule) -> Iterator[Schedule]:
    """`given` with fewer and fewer rows than were `chosen` at a time, of a kernel with roles."""
    rows = {n for n, a in axes_of(kernel).items() if a.role == "rows"}
    names = [v for v in map(loop_variable, sorted(rows)) if v in (chosen.tile or {})]
    if not reduces_rows(kernel) or not names or {*names} & {*(given.tile or {})}:
        return
    columns = [a.size for a in axes_of(kernel).values() if a.role == "columns"]
    least = piece_height(piece_lanes(kernel, math.gcd(*columns))) * (chosen.consumers or 1)
    size = (chosen.tile or {})[names[0]]
    while size >= 2 * least:
        size = size // 2 // least * least
        yield changed(given, tile={**(given.tile or {}), **dict.fromkeys(names, size)})
