"""Where each launch may choose how wide tiles are along wgmma's N (`Schedule.tile_n_variants`).

A narrower tile is the front of a wider one. Its operand is the front of a slot, as rows that lie
one behind the other; of its sums the first columns are products', and others hold anything. So
these must not get further than a panel of results, of which lines are copied one by one: no sum of
columns, no neighbour's element, and no result whose rows they are along.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir import tile_ops as t
from wsdsl.ir.narrowing import WIDTH_STEP, narrowings
from wsdsl.ir.op import Kernel
from wsdsl.ir.types import Axis
from wsdsl.ir.wgmma import columns_fault
from wsdsl.lowering import cooperation
from wsdsl.lowering.axes import loop_variable, output_nest
from wsdsl.lowering.epilogue_operands import all_lines, epilogue_slots, subtile_widths
from wsdsl.lowering.footprint import axis_sizes, is_heavy
from wsdsl.lowering.precision import fp8_axes, promotes
from wsdsl.lowering.product_operands import multiplied, operand_loads
from wsdsl.lowering.register_tiles import MAX_WIDTH, chunk_widths
from wsdsl.lowering.store_panels import stored_as_panels
from wsdsl.schedule import Schedule, changed

ELEMENTWISE = (
    t.Bitcast, t.Cast, t.Constant, t.Contract, t.DimSize, t.ForEach, t.ForTiles, t.Full, t.Index,
    t.Load, t.Map, t.Store, t.Yield,
)  # fmt: skip
"""Ops by which an element depends on no other column's; of loops those over the contraction."""


LEAVE_OUT = "leave tile_n_variants out"


def width_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """What keeps tiles from having several widths, if the schedule gives them."""
    if (chosen.tile_n_variants or 1) == 1:
        return
    told, leave = f"Schedule.tile_n_variants is {chosen.tile_n_variants}", LEAVE_OUT
    if kernel.target.has_tensor_memory or not kernel.of(t.Contract):
        why = "sums in tensor memory have one" if kernel.of(t.Contract) else "nothing is multiplied"
        yield Finding(f"{told}, which are those of wgmma: {why}", hint=leave)
        return
    nest = [loop.index.type for loop in output_nest(kernel)[0]]
    axes = [kind for kind in nest if isinstance(kind, Axis) and kind.role == "columns"]
    if len(axes) != 1:
        which = ", ".join(loop_variable(a.name) for a in axes) or "no loop of the output"
        yield Finding(f"{told}, and along wgmma's N is {which}: expected one loop", hint=leave)
        return
    yield from _of_schedule(kernel, chosen, axes[0], told)
    yield from _of_text(kernel, axes[0], told)


def most_widths(columns: int, narrow: bool) -> int:
    """Of a tile of so many columns: those that differ in its last chunk."""
    return chunk_widths(columns, narrow)[-1] // WIDTH_STEP


def has_narrow_chunks(kernel: Kernel, axis: Axis) -> bool:
    """Whether chunks of columns have half as many, since elements of four bytes are stored."""
    stores = (op for op in kernel.of(t.Store) if any(a.name == axis.name for a in op.axes))
    return any(op.dtype.bytes == 4 and op.tensor in stored_as_panels(kernel) for op in stores)


def _parts_read(kernel: Kernel, schedule: Schedule) -> tuple[int, ...]:
    """The columns of each part in which tiles come that are read beside the sums; nothing if there
    are none. Sums are cut alike."""
    for group in epilogue_slots(kernel, schedule):
        if not all_lines(group.loads):
            heavy = is_heavy(kernel, schedule)
            return subtile_widths(kernel, group.loads, axis_sizes(kernel, schedule), heavy)
    return ()


def most_widths_of(kernel: Kernel) -> int:
    """Of tiles that are multiples of 64 columns, the most that there may be."""
    return most_widths(MAX_WIDTH, any(op.dtype.bytes == 4 for op in kernel.of(t.Store)))


def narrowest(kernel: Kernel, schedule: Schedule) -> Schedule:
    """With the narrowest of a tile's widths as its only one."""
    if (schedule.tile_n_variants or 1) == 1:
        return schedule
    tile, fewer = dict(schedule.tile or {}), narrowings(schedule.tile_n_variants or 1)[-1]
    for loop in output_nest(kernel)[0]:
        axis = loop.index.type
        variable = loop_variable(axis.name) if isinstance(axis, Axis) else ""
        if variable in tile and isinstance(axis, Axis) and axis.role == "columns":
            tile[variable] -= fewer
    return changed(schedule, tile=tile, tile_n_variants=None)


def _of_schedule(kernel: Kernel, chosen: Schedule, axis: Axis, told: str) -> Iterator[Finding]:
    variable, size = loop_variable(axis.name), axis_sizes(kernel, chosen)[axis.name]
    narrow, parts = has_narrow_chunks(kernel, axis), _parts_read(kernel, chosen)
    most = parts[-1] // WIDTH_STEP if parts else most_widths(size, narrow)
    if (chosen.tile_n_variants or 1) > most:
        chunk = max(parts) if parts else 32 if narrow else 64
        why = ", since elements of four bytes are stored" if narrow else ""
        why = ", since what is read beside the sums comes in such parts" if parts else why
        yield Finding(
            f"{told}, and a tile {variable}={size} has {most}: they differ in its last {chunk} "
            f"columns at the most{why}",
            hint=f"use widths={most}, or a tile of {variable} that is a multiple of {chunk}",
        )
    for op in kernel.of(t.Contract):
        for columns in narrowings(chosen.tile_n_variants or 1):
            if fault := columns_fault(size - columns, op.dtype):
                own = f"of {size - columns} columns"
                yield Finding(f"{told}, and {own}: {fault}", op.loc, LEAVE_OUT)
                break
    if chosen.cuts_tiles:
        cut = f'scheduler="{chosen.scheduler}" hands on the sums of tiles'
        yield Finding(f"{told}, and {cut}", hint='use scheduler="persistent" or "grid"')
    if cooperation.cluster_along(chosen, axis.name) > 1:
        along = f"a cluster has {cooperation.cluster_along(chosen, axis.name)} of them"
        yield Finding(f"{told}, and {along}", hint=f"leave {variable} out of the cluster")
    elif cooperation.cluster_splits(kernel, chosen) > 1:
        yield Finding(f"{told}, and a cluster shares their sums", hint="leave cluster out")
    elif cooperation.cluster_size(chosen) > 1 and chosen.multicast is not False:
        yield Finding(f"{told}, and CTAs load parts of them for others", hint="use multicast=False")
    if cooperation.shared_role(kernel, chosen) == "columns":
        divided = f'{told}, and consumer_split="{chosen.consumer_split}" divides them'
        yield Finding(divided, hint="leave consumer_split out")
    if promotes(chosen) and fp8_axes(kernel):
        # By value, ptxas finds no registers for such a group of products.
        apart = f"sums of fp8 are added up apart every {chosen.mma_promotion_interval} elements"
        yield Finding(f"{told}, and {apart}", hint=f"use mma_promotion_interval=0, or {LEAVE_OUT}")
    if axis.dim in dict(kernel.sizes):
        yield Finding(f"{told}, and {axis.dim} has one size", hint=LEAVE_OUT)


def _of_text(kernel: Kernel, axis: Axis, told: str) -> Iterator[Finding]:
    variable = loop_variable(axis.name)
    written = {op.tensor for op in kernel.of(t.Store)}
    for op in kernel.ops:
        if isinstance(op, t.Load) and op.tensor in written:
            yield Finding(f"{told}, and this is stored, too", op.loc, LEAVE_OUT)
        elif isinstance(op, t.Load) and op.result in multiplied(kernel):
            last = op.index[-1].type
            lies = isinstance(last, Axis) and last.name == axis.name
            if lies or op.tensor.name in kernel.unaligned:
                how = f"has `{variable}` contiguous" if lies else "is no tensor that TMA takes"
                yield Finding(f"{told}, and this operand {how}", op.loc, LEAVE_OUT)
        elif isinstance(op, t.Store):
            yield from _of_store(kernel, op, axis, told)
        elif not isinstance(op, ELEMENTWISE):
            yield Finding(f"{told}, and this needs more than one column", op.loc, "leave it out")
    for op in kernel.of(t.Contract):
        if op.scales or any(v not in operand_loads(kernel) for v in (op.a, op.b)):
            yield Finding(f"{told}, and operands are computed or scaled", op.loc, "leave it out")


def _of_store(kernel: Kernel, op: t.Store, axis: Axis, told: str) -> Iterator[Finding]:
    if op.tensor not in stored_as_panels(kernel) or op.tensor.name in kernel.unaligned:
        yield Finding(f"{told}, and TMA does not store this", op.loc, LEAVE_OUT)
    elif op.accumulate:
        yield Finding(f"{told}, and this adds to memory", op.loc, LEAVE_OUT)
    elif op.last is None or op.last.role != "rows":
        variable = loop_variable(axis.name)
        lies = f"`{variable}` is contiguous in this: lines are stored whole"
        hint = f'have `{variable}` lie along wgmma\'s M: mma="{variable}"'
        yield Finding(f"{told}, and {lies}", op.loc, hint)
