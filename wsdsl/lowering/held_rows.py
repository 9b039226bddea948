"""Register-resident rows of memory-bound kernels (TILE).

A kernel that reduces a row, and then reads it again, loads it from memory once if a tile has the
whole row: its loops over this dimension have one trip, and `hold_rows` removes them. The height of
tiles fills the registers of threads, and no more, since other CTAs hide the latency of one.
"""

import math

from wsdsl.diagnostics import CompileError
from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.op import Kernel, Makers, Value, once
from wsdsl.ir.ops import Constant, Contract, DimSize, ForTiles, Index, Load, Map, Reduce, Store
from wsdsl.ir.types import THREADS, Sizes, Tile
from wsdsl.lowering.assign_roles import assign_roles
from wsdsl.lowering.axes import axes_of, output_nest, whole_axes
from wsdsl.lowering.cooperation import cluster_along, num_shares
from wsdsl.lowering.register_layout import (
    HELD_BYTES,
    ROWS,
    axes_across,
    holds_vectors,
    loads_packed,
    piece_height,
    piece_lanes,
    reduces_across,
    reduces_rows,
    thread_vector,
    within_warps,
)
from wsdsl.schedule import Schedule

CTAS_BY_ELEMENTS = ((32, 6), (64, 5), (128, 3))
"""CTAs per SM, by the most elements per thread, in 80, 96 or 168 registers."""
BESIDE = 38
"""Registers per thread in addition to those of loaded elements: for addresses, reduced values, and
the accesses that are computed with. With fewer registers ptxas loads a row in sequential parts;
kernels with more arithmetic have fewer CTAs."""
ENOUGH, MOST_ON_SM = 4, 8
"""CTAs per SM: factors of rows are in registers, too, if this many CTAs remain; more are never
requested."""
STREAMED_CTAS, STREAMED_STAGES = 3, 2
"""CTAs per SM for rows that are not register-resident, and tiles in registers of a thread: about
100 KB are in flight, in 168 registers per thread.
"""
LEAST = 8
"""Columns of a tile."""
MOST_CTAS = 8
"""CTAs of a cluster that any GPU launches."""
MOST_HELD, MOST_SHARING = 128, 4 * MOST_CTAS
"""Elements of a thread; and warpgroups that share rows, in a cluster."""
USUAL_HELD = 64
"""Elements of a thread, where a row may have more threads."""
USUAL = 32
"""The same where rows are short enough: six CTAs hide a latency that fewer do not, which shows in
what computes much."""


def held_dims(kernel: Kernel) -> frozenset[str]:
    """Return the dimensions along which rows of a memory-bound kernel are reduced, or are
    contiguous: each size of one has a separate kernel, with a constant end of rows.
    """
    given = {op.dim for op in kernel.of(ForTiles) if op.index.as_axis.size}
    if reduces_across(kernel):
        rows = {op.axis for op in kernel.of(Reduce)}
        loads = (op.axes for op in kernel.of(Load))
        return frozenset(a[-1].dim for a in loads if any(x.name in rows for x in a[:-1])) - given
    return _reduced_dims(kernel) - given


def moved_dims(kernel: Kernel) -> frozenset[str]:
    """Return the dimensions whose sizes offset indices along contiguous memory, such as
    `index(n) + N`, in a memory-bound kernel: with a known size, threads access vectors there.
    """
    if kernel.of(Contract):
        return frozenset()
    places = (op.index[-1] for op in kernel.of(Load, Store) if op.index)
    return frozenset().union(*(_moved_by(place, kernel.definers) or () for place in places))


def _moved_by(place: Value, made: Makers) -> frozenset[str] | None:
    """None if it does not go on with an axis."""
    match made.get(place):
        case Index():
            return frozenset()
        case Map(fn="add" | "sub" as fn, args=(x, y)):
            if fn == "add" and isinstance(made.get(x), Constant | DimSize):
                x, y = y, x
            by, found = made.get(y), _moved_by(x, made)
            if found is None or not isinstance(by, Constant | DimSize):
                return None
            return found | {by.dim} if isinstance(by, DimSize) else found
        case _:
            return None


@once
def _reduced_dims(kernel: Kernel) -> frozenset[str]:
    if kernel.of(Contract) or not kernel.of(Reduce) or within_warps(kernel):
        return frozenset()
    reduced = {op.axis for op in kernel.of(Reduce)} - axes_across(kernel)
    found = {axes_of(kernel)[name].dim for name in reduced}
    walked = {name for name, axis in axes_of(kernel).items() if axis.dim in found}
    loops = [op for op in kernel.of(ForTiles) if op.index.as_axis.name in walked]
    apart = [loop for loop in output_nest(kernel)[0] if isinstance(loop, ForTiles)]
    pieces = {op.dim for op in apart if not op.whole and op.index.as_axis.name in reduced}
    return frozenset(found - pieces - {op.dim for op in loops if walks_a_part(op)})


@once
def held_axes(kernel: Kernel) -> Sizes:
    """Axes that lie along rows, by name, of dimensions that are held if there is room: their sizes.
    Of a kernel with roles.
    """
    known, dims = dict(kernel.sizes), _reduced_dims(kernel)
    if not dims or not holds_vectors(kernel):
        return {}
    axes = {n: a for n, a in axes_of(kernel).items() if a.dim in dims}
    if any(a.role != "columns" or known.get(a.dim, 0) < 1 for a in axes.values()):
        return {}
    if any(axes_of(kernel)[name].role == "columns" for name in whole_axes(kernel) - axes.keys()):
        return {}  # Which is as short as it is, and need not have a column for each thread.
    return {name: known[axis.dim] for name, axis in axes.items()}


@once
def read_and_stored(kernel: Kernel) -> frozenset[str]:
    """Return the tensors that the kernel loads, and also stores at other indices than columns of
    rows: each of the CTAs of a row would store them, and one might load another's store.
    """
    held = held_axes(kernel).keys()
    read = {op.tensor.name for op in kernel.of(Load)}
    beside = (op for op in kernel.of(Store) if not held & {axis.name for axis in op.axes})
    return frozenset(op.tensor.name for op in beside if op.tensor.name in read)


@once
def row_bytes(kernel: Kernel) -> float:
    """Of one column, in all that is loaded along rows: each tensor once."""
    held, found = held_axes(kernel), dict[Value, float]()
    for op in kernel.of(Load):
        kind = op.result.type
        if isinstance(kind, Tile) and len(kind.axes) > 1 and held.keys() & {*kind.axes}:
            found[op.tensor] = op.dtype.bits / 8
    return sum(found.values())


@once
def vector_bytes(kernel: Kernel) -> float:
    """Of one column, in all that is loaded along them and is the same for all rows; by element of a
    thread, which has two rows of packed tensors.
    """
    held, found = held_axes(kernel), dict[Value, int]()
    for op in kernel.of(Load):
        kind = op.result.type
        if isinstance(kind, Tile) and len(kind.axes) == 1 and held.keys() & {*kind.axes}:
            found[op.tensor] = op.dtype.bytes
    return sum(found.values()) / (2 if loads_packed(kernel) else 1)


def elements_held(kernel: Kernel) -> int:
    """Elements of rows per thread, at the most; those of packed tensors are used as they come."""
    if loads_packed(kernel):
        return 8 * HELD_BYTES // sum(op.dtype.bits for op in kernel.of(Load) if op.packed)
    return min(MOST_HELD, int(HELD_BYTES // max(2, row_bytes(kernel))))


def most_elements(kernel: Kernel) -> int:
    """Elements of a tile per thread, at the most."""
    return elements_held(kernel) if loads_packed(kernel) else MOST_HELD


def fewest_rows(kernel: Kernel) -> int:
    """Rows of a tile, at the least."""
    return ROWS if loads_packed(kernel) else 1


def elements_needed(kernel: Kernel, columns: int) -> int:
    """Elements per thread of rows with this number of columns, in tiles of the fewest rows."""
    rows = fewest_rows(kernel)
    return covering_columns(kernel, columns, rows) * rows // THREADS


def with_roles(kernel: Kernel) -> Kernel | None:
    """Return None if the kernel can have no such rows; `assign_roles` reports it if necessary."""
    try:
        return assign_roles(kernel)
    except CompileError:
        return None


def room_for_rows(kernel: Kernel) -> dict[str, int]:
    """How long a dimension may be that one tile has whole, by axis, of a kernel without roles."""
    roled = with_roles(kernel) if held_dims(kernel) else None
    if roled is None:
        return {}
    most = MOST_SHARING // (MOST_CTAS if read_and_stored(roled) else 1)
    most *= THREADS * elements_held(roled) // fewest_rows(roled)
    return dict.fromkeys(held_axes(roled), most)


def usual_height(kernel: Kernel, columns: int) -> int:
    """Return the rows of a tile with this number of columns."""
    usual = THREADS * min(USUAL, int(HELD_BYTES // max(2, row_bytes(kernel))))
    return min(ROWS, 1 << max(0, (usual // columns).bit_length() - 1))


def covering_columns(kernel: Kernel, size: int, height: int) -> int:
    """Return the columns of a tile for a row: whole vectors of all threads that share it."""
    vector = thread_vector(kernel)
    lanes = 1 << max(0, (-(-size // vector) - 1).bit_length())
    least = PACKED_LINES if loads_packed(kernel) else LEAST
    unit = max(least, vector * max(THREADS // height, min(32, lanes)))
    return -(-size // unit) * unit


def height_in(kernel: Kernel, sizes: Sizes) -> int:
    """Return the rows of a fragment, by tile sizes; one row if no axis is along rows."""
    if reduces_rows(kernel):
        columns = (sizes.get(n, 0) for n, a in axes_of(kernel).items() if a.role == "columns")
        return piece_height(piece_lanes(kernel, math.gcd(*columns)))
    rows = [sizes.get(n, 0) for n, a in axes_of(kernel).items() if a.role == "rows"]
    return math.gcd(ROWS, *rows) if rows else 1


def are_held(kernel: Kernel, schedule: Schedule, sizes: Sizes) -> bool:
    """Whether there are rows to hold, and tiles of these sizes have whole ones. Where CTAs share
    the iterations of a loop along rows, it stays.
    """
    held = held_axes(kernel)
    return (
        bool(held)
        and not schedule.cuts_tiles
        and all(sizes[name] * cluster_along(schedule, name) >= n for name, n in held.items())
    )


def ctas_per_sm(kernel: Kernel, schedule: Schedule, sizes: Sizes) -> int | None:
    """That have registers for tiles of these sizes, if they have whole rows."""
    if not are_held(kernel, schedule, sizes):
        return None
    consumers = num_shares(kernel, schedule)["columns"]
    columns = max(sizes[name] for name in held_axes(kernel)) // consumers
    return ctas_holding(kernel, height_in(kernel, sizes) * columns // THREADS, consumers)


def ctas_holding(kernel: Kernel, elements: int, consumers: int) -> int:
    """Count the CTAs per SM with registers for this number of elements of rows per thread, and for
    their factors, if enough CTAs remain.
    """
    loaded = row_bytes(kernel), vector_bytes(kernel)
    words = [math.ceil(elements * size / 4) for size in loaded]
    groups = [
        kernel.target.register_file // (THREADS * (n + BESIDE)) for n in (sum(words), words[0])
    ]
    found = groups[0] if groups[0] >= ENOUGH else groups[1]
    return max(1, min(MOST_ON_SM, found) // consumers)


def ctas_with(elements: int, consumers: int) -> int:
    """Count the CTAs per SM with registers for this number of elements per thread."""
    return max(1, next((n for most, n in CTAS_BY_ELEMENTS if elements <= most), 1) // consumers)


@once
def reads_again(kernel: Kernel) -> bool:
    """Whether rows are gone over again."""
    along = {axis.name for op in loaded_before(kernel) for axis in op.axes}
    return bool(along & held_axes(kernel).keys())


def streamed_columns(kernel: Kernel) -> int:
    """Of a tile of one row that is not held: whole vectors of each thread."""
    elements, vector = (
        int(HELD_BYTES // STREAMED_STAGES // max(2, row_bytes(kernel))),
        thread_vector(kernel),
    )
    return THREADS * max(LEAST, elements // vector * vector)


@once
def loaded_before(kernel: Kernel) -> frozenset[Load]:
    """Return the loads of register-resident rows that threads already have."""
    if not held_axes(kernel):
        return frozenset()
    found, known = set[Load](), set[tuple[Value, tuple[str, ...]]]()
    for op in kernel.of(Load):
        place = op.tensor, tuple(axis.dim for axis in op.axes)
        if op.axes and place in known:
            found.add(op)
        known.add(place)
    return frozenset(found)
