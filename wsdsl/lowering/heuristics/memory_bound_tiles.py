"""Tiles of kernels without products, of which no row is held whole or walked.

Of vectors a thread has as many elements as make 128 bytes of all that it loads: then registers
leave room for so many CTAs that some load while others compute. Where CTAs would be too few for
that, their tiles are smaller. Consumers that share rows have 64 of them each.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import ForTiles, Load
from wsdsl.ir.types import THREADS, Role, Sizes
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest, whole_axes
from wsdsl.lowering.batch_coarsening import taken_in_turns
from wsdsl.lowering.cooperation import cluster_size, num_shares
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.held_rows import MOST_HELD, USUAL, USUAL_HELD
from wsdsl.lowering.register_layout import (
    HELD_BYTES,
    MOST_COLUMNS,
    ROWS,
    flat_axis,
    holds_vectors,
    loads_packed,
    reduces_rows,
    thread_vector,
    turned,
    turned_height,
    turned_width,
)
from wsdsl.lowering.smem_privatization import countable, counter_faults
from wsdsl.schedule import Schedule, changed

PLAIN_WIDTH = 64
"""Columns of what is not held in vectors, which gains nothing by more."""
WIDTHS = (16, 32, 64, MOST_COLUMNS, 2 * MOST_COLUMNS)
MOST_TURNS = 4
"""More save little beside what each moves for itself, and CTAs that take as long end apart."""
LEAST_COLUMNS, LEAST_ROWS, LEAST_HELD, CTAS = 32, 16, 8, 4
"""Of a tile; elements of a thread, at the least; and CTAs on an SM, if there is enough to do."""
COUNTED = 16
"""Elements of a thread that adds to counters, by one atomic addition each."""


def plain_tile(kernel: Kernel, team: Schedule, work: Work) -> tuple[int, int]:
    """Rows and columns, for a team of consumers."""
    sharing = num_shares(kernel, team)["rows"]
    if not holds_vectors(kernel):
        return ROWS * sharing, PLAIN_WIDTH
    if loads_packed(kernel):
        return ROWS * sharing, MOST_COLUMNS
    if flat_axis(kernel) is not None:
        return ROWS * sharing * _flat_columns(kernel, work), 0
    if turned(kernel):
        return _turned_height(kernel, team) * sharing, _turned_width(kernel, work)
    height, width = _vector_tile(kernel, work)
    if sharing > 1:
        return ROWS * sharing, min(width, MOST_COLUMNS)
    return ROWS if reduces_rows(kernel) else height, width


def turns(kernel: Kernel, work: Work, tile: Sizes) -> dict[str, int]:
    """Indices that a CTA takes one after the other, by the loop's variable, if there are any."""
    loop = taken_in_turns(kernel)
    found = MOST_TURNS if loop and work.sized else 1
    while loop and found > min(1, work.size(loop.dim)):
        if found <= work.size(loop.dim) and _are_enough(work, {**tile, loop.index.name: found}):
            break
        found //= 2
    return {loop.index.name: max(1, found)} if loop else {}


def counted_tile(kernel: Kernel, team: Schedule, work: Work) -> tuple[int, int]:
    """Of a team whose CTA counts in SMEM: all of its warps are to have something under way, in the
    registers of which the CTAs have half as many as others.
    """
    held = _elements(kernel, COUNTED, HELD_BYTES // 2)
    sharing, name = num_shares(kernel, team)["rows"], flat_axis(kernel)
    if name is None:
        return ROWS * sharing, max(LEAST_COLUMNS, THREADS * held // ROWS)
    while held > thread_vector(kernel) and not _are_enough(work, {name: THREADS * sharing * held}):
        held //= 2
    return THREADS * sharing * held, 0


def _vector_tile(kernel: Kernel, work: Work) -> tuple[int, int]:
    """As wide as lines of 512 bytes of 16-bit elements."""
    sides = _sides(kernel)
    if "rows" not in sides.values():
        return 0, _line_width(kernel, work)
    widest, held = _widest(work), _elements(kernel, USUAL, HELD_BYTES // 2)
    while True:
        width = min(widest, max(LEAST_COLUMNS, THREADS * held // LEAST_ROWS))
        height = min(ROWS, max(LEAST_ROWS, THREADS * held // width))
        own = {name: height if side == "rows" else width for name, side in sides.items()}
        if held <= LEAST_HELD or _are_enough(work, own):
            return height, width
        held //= 2


def _flat_columns(kernel: Kernel, work: Work) -> int:
    """Of the pieces of an axis that has rows and columns for itself, likewise."""
    name = flat_axis(kernel)
    assert name is not None
    columns = min(MOST_COLUMNS, _elements(kernel, USUAL_HELD, HELD_BYTES) * THREADS // ROWS)
    while columns > LEAST_COLUMNS and not _are_enough(work, {name: ROWS * columns}):
        columns //= 2
    return max(LEAST_COLUMNS, columns)


def _sides(kernel: Kernel) -> dict[str, Role]:
    return {name: axis.role for name, axis in axes_of(kernel).items() if axis.role}


def _widest(work: Work) -> int:
    """That is needed."""
    needed = max(work.columns.values(), default=WIDTHS[-1])
    return next(w for w in WIDTHS if w >= min(needed, WIDTHS[-1]))


def _line_width(kernel: Kernel, work: Work) -> int:
    """Of a tile that has no rows: what all threads hold of a line."""
    names = [*_sides(kernel)]
    held, least = _elements(kernel, USUAL_HELD, HELD_BYTES), max(2, thread_vector(kernel))
    while held > least and not _are_enough(work, dict.fromkeys(names, THREADS * held)):
        held //= 2
    return THREADS * held


def _turned_height(kernel: Kernel, team: Schedule) -> int:
    """Fewer rows where a given width leaves registers for no more."""
    tile, axes = team.tile or {}, axes_of(kernel).items()
    columns = [a.size or tile.get(loop_variable(n), 0) for n, a in axes if a.role == "columns"]
    height = turned_height(kernel)
    while height > ROWS and height * max(columns, default=0) > THREADS * MOST_HELD:
        height //= 2
    return height


def _turned_width(kernel: Kernel, work: Work) -> int:
    """Rows are lines of 128 bytes in what is turned; memory gives lines of 64 as quickly."""
    height, sides = turned_height(kernel), _sides(kernel)
    widest, least = min(_widest(work), MOST_COLUMNS, turned_width(kernel)), height // 2

    def tile(width: int) -> dict[str, int]:
        return {name: height if side == "rows" else width for name, side in sides.items()}

    if not work.sized or work.num_tiles(tile(least)) == work.num_tiles(tile(widest)):
        return widest
    enough = (w for w in WIDTHS[::-1] if _are_enough(work, tile(w)))
    return min(widest, max(least, next(enough, least)))


def _elements(kernel: Kernel, most: int, bytes: int) -> int:
    """Of a thread, so that what it loads has so many bytes: a power of two."""
    loads = [op for op in kernel.of(Load) if op.axes]
    tiles = [op for op in loads if len(op.result.as_tile.axes) > 1] or loads
    each = {(op.tensor, op.index): op.dtype.bytes for op in tiles}
    held = min(most, bytes // max(1, sum(each.values())))
    return 1 << max(1, held).bit_length() - 1


def _are_enough(work: Work, tile: Sizes) -> bool:
    return not work.sized or work.num_tiles(tile) >= CTAS * work.target.num_sms


# Schedules of kernels that privatize bins in SMEM.
CONSUMERS, COUNTED_CTAS = (4, 2, 1), 2
"""Of a CTA, the best first; and on an SM, if their counters have room."""


def counted_options(
    kernel: Kernel, given: Schedule, work: Work, rows: Sequence[str], columns: Sequence[str]
) -> Iterator[Schedule]:
    """What is left open filled in, with the variables of the axes that are `rows` and `columns`;
    none if there are to be no counters.
    """
    if (given.smem_privatize is None and not work.sized) or given.smem_privatize == {}:
        return
    if given.mode == "pingpong" or given.cuts_tiles or cluster_size(given) > 1:
        return
    dims = {name: op.tensor.as_tensor.dims for name, op in countable(kernel).items()}
    known = {name: tuple(map(work.size, own)) for name, own in dims.items()}
    smallest = min(known, key=lambda name: math.prod(known[name]), default="")
    counters = given.smem_privatize or {name: known[name] for name in known if name == smallest}
    scheduler = "persistent" if given.scheduler in (None, "auto") else given.scheduler
    # Tiles that are given may be too small for all.
    teams = [given.consumers] if given.consumers else CONSUMERS if given.tile else CONSUMERS[:1]
    on_sm = [given.ctas_per_sm] if given.ctas_per_sm else range(COUNTED_CTAS, 0, -1)
    for consumers, ctas in itertools.product(teams, on_sm if counters else ()):
        option = changed(
            given,
            mode="cooperative",
            consumers=consumers,
            scheduler=scheduler,
            ctas_per_sm=ctas,
            smem_privatize=dict(counters),
        )
        height, width = counted_tile(kernel, option, work)
        tile = dict.fromkeys(rows, height) | dict.fromkeys(columns, width)
        option = changed(option, tile=tile | dict(given.tile or {}))
        if not any(counter_faults(kernel, option)):
            yield option
            if not given.tile:
                return


# Schedules of kernels that traverse rows without keeping them in registers.
WARPS = 4


def walked_row_option(
    kernel: Kernel, given: Schedule, work: Work, rows: Sequence[str], columns: Sequence[str]
) -> Schedule | None:
    """What is left open filled in, with the variables of the axes that are `rows` and `columns`;
    None if no rows are walked, or in another way.
    """
    apart = {loop.index for loop in output_nest(kernel)[0] if isinstance(loop, ForTiles)}
    walked = {op.index.as_axis for op in kernel.of(ForTiles) if op.index not in apart}
    dims = {a.dim for a in walked if loop_variable(a.name) in columns}
    packed = loads_packed(kernel)
    if not dims or not rows or not work.sized or packed or not holds_vectors(kernel):
        return None
    if reduces_rows(kernel) or flat_axis(kernel) is not None or turned(kernel):
        return None
    if given.mode == "pingpong" or cluster_size(given) > 1 or (given.consumers or 1) > 1:
        return None
    longest = max(work.size(dim) for dim in dims)
    height = max(WARPS, THREADS * USUAL // (1 << max(0, longest - 1).bit_length()))
    sizes, axes = axis_sizes(kernel, given), axes_of(kernel)
    for name in whole_axes(kernel):
        if axes[name].role == "columns" and sizes[name]:
            # All who share a row have a pair of its columns.
            height = max(height, 2 * THREADS // sizes[name])
    height = min(ROWS, height)
    tile = {**dict.fromkeys(rows, height), **dict.fromkeys(columns, THREADS * USUAL // height)}
    tile = {**tile, **(given.tile or {})}
    return changed(given, mode="cooperative", consumers=1, tile=tile)
