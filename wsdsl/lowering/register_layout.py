"""How the lanes of a warp share tiles of kernels without products: whole vectors a lane, as memory
wants them, where MMAs need the order of accumulators.

A lane holds so many neighbours that the widest element's vector has 16 bytes, and as many lanes
follow each other along a row as make a tile's columns, up to 128: then a warp's access takes 256
bytes of a row at the least, and a piece of 64 rows 64 registers at the most. Tiles of fewer rows
have more columns, which warps share where there are fewer than four rows; one row is what all
threads have. Of rows that are not aligned neighbouring threads have neighbours, and access one at a
time.

Where rows are reduced, to one value for each column, a thread adds up its own, of as many pieces of
a tile as there are. A warp then has one row of a piece, as long as it is, so that nothing but what
the four of them have is left to be added in the end.

Where tensors have neighbours along both axes (transposes), tiles are held as those want them that
are most of the bytes, and go through SMEM to the others (`smem_transpose.py`): eight lanes have a
line of 128 bytes then, and a thread as many neighbouring rows as make a word
(`ir/hardware/swizzle.py` says why).
"""

import math
from collections.abc import Callable, Sequence

from wsdsl.ir.hardware.swizzle import GROUPS, SMEM_ALIGN, WORD
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.op import Kernel, once
from wsdsl.ir.ops import OVER_AXIS, Contract, Load, Reduce, ReduceBlocks, Scan, Store
from wsdsl.ir.types import ACCUMULATOR, I32, THREADS, Axis, Lanes, Role, Tile
from wsdsl.lowering.axes import axes_of, is_scattered
from wsdsl.lowering.cooperation import num_shares
from wsdsl.schedule import Schedule

WARP, ROWS = 32, 64
LINE_LANES = GROUPS
"""Of a warp, that share a line where tiles are turned."""
MOST_COLUMNS = 128
"""Of a piece: 64 elements a thread."""
HELD_BYTES = 256
"""Of a thread, in 64 of the registers that it has where four CTAs of 128 threads are on an SM."""
MOST_REDUCED = 1024
"""Rows of a tile, where they are reduced."""
MOST_FLAT = 4 * ROWS * MOST_COLUMNS
"""Of a tile that has one axis: several pieces."""


@once
def holds_vectors(kernel: Kernel) -> bool:
    """Whether tiles may be held as vectors: what has rows and columns is read and written along its
    columns, or turned, in rows that are aligned.
    """
    accesses, tiles = _accesses(kernel), _tiles(kernel)
    return (
        (bool(tiles) or flat_axis(kernel) is not None)
        and all(op.last is not None for op in tiles)
        and (not _along_rows(kernel) or _may_be_turned(kernel))
        and not kernel.of(Contract)
        and all(op.dtype.bits >= 8 or (isinstance(op, Load) and op.packed) for op in accesses)
        and (not is_striped(kernel) or _may_be_striped(kernel))
    )


@once
def loads_packed(kernel: Kernel) -> bool:
    """Whether threads load packed tensors, which have an accumulator's layout, by 16 bytes."""
    packed = {op.tensor.name for op in kernel.of(Load) if op.packed}
    return bool(packed) and packed.isdisjoint(kernel.unaligned) and holds_vectors(kernel)


@once
def flat_axis(kernel: Kernel) -> str | None:
    """The one axis of a kernel whose tiles have no other: its elements go on from the end of a
    piece's row to the start of the next.
    """
    held = [name for name, axis in axes_of(kernel).items() if axis.role]
    one = held == [name for name in held if axes_of(kernel)[name].role == "rows"] and len(held) == 1
    contiguous = all(op.last == op.axes[-1] for op in _accesses(kernel) if op.axes)
    return held[0] if one and contiguous else None


def _accesses(kernel: Kernel) -> list[Load | Store]:
    return [*kernel.of(Load, Store)]


def _tiles(kernel: Kernel) -> list[Load | Store]:
    """Accesses of rows: of rows and columns, or of columns where these are reduced, and no tile has
    rows.
    """
    accesses = _accesses(kernel)
    both = [op for op in accesses if len(op.axes) > 1]
    high = any(axis.role == "rows" for axis in axes_of(kernel).values())
    return both if both or high or not kernel.of(Reduce) else [op for op in accesses if op.axes]


@once
def turned(kernel: Kernel) -> tuple[Load | Store, ...]:
    """Accesses by vectors along rows, which go through SMEM."""
    return _along_rows(kernel) if holds_vectors(kernel) else ()


@once
def _along_rows(kernel: Kernel) -> tuple[Load | Store, ...]:
    """Accesses of rows and columns to tensors whose neighbours lie along the rows."""
    return tuple(op for op in _tiles(kernel) if op.last is not None and op.last.role == "rows")


def _may_be_turned(kernel: Kernel) -> bool:
    """Whether that is of whole tiles, and nothing else goes from thread to thread. What is read and
    written in place is not, nor what is loaded to lines that are no vectors.
    """
    read = {op.tensor for op in kernel.of(Load)}
    loaded = [op for op in _along_rows(kernel) if isinstance(op, Load)]
    kinds = (v.type for op in _along_rows(kernel) for v in op.index)
    return (
        len(_along_rows(kernel)) < len(_tiles(kernel))
        and all(isinstance(kind, Axis) or kind == Tile(I32) for kind in kinds)
        and not any(own_columns(kernel) * op.dtype.bytes % TMA_ALIGN for op in loaded)
        and not any(isinstance(op, Store) and op.tensor in read for op in _along_rows(kernel))
        and not kernel.of(Reduce)
        and not kernel.of(Scan)
    )


def _may_be_striped(kernel: Kernel) -> bool:
    """Whether it pays, and no thread needs neighbours: rows that are reduced are read once then,
    and a single axis is walked as it lies. Other rows SMEM brings in order.
    """
    if kernel.of(ReduceBlocks) or kernel.of(Scan):
        return False
    return bool(kernel.of(Reduce) or _along_rows(kernel)) or flat_axis(kernel) is not None


@once
def is_striped(kernel: Kernel) -> bool:
    """Whether rows begin anywhere, so that threads access an element at a time."""
    accesses = _accesses(kernel)
    both = [op for op in accesses if len(op.axes) > 1] or [op for op in accesses if op.axes]
    return any(op.tensor.name in kernel.unaligned for op in both if op not in _along_rows(kernel))


@once
def thread_vector(kernel: Kernel) -> int:
    """Neighbours that a thread has: 16 bytes of the widest elements, or a pair that is apart. L2
    adds to whole sectors, so that what is added lies side by side in a warp, be it only in rows
    that are chosen.
    """
    if is_striped(kernel) or loads_packed(kernel):
        return 2
    tiles = _tiles(kernel) or [op for op in _accesses(kernel) if op.axes]
    tiles = [op for op in tiles if op not in _along_rows(kernel) or isinstance(op, Load)]
    tiles += [op for op in kernel.of(Store) if op.accumulate and op.last and is_scattered(op)]
    return TMA_ALIGN // max((op.dtype.bytes for op in tiles), default=TMA_ALIGN)


def axes_across(kernel: Kernel) -> set[str]:
    """Axes of tiles that are loaded along another one."""
    return {a.name for op in kernel.of(Load) for a in op.axes[:-1] if op.last == op.axes[-1]}


@once
def reduces_across(kernel: Kernel) -> bool:
    """Whether there are no products, and all that is reduced lies across the rows of tensors: sums
    of columns.
    """
    found = kernel.of(*OVER_AXIS)
    loads = (op for op in kernel.of(Load) if op.axes[:-1] and op.last == op.axes[-1])
    across = axes_across(kernel) - {op.axes[-1].name for op in loads}
    plain = all(isinstance(op, Reduce) and op.axis in across for op in found)
    return bool(found) and plain and not kernel.of(Contract)


@once
def reduces_rows(kernel: Kernel) -> bool:
    """The same of a kernel with roles: whether each column has a result."""
    axes = axes_of(kernel)
    return any(axes[op.axis].role == "rows" for op in kernel.of(Reduce))


def piece_lanes(kernel: Kernel, columns: int) -> Lanes:
    """Of so many columns, whose rows are reduced."""
    vector, across = thread_vector(kernel), WARP
    while across > 1 and columns % (across * vector):
        across //= 2
    return Lanes(vector, across, is_striped(kernel)) if across > 1 else ACCUMULATOR


@once
def height_of(kernel: Kernel) -> int:
    """Rows of a piece, of a kernel whose tiles have sizes."""
    if not holds_vectors(kernel) or flat_axis(kernel) is not None or loads_packed(kernel):
        return ROWS
    if reduces_rows(kernel):
        return piece_height(lanes_of(kernel))
    return math.gcd(ROWS, *(a.size for a in axes_of(kernel).values() if a.role == "rows"))


def piece_height(lanes: Lanes) -> int:
    """Rows of a piece of which each thread has one, if there may be as few."""
    return ROWS if lanes == ACCUMULATOR else THREADS // lanes.across


@once
def lanes_of(kernel: Kernel) -> Lanes:
    """Of a kernel whose tiles have sizes."""
    if not holds_vectors(kernel) or loads_packed(kernel):
        return ACCUMULATOR
    if reduces_rows(kernel):
        return piece_lanes(kernel, own_columns(kernel))
    flat = flat_axis(kernel)
    if turned(kernel):
        among = [op for op in turned(kernel) if isinstance(op, Store)]
        how = own_columns(kernel), ROWS, thread_vector(kernel), is_striped(kernel)
        return turning_lanes(*how, among)
    if wide_columns(kernel):
        return _wide_lanes(kernel)
    if flat:
        own = _own(kernel, "rows")
        columns = own // ROWS if own % ROWS == 0 else 1
    else:
        columns = own_columns(kernel)
    vector = thread_vector(kernel)
    if flat and is_striped(kernel):
        vector = max(vector, columns // WARP)
    across = min(WARP, MOST_COLUMNS // vector)
    while across * vector > 1 and columns % (across * vector):
        across //= 2
    # Each lane has a row at the least, of the 16 that its warp has.
    across = across if flat is None or across * vector == columns else 0
    return Lanes(vector, across, is_striped(kernel)) if across >= 2 else ACCUMULATOR


def turned_lanes(kernel: Kernel, op: Load | Store) -> Lanes:
    """Of a tile as its tensor wants it, with the roles of its axes exchanged."""
    columns, rows = _own(kernel, "rows"), math.gcd(ROWS, own_columns(kernel))
    striped = op.tensor.name in kernel.unaligned
    among = [op] if isinstance(op, Load) else []
    return turning_lanes(
        columns, rows, 2 if striped else TMA_ALIGN // op.dtype.bytes, striped, among
    )


def turned_height(kernel: Kernel) -> int:
    """Rows of a tile: of what is turned they are lines, of 128 bytes at the least."""
    least = min(op.dtype.bytes for op in turned(kernel))
    return max(ROWS, LINE_LANES * TMA_ALIGN // least)


def turned_width(kernel: Kernel) -> int:
    """Columns of a tile, for which threads have registers when they have loaded all of it."""
    tiles = [op for op in _tiles(kernel) if isinstance(op, Load)]
    bytes = {op.tensor: op.dtype.bytes for op in tiles}
    room = THREADS * HELD_BYTES // (turned_height(kernel) * max(1, sum(bytes.values())))
    return max(WARP, min(MOST_COLUMNS, 1 << room.bit_length() - 1))


def turned_bytes(kernel: Kernel, own: Callable[[str], int]) -> int:
    """SMEM of a warpgroup that has so many elements of an axis, for the largest such tile."""
    sizes = (math.prod(own(a.name) for a in op.axes) * op.dtype.bytes for op in turned(kernel))
    return -(-max(sizes) // SMEM_ALIGN) * SMEM_ALIGN


def turning_lanes(
    columns: int, rows: int, vector: int, striped: bool, turned: Sequence[Load | Store]
) -> Lanes:
    """A line of 128 bytes each eight, or one that begins anywhere a warp, if it is so long; with
    neighbouring rows for what is turned.
    """
    across = LINE_LANES
    while columns % (2 * across):
        across //= 2
    while across < THREADS // rows or (striped and across < WARP and columns % (4 * across) == 0):
        across *= 2
    if (math.gcd(vector, columns // across), across) == (ACCUMULATOR.vector, ACCUMULATOR.across):
        across //= 2  # Those of an accumulator are told by what they are.
    vector = math.gcd(vector, columns // across)
    size = min((op.dtype.bytes for op in turned), default=WORD)
    tall = math.gcd(WORD // min(WORD, size), rows * across // THREADS)
    return Lanes(vector, across, striped and vector > 1, tall)


@once
def within_warps(kernel: Kernel) -> bool:
    """Whether something goes along rows that warps must not share: sums up to each element, and
    blocks that are longer than what one warp has of a row.
    """
    longest = max((op.size for op in kernel.of(ReduceBlocks)), default=0)
    return bool(kernel.of(Scan)) or (longest > WARP and longest > WARP * thread_vector(kernel))


def own_columns(kernel: Kernel) -> int:
    """Columns of a consumer's tiles: of several axes what divides each."""
    return _own(kernel, "columns")


def _own(kernel: Kernel, role: Role) -> int:
    shares = num_shares(kernel, kernel.schedule or Schedule())[role]
    return math.gcd(*(a.size for a in axes_of(kernel).values() if a.role == role)) // shares


@once
def wide_columns(kernel: Kernel) -> int:
    """Columns of tiles that are wider than an access, or lower than 64 rows; else 0."""
    whole = flat_axis(kernel) is not None or bool(turned(kernel)) or loads_packed(kernel)
    if whole or not holds_vectors(kernel):
        return 0
    columns = own_columns(kernel)
    rows = any(a.role == "rows" for a in axes_of(kernel).values())
    if not rows and (columns % (2 * THREADS) or within_warps(kernel)):
        return 0  # Several threads have the same columns.
    return columns if columns > MOST_COLUMNS or height_of(kernel) < ROWS or not rows else 0


def _wide_lanes(kernel: Kernel) -> Lanes:
    """All threads have columns, those of a warp a row where it is long enough."""
    columns, least = wide_columns(kernel), fewest_across(kernel)
    vector = math.gcd(thread_vector(kernel), columns // least)
    across = max(least, WARP)
    while across > least and columns % (across * vector):
        across //= 2
    if (vector, across) == ACCUMULATOR[:2] and height_of(kernel) < ROWS:
        vector = 1  # An accumulator has 64 rows.
    return Lanes(vector, across, is_striped(kernel) and vector > 1)


def fewest_across(kernel: Kernel) -> int:
    """Threads that share a row at the least, if each of a warpgroup's is to have a part of one."""
    rows = any(a.role == "rows" for a in axes_of(kernel).values())
    return THREADS // (height_of(kernel) if rows else 1)
