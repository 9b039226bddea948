"""Rows of products that the CTAs of a cluster have together: each has columns of its own, and they
reduce them together.

An output loop whose body reduces all of its dimension has one tile. Where that would have more
columns than a CTA's, a cluster along it has one.
"""

from collections.abc import Iterator

from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.hardware.wgmma_shapes import MAX_COLUMNS
from wsdsl.ir.op import Kernel, once, regions
from wsdsl.ir.ops import OVER_AXIS, ClusterAllgather, Contract, ForTiles, Reduce, Store
from wsdsl.ir.types import Sizes
from wsdsl.lowering.axes import loop_variable, output_nest
from wsdsl.lowering.cooperation import (
    cluster_along,
    is_shared,
    num_cooperating,
    num_pingpong_consumers,
)
from wsdsl.lowering.held_rows import MOST_CTAS
from wsdsl.lowering.register_layout import ROWS
from wsdsl.lowering.row_rounds import rounds
from wsdsl.lowering.shared_rows import BUFFERS
from wsdsl.schedule import Schedule, changed

COLUMN_STEP = 16
"""The step of the MMA's N for all types of operands."""
MOST_WAITING = 2
"""CTAs that load for each other, where nothing else asks for a cluster: each waits for the slots of
all (`python -m benchmarks.projection`).
"""
WORD = 32
MBARRIER = 8
"""Bytes."""


@once
def spread_axes(kernel: Kernel) -> Sizes:
    """The axes of which a cluster's CTAs may have a part each, by name: the dimensions' sizes."""
    if not kernel.of(Contract) or kernel.target.has_tensor_memory:
        return {}
    known, (nest, body) = dict(kernel.sizes), output_nest(kernel)
    outer = [loop for loop in nest if isinstance(loop, ForTiles) and loop.whole]
    whole = {loop.index.as_axis.name: loop.dim for loop in outer}
    over = [op for op in kernel.of(*OVER_AXIS) if op.axis in whole]
    apart = {op.axis for op in over if not (isinstance(op, Reduce) and _is_word(op) and op in body)}
    contracted = {name for op in kernel.of(Contract) for name in op.summed}
    # What is added to memory would be added by each CTA.
    added = any(isinstance(op, Store) and op.accumulate for op in kernel.ops)
    names = whole.keys() - apart - contracted if not added else ()
    return {name: known[whole[name]] for name in names if whole[name] in known}


def _is_word(op: Reduce) -> bool:
    dtype = op.result.as_tile.dtype
    return dtype.bits == WORD and op.fn in ("add", "max", "min")


def fewest_ctas(size: int, columns: int = MAX_COLUMNS) -> int:
    """That have so many elements together, by tiles of at most so many columns."""
    most = max(1, min(columns, MAX_COLUMNS))
    return next((n for n in (1, 2, 4) if n * most >= size), MOST_CTAS)


def columns_of_each(size: int, ctas: int) -> int:
    """Columns of a CTA's tile, of so many CTAs."""
    each = -(-max(1, size) // ctas)
    return -(-each // COLUMN_STEP) * COLUMN_STEP


def spread(given: Schedule, name: str, ctas: int) -> Schedule:
    """With so many CTAs along an axis."""
    multicast = False if given.multicast is None and ctas > MOST_WAITING else given.multicast
    return changed(given, cluster={loop_variable(name): ctas}, multicast=multicast)


def spread_bytes(kernel: Kernel, schedule: Schedule) -> int:
    """SMEM of what CTAs send each other of rows that they reduce together: in each partition two
    buffers, of some words for each row and CTA, with their mbarriers; and two more where each CTA
    reduces its own first, which several warpgroups have.
    """
    ctas = max((cluster_along(schedule, name) for name in spread_axes(kernel)), default=1)
    if ctas == 1:
        return 0
    own, together = WORD // 8 * ROWS * num_cooperating(schedule), _together(kernel)
    each = -(-own * ctas * together // SMEM_ALIGN) * SMEM_ALIGN + MBARRIER
    apart = together > 1 and any(is_shared(name, schedule) for name in spread_axes(kernel))
    first = -(-own // SMEM_ALIGN) * SMEM_ALIGN if apart else 0
    return num_pingpong_consumers(schedule) * BUFFERS * (each + first)


@once
def _together(kernel: Kernel) -> int:
    """Values of a row that CTAs send each other at once, at the most."""
    joined = [len(op.x) for op in kernel.of(ClusterAllgather)]
    bodies = [kernel.body, *(inner for op in kernel.ops for inner in regions(op))]
    found = (rounds(kernel, body, spread_axes(kernel)) for body in bodies if not joined)
    return max((*joined, *(len(each.members) for some in found for each in some)), default=1)


def with_more_ctas(kernel: Kernel, chosen: Schedule, given: Schedule) -> Iterator[Schedule]:
    """`given` with fewer columns for each CTA than were `chosen`, and then for two consumers."""
    if given.cluster or given.cuts_tiles:
        return
    for name, size in spread_axes(kernel).items():
        variable, ctas = loop_variable(name), 2 * cluster_along(chosen, name)
        if {name, variable} & {*(given.tile or {})}:
            continue
        while ctas <= MOST_CTAS and columns_of_each(size, ctas) * (ctas - 1) < size:
            yield spread(given, name, ctas)
            ctas *= 2
        is_free = given.mode != "pingpong" and given.consumer_split is None
        if is_free and given.consumers in (None, 2):
            shared = changed(given, mode="cooperative", consumers=2, consumer_split=variable)
            yield spread(shared, name, min(MOST_CTAS, ctas))
