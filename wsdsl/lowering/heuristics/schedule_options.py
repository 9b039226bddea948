"""What `choose_schedule` tries: modes, numbers of consumers, and tiles that the user left open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wsdsl.ir.hardware.tcgen05_shapes import LANES
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Contract
from wsdsl.ir.types import Sizes, Tile
from wsdsl.lazy import cached_property
from wsdsl.lowering.axes import axes_of, loop_variable, whole_axes
from wsdsl.lowering.axis_blocks import MOST, block_step
from wsdsl.lowering.batch_coarsening import taken_in_turns
from wsdsl.lowering.check_columns import column_step, slice_step
from wsdsl.lowering.check_widths import has_narrow_chunks, most_widths
from wsdsl.lowering.cooperation import cluster_splits, num_shares, shared_role
from wsdsl.lowering.cost_model.speeds import is_one_wave
from wsdsl.lowering.cost_model.workload import Work, scales_products
from wsdsl.lowering.cta_pairs import in_pairs
from wsdsl.lowering.decode import ROWS, decoded
from wsdsl.lowering.footprint import axis_sizes, depth_steps
from wsdsl.lowering.held_rows import held_axes
from wsdsl.lowering.heuristics.held_row_options import held_row_option
from wsdsl.lowering.heuristics.memory_bound_tiles import (
    counted_options,
    plain_tile,
    turns,
    walked_row_option,
)
from wsdsl.lowering.heuristics.tile_sizes import FEWEST_TILES, LINES, contracted, with_lines
from wsdsl.lowering.product_operands import computed_operands, operand_scales
from wsdsl.lowering.register_layout import holds_vectors
from wsdsl.lowering.smem_allocations import runs_ahead
from wsdsl.lowering.zero_trip_accumulate import handed_back
from wsdsl.schedule import Mode, Schedule, changed

SCALED_WIDTH = 64
"""The step of columns of MMAs with scaled accumulators: scales change at its multiples; 96 and 112
columns have 0.6 of the throughput of 128 on an H200.
"""
WIDTH = 16
"""Of other products; half of it more is tried as well where it saves something ..."""
FEW_WAVES = 4
"""... of a wave, or of so many at the most: of more, some number suits multiples of 16."""
SHORT = 16
"""So many promoted products are a short sum, whose results three consumers share to advantage; of
one alone results are all there is, and memory is the limit.
"""
ALONE_ROWS, ALONE_COLUMNS = 192, 128
"""Of a tile that one consumer has registers for, where every CTA has one tile: of several the
results of one would leave the tensor cores idle."""
FOUR_COLUMNS = 128
"""Whose sums four consumers have registers for, beside operands that they decode: of more columns
each would decode what another tile does, too."""


@dataclass
class Tried:
    """A schedule that may be; what takes long to find out is left for those that are looked at."""

    team: Schedule
    """All but its tiles."""
    tile: Sizes
    sizes: Sizes
    """Of a tile along every axis."""
    lines: Sizes
    """Tiles by which it may take several lines."""
    must_run_ahead: bool = False

    @classmethod
    def of(cls, kernel: Kernel, option: Schedule) -> Tried:
        tile = option.tile or {}
        return cls(option, tile, axis_sizes(kernel, option), tile)

    @cached_property
    def schedule(self) -> Schedule:
        return changed(self.team, tile={**self.tile})

    def fitted(self, kernel: Kernel, work: Work) -> Schedule | None:
        if self.must_run_ahead and not runs_ahead(kernel, self.schedule):
            return None
        if self.lines == self.schedule.tile:
            return self.schedule
        return with_lines(kernel, work, self.schedule, self.lines)


def schedule_options(
    kernel: Kernel, given: Schedule, work: Work, *, narrow: int = 0
) -> Iterator[Tried]:
    """Every way to fill in what `given` leaves open: the mode, the number of consumers, and the
    tiles of what they share; the smallest last. `narrow`: so many more sizes of what products make
    and others sum over, from a line on down by halves, where nothing else has room in registers.
    """
    tile = dict(given.tile or {}) | contracted(kernel, given, work)
    lines = contracted(kernel, given, work, LINES)
    rows, columns, depths = dict[str, str](), dict[str, str](), depth_steps(kernel)
    more = 1 + (narrow or int(kernel.target.has_tensor_memory))
    narrower = [dict[str, int]() for _ in range(more)]
    for name, axis in axes_of(kernel).items():
        variable = loop_variable(name)
        if not axis.role or name in whole_axes(kernel) or {name, variable} & {*tile}:
            continue
        if axis.role == "columns" and name in depths:
            # What a product sums over lies in registers as well: one line, as if it did not; two
            # where another product makes it, whose sums are rescaled once a tile, and where there
            # is room for what is decoded, since an iteration takes some time to begin. Of short
            # dimensions (pages of keys) no more than there is, where that can be.
            step, line = depths[name]
            step = max(step, ROWS if name in _decoded_axes(kernel) else 1)
            short = step << max(0, -(-work.size(axis.dim) // step) - 1).bit_length()
            tile[variable] = line * (2 if _is_made(kernel, name) else 1)
            if work.decoding and work.size(axis.dim) >= FEWEST_TILES * LINES * line:
                lines[variable] = line * LINES
            for held, size in zip(narrower, (short, line, *(line >> n for n in range(1, narrow)))):
                if size < tile[variable] and size % step == 0:
                    held[variable] = size
        else:
            (rows if axis.role == "rows" else columns)[name] = variable
    asked = changed(given, tile=tile)
    sides = [*rows.values()], [*columns.values()]
    option = held_row_option(kernel, asked, work, *sides)
    option = option or walked_row_option(kernel, asked, work, *sides)
    if option is not None:
        yield Tried.of(kernel, option)
        return
    counted = [*counted_options(kernel, asked, work, *sides)]
    yield from (Tried.of(kernel, option) for option in counted)
    if counted and given.smem_privatize:
        return
    # Of one height there is no other to take instead; in tensor memory 64 rows take as long as 128.
    scaled = scales_products(kernel) or kernel.target.has_tensor_memory
    by_sides = not held_axes(kernel) and taken_in_turns(kernel) is None
    for mode, consumers in _teams(kernel, given, work):
        team = changed(given, mode=mode, consumers=consumers)
        step, tall = _width_step(kernel, team), 128 * num_shares(kernel, team)["rows"]
        heights = _heights(kernel, given, team, work) if rows else (0,)
        widths = _widths(kernel, given, team, work) if columns else (0,)
        sums = [tile, *(tile | own for own in narrower if own)]
        tiles = ((deep, axis_sizes(kernel, changed(team, tile=deep))) for deep in sums)
        for (deep, sizes), height, width in itertools.product(tiles, heights, widths):
            own = deep | dict.fromkeys(sides[0], height) | dict.fromkeys(sides[1], width)
            if by_sides:
                sizes = sizes | dict.fromkeys(rows, height) | dict.fromkeys(columns, width)
            else:
                own = turns(kernel, work, own) | own
                sizes = axis_sizes(kernel, changed(team, tile=own))
            if width % step and not _comes_out(sizes, work, step // 2):
                continue
            alone = consumers == 1 and height == ALONE_ROWS
            if alone and (given.tile_n_variants or 1) > 1:
                # Other launches have several tiles a CTA, which take longer than the model knows
                # (benchmarks/results/one_off_races.md).
                continue
            if not alone or is_one_wave(work.target, work.num_tiles(sizes)):
                ahead = not scaled and height == tall
                yield Tried(team, own, sizes, own | lines, ahead)
                if work.decoding and own != own | lines:
                    # Fewer iterations, or more slots.
                    yield Tried(team, own, sizes, own, ahead)


def _heights(kernel: Kernel, given: Schedule, team: Schedule, work: Work) -> Sequence[int]:
    """Rows of a tile: one block for each consumer who shares them, and two, ..."""
    if not kernel.of(Contract):
        return [plain_tile(kernel, team, work)[0]]
    if kernel.target.has_tensor_memory:
        if num_shares(kernel, team)["rows"] > 1:
            return (num_shares(kernel, team)["rows"] * LANES,)
        return (128,) if operand_scales(kernel) or in_pairs(given) else (128, 64)
    shares = num_shares(kernel, team)
    apart = team.mode == "pingpong" or shares["columns"] > 1
    heights = [128, 64] if apart else [64 * shares["rows"]]
    tall = 128 * shares["rows"]
    both = team.mode == "cooperative" and tall <= 256
    if both and (_in_place(kernel) or not work.thin) and tall not in heights:
        # Where products are scaled, blocks take turns with a consumer's accumulators.
        heights.append(tall)
    if team.consumers == 1 and _may_be_alone(kernel, work):
        # ... and three.
        few = given.consumers == 1 or _are_few(kernel, work)
        heights = [*(heights if few else ()), ALONE_ROWS]
    return heights


def _widths(kernel: Kernel, given: Schedule, team: Schedule, work: Work) -> Sequence[int]:
    """Columns of a tile, in steps and then in between, that all who share sums can have slices of;
    the smallest last.
    """
    step, sharing = _width_step(kernel, team), cluster_splits(kernel, given)
    each = slice_step(kernel, given) * sharing if sharing > 1 else 1
    widest = 256 // step * step
    if (variants := given.tile_n_variants or 1) > 1:
        narrow = any(has_narrow_chunks(kernel, axes_of(kernel)[name]) for name in work.columns)
        return [w for w in range(widest, 0, -step) if most_widths(w, narrow) >= variants]
    widths = [w for w in range(widest, 0, -step) if w % each == 0] or [widest]
    if work.few_columns:
        is_open = given.cluster is None and given.scheduler in (None, "auto")
        return _around(widths, max(work.columns.values()), 2 if is_open else 1)
    if not kernel.of(Contract):
        return [-(-plain_tile(kernel, team, work)[1] // step) * step]
    between = not scales_products(kernel) and work.sized and column_step(kernel, given) < WIDTH
    between = between and not kernel.target.has_tensor_memory
    halves = range(widest - step // 2, 0, -step) if between else ()
    return [*widths, *(w for w in halves if w % each == 0)]


def _width_step(kernel: Kernel, team: Schedule) -> int:
    by_wgmma = not kernel.target.has_tensor_memory
    each = SCALED_WIDTH if by_wgmma and scales_products(kernel) else WIDTH
    axes = axes_of(kernel)
    if any(axes[name].role == "columns" for name in _decoded_axes(kernel)):
        each = max(each, ROWS)
    blocks = (block_step(kernel, name) for name, a in axes.items() if a.role == "columns")
    whole = math.lcm(each, *blocks)
    return (whole if whole <= MOST else each) * num_shares(kernel, team)["columns"]


def _decoded_axes(kernel: Kernel) -> set[str]:
    """Along lines of what a partition of its own decodes."""
    return {tile.axes[0] for tile in decoded(kernel).tiles.values()}


def _around(widths: Sequence[int], size: int, most: int) -> Sequence[int]:
    """One tile holds all of few columns: several would load the rows twice. The narrowest first;
    the next one can be cut into more slices, for more CTAs.
    """
    return sorted(width for width in widths if width >= size)[:most] or widths


def _comes_out(tile: Sizes, work: Work, step: int) -> bool:
    """Whether tiles that are a `step` narrower would leave columns over, take another wave, of few,
    or be more than clusters have room for.
    """
    for name, size in work.columns.items():
        if -size % tile[name] < step:
            return True
    sms, num, room = work.target.num_sms, work.num_tiles(tile), 8 * work.target.cluster_room(8)
    waves = -(-num // sms)
    # As many CTAs run at the same time in clusters of four as of eight.
    if waves > FEW_WAVES and num > room:
        return False
    more = work.num_tiles({**tile, **{name: tile[name] - step for name in work.columns}})
    return (waves <= FEW_WAVES and waves < -(-more // sms)) or num <= room < more


def _is_made(kernel: Kernel, axis: str) -> bool:
    """Whether the results of a product run along the axis."""
    kinds = (op.result.type for op in kernel.of(Contract))
    return any(isinstance(kind, Tile) and axis in kind.axes for kind in kinds)


def _in_place(kernel: Kernel) -> bool:
    """Whether there are products, and all are added to a sum where they are made."""
    products = kernel.of(Contract)
    return bool(products) and all(op.acc is not None for op in products)


def _decodes(kernel: Kernel) -> bool:
    """Whether consumers compute operands of products that are added where they are made."""
    computed = (computed_operands(kernel, op) for op in kernel.of(Contract))
    return _in_place(kernel) and any(computed) and not decoded(kernel).tiles


def _are_few(kernel: Kernel, work: Work) -> bool:
    """Whether smaller tiles than the usual ones use more SMs, or memory is the limit anyhow."""
    return work.thin or work.num_tiles(dict.fromkeys(axes_of(kernel), 128)) < work.target.num_sms


def _may_be_alone(kernel: Kernel, work: Work) -> bool:
    """Whether tiles of `ALONE_ROWS` may make one wave."""
    if not _in_place(kernel) or not work.sized or work.thin:
        return False
    axes = axes_of(kernel).items()
    largest = {n: ALONE_ROWS if a.role == "rows" else ALONE_COLUMNS for n, a in axes}
    return work.num_tiles(largest) <= work.target.num_sms


def _teams(kernel: Kernel, given: Schedule, work: Work) -> Iterator[tuple[Mode, int]]:
    """Modes with numbers of consumers, the usual ones first. One alone is for few rows or columns,
    or tiles so few that smaller ones use more SMs. Ping-pong pays where there are several tiles a
    CTA, and consumers do nothing beside the products but at the end.
    """
    axes = axes_of(kernel)
    rows = {name: axis for name, axis in axes.items() if axis.role == "rows"}
    heights = [size for name, size in axis_sizes(kernel, given).items() if size and name in rows]
    if kernel.target.has_tensor_memory and kernel.of(Contract):
        # Sums are not theirs to hold: two compute more, where products wait for that.
        numbers = (1, 2) if handed_back(kernel) and not in_pairs(given) else (1,)
        if heights:
            numbers = (2,) if all(h == 2 * LANES for h in heights) else (1,)
        for consumers in (given.consumers,) if given.consumers else numbers:
            yield given.mode or "cooperative", consumers
        return
    few = bool(kernel.of(Contract)) and _are_few(kernel, work)
    in_place, alone = _in_place(kernel), _may_be_alone(kernel, work)
    if given.mode != "pingpong":
        short = not in_place and 1 < work.under(dict.fromkeys(axes, 128)).promoted <= SHORT
        several = (3, 2) if scales_products(kernel) else (2,)
        by_rows = shared_role(kernel, given) == "rows"
        # Three leave threads that copy too few registers.
        if short or (in_place and by_rows and not (work.decoding or work.copied)):
            several = *several, 3
        usual = (2, 1) if few or heights or alone else several
        if holds_vectors(kernel):
            usual = (1,)  # Other CTAs hide the latency of one.
        if heights and all(h % 192 == 0 for h in heights):
            usual = (2, 3, 1)
        if 0 < max(work.columns.values(), default=0) <= FOUR_COLUMNS and _decodes(kernel):
            # Four hide more of what it takes from the bytes of a step to its products.
            usual = (*usual, 4)
        numbers = (given.consumers,) if given.consumers else usual
        fitting = [c for c in numbers if all(h % (64 * c if by_rows else 64) == 0 for h in heights)]
        for consumers in fitting or numbers[-1:]:
            yield "cooperative", consumers
    undecided = given.mode is None and given.consumer_split is None and given.consumers != 1
    undecided = undecided and cluster_splits(kernel, given) == 1
    turns = in_place and not few and undecided
    if given.mode == "pingpong" or turns:
        yield "pingpong", given.consumers or 2
