"""The tile, consumers and cluster by which rows of kernels without products are held whole.

A tile has as many rows as fill a thread's registers, if enough CTAs then have one to hide each
other's latency. The CTAs of a cluster share a row that is too long for one of them, and then
several consumers of each: more CTAs on an SM hide more than larger ones do. Longer rows that are
read once need not be held: if there are enough of them each CTA walks its own, and loads a tile
while it computes with the one before.
"""

from collections.abc import Iterator, Sequence

from wsdsl.ir.op import Kernel
from wsdsl.ir.types import THREADS, Sizes
from wsdsl.lowering import held_rows
from wsdsl.lowering.axes import axes_of, loop_variable, whole_axes
from wsdsl.lowering.cooperation import cluster_along, is_shared
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.register_layout import MOST_COLUMNS, ROWS, loads_packed
from wsdsl.schedule import Schedule, changed

TEAMS = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8))
"""Consumers and CTAs that share a row, in the order in which they are tried, ..."""
OF_ONE_CTA = ((1, 1), (2, 1), (4, 1))
"""... and those where only one CTA may have it."""
CTAS = (1, 2, 4, 8)
ENOUGH = 4
"""CTAs on an SM, before a tile has several rows."""
FEWER = (1, 2)
"""CTAs on an SM that are given up for registers before a row has more threads: `ctas_holding` is
right of what computes little."""


def held_row_option(
    kernel: Kernel, given: Schedule, work: Work, rows: Sequence[str], columns: Sequence[str]
) -> Schedule | None:
    """What is left open filled in, with the variables of the axes that are `rows` and `columns`;
    None if rows are not to be held.
    """
    held = held_rows.held_axes(kernel)
    if not held or given.mode == "pingpong" or given.cuts_tiles:
        return None
    if (streamed := _streamed(kernel, given, work, rows, columns)) is not None:
        return streamed
    team = _team(kernel, given, max(held.values()))
    if team is None:
        return None
    consumers, ctas = team
    sizes = axis_sizes(kernel, given)
    if any(0 < sizes[name] * ctas < size for name, size in held.items()):
        return None
    height = held_rows.height_in(kernel, sizes)
    own = {name: -(-size // (ctas * consumers)) for name, size in held.items()}
    if rows:
        alone = consumers * ctas == 1
        height = held_rows.fewest_rows(kernel)
        height = _height(kernel, work, rows, max(own.values())) if alone and height == 1 else height
    tile = dict.fromkeys(rows, height)
    for name, size in own.items():
        if loop_variable(name) in columns:
            tile[loop_variable(name)] = consumers * held_rows.covering_columns(kernel, size, height)
    tile |= _others(columns, tile, height)
    variable = loop_variable(next(iter(held)))
    return changed(
        given,
        mode="cooperative",
        consumers=consumers,
        consumer_split=variable if consumers > 1 else given.consumer_split,
        cluster={variable: ctas} if ctas > 1 else given.cluster,
        tile={**(given.tile or {}), **tile},
    )


def _streamed(
    kernel: Kernel, given: Schedule, work: Work, rows: Sequence[str], columns: Sequence[str]
) -> Schedule | None:
    held, width = held_rows.held_axes(kernel), held_rows.streamed_columns(kernel)
    names = {loop_variable(name) for name in held}
    settled = given.cluster or (given.consumers or 1) > 1 or not names <= {*columns}
    settled = settled or loads_packed(kernel) or held_rows.reads_again(kernel)
    if settled or max(held.values()) <= width:
        return None
    tile = {**dict.fromkeys(rows, 1), **dict.fromkeys(names, width), **(given.tile or {})}
    tile |= _others(columns, tile, 1)
    if work.sized and _num_tiles(kernel, work, tile) < _enough(work):
        return None
    return changed(
        given,
        mode="cooperative",
        consumers=1,
        scheduler=given.scheduler or "persistent",
        stages=given.stages or held_rows.STREAMED_STAGES,
        ctas_per_sm=given.ctas_per_sm or held_rows.STREAMED_CTAS,
        tile=tile,
    )


def _num_tiles(kernel: Kernel, work: Work, tile: Sizes) -> int:
    """Of whole rows, by tiles of these sizes, of one index along what has none."""
    sizes = {name: tile.get(loop_variable(name), 1) for name in axes_of(kernel)}
    return work.num_tiles({**sizes, **held_rows.held_axes(kernel)})


def _others(columns: Sequence[str], tile: Sizes, height: int) -> dict[str, int]:
    """Tiles of columns that are not reduced, for all threads of so many rows."""
    size = max(MOST_COLUMNS, 2 * THREADS // height)
    return {name: size for name in columns if name not in tile}


def _enough(work: Work) -> int:
    return ENOUGH * work.target.num_sms


def _team(kernel: Kernel, given: Schedule, longest: int) -> tuple[int, int] | None:
    """Of those that are left open the first whose threads have room, usually or at all."""
    held, tile = held_rows.held_axes(kernel), axis_sizes(kernel, given)
    ctas = max((cluster_along(given, name) for name in held), default=1)
    own = max((tile[name] for name in held if name not in whole_axes(kernel)), default=0)
    if given.consumers is None and given.cluster is None and not own:
        teams = _teams(kernel)
    else:
        settled = given.cluster is not None or own
        teams = [(given.consumers or 1, c) for c in CTAS if c == ctas or not settled]
    shares = given.consumer_split is None or any(is_shared(name, given) for name in held)
    most = held_rows.elements_held(kernel)
    alone = [team for team in teams if team[0] == 1]

    def needed(team: tuple[int, int]) -> int:
        return held_rows.elements_needed(kernel, -(-longest // (team[0] * team[1])))

    first = (min(held_rows.USUAL_HELD, most), alone)
    if loads_packed(kernel):
        first = (most, [t for t in reversed(alone) if needed(t) >= held_rows.USUAL_HELD])
    for room, tried in (first, (most, alone), (most, teams)):
        for n, c in tried:
            fits = own * c >= longest if own else True
            if (n == 1 or shares) and fits and needed((n, c)) <= room:
                return n, c
    return None


def _teams(kernel: Kernel) -> Sequence[tuple[int, int]]:
    return OF_ONE_CTA if held_rows.read_and_stored(kernel) else TEAMS


def _height(kernel: Kernel, work: Work, rows: Sequence[str], longest: int) -> int:
    fewest = held_rows.covering_columns(kernel, longest, ROWS)
    height = held_rows.usual_height(kernel, fewest)
    while height > 1 and work.sized:
        if held_rows.covering_columns(kernel, longest, height // 2) > fewest:
            break  # Threads would have no column.
        if _num_tiles(kernel, work, dict.fromkeys(rows, height)) >= _enough(work):
            break
        height //= 2
    return height


def with_fewer_elements(kernel: Kernel, chosen: Schedule, given: Schedule) -> Iterator[Schedule]:
    """`given` with fewer rows than were `chosen`, or with more threads for each; of a kernel with
    roles, whose threads have too few registers.
    """
    held = [loop_variable(name) for name in held_rows.held_axes(kernel)]
    if not held or not chosen.ctas_per_sm or given.consumers or given.cluster:
        return
    if not held_rows.are_held(kernel, chosen, axis_sizes(kernel, chosen)):
        return
    rows = [loop_variable(n) for n, axis in axes_of(kernel).items() if axis.role == "rows"]
    tile, height = dict(given.tile or {}), max((chosen.tile or {}).get(n, 1) for n in [*rows, ""])
    if not {*rows} & tile.keys():
        while height > held_rows.fewest_rows(kernel):
            height //= 2
            yield changed(given, tile={**tile, **dict.fromkeys(rows, height)})
    team = chosen.consumers or 1, cluster_along(chosen, held[0])
    longest = max(held_rows.held_axes(kernel).values())
    for consumers, ctas in (team, *(t for t in _teams(kernel) if t[0] * t[1] > team[0] * team[1])):
        needed = held_rows.elements_needed(kernel, -(-longest // (consumers * ctas)))
        cluster = {held[0]: ctas} if ctas > 1 else None
        least = changed(given, consumers=consumers, cluster=cluster)
        if (consumers, ctas) != team:
            yield least
        each = needed * height // held_rows.fewest_rows(kernel)
        most = held_rows.ctas_holding(kernel, each, consumers)
        if not given.ctas_per_sm:
            yield from (changed(least, ctas_per_sm=most - n) for n in FEWER if most > n)
