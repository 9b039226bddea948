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
from wsdsl.ir.plan import MBARRIER, Allocation
from wsdsl.ir.types import Sizes
from wsdsl.lowering.axes import loop_variable, output_nest
from wsdsl.lowering.cooperation import cluster_along, num_pingpong_consumers
from wsdsl.lowering.held_rows import MOST_CTAS
from wsdsl.lowering.register_tiles import Shapes
from wsdsl.lowering.row_rounds import rounds
from wsdsl.lowering.shared_rows import BUFFERS, WARPS, WORD
from wsdsl.schedule import Schedule, changed

COLUMN_STEP = 16
"""The step of the MMA's N for all types of operands."""
MOST_WAITING = 2
"""CTAs that load for each other, where nothing else asks for a cluster: each waits for the slots of
all (`python -m benchmarks.projection`).
"""


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
    return dtype.bytes == WORD and op.fn in ("add", "max", "min")


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


def row_exchanges(kernel: Kernel, schedule: Schedule, shapes: Shapes) -> Iterator[Allocation]:
    """Return the SMEM of reductions across warps and CTAs (`shared_rows.py`)."""
    spread, together, words, ctas = spread_axes(kernel), _together(kernel), set[int](), 1
    groups = shapes.consumers if shapes.share == "columns" else 1
    apart, parts = shapes.consumers // groups, shapes.lanes.warps * groups
    for op in kernel.of(Reduce, ClusterAllgather):
        own = max(op.ctas, cluster_along(schedule, op.axis) if op.axis in spread else 1)
        ctas = max(ctas, own)
        if isinstance(op, Reduce) and shapes.axes[op.axis].role == "rows":
            words |= {width * WARPS * apart for width in shapes.of(op.x.axes).widths}
        elif parts > 1 and (together > 1 or own == 1):
            words.add(shapes.height * parts * apart)
    for _ in range(num_pingpong_consumers(schedule)):
        yield from (Allocation("row reductions", WORD * n) for n in words for _ in range(BUFFERS))
        if ctas > 1:
            size = WORD * shapes.height * parts * ctas * apart * together
            yield Allocation("cluster exchange", BUFFERS * -(-size // SMEM_ALIGN) * SMEM_ALIGN)
            yield Allocation("mbarriers of cluster exchange", BUFFERS * MBARRIER, MBARRIER)


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
