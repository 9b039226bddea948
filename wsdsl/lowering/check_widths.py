"""Check whether each launch may choose the N extent of tiles (`Schedule.tile_n_variants`).

A narrower tile is the front of a wider one. Its operand is the front of a stage, as consecutive
rows; of its accumulators the first columns are those of MMAs, and others are undefined. So these
must not get further than a panel of results, whose rows are copied one by one: no sum of columns,
no adjacent element, and no result whose rows they are along.
"""

from collections.abc import Iterator

from wsdsl.diagnostics import Finding, Loc
from wsdsl.ir import ops
from wsdsl.ir.analysis.tile_widths import WIDTH_STEP, narrowings
from wsdsl.ir.hardware.wgmma_shapes import columns_fault
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.types import Axis
from wsdsl.lowering import cooperation
from wsdsl.lowering.axes import loop_variable, output_nest, ragged_loop
from wsdsl.lowering.epilogue_operands import all_lines, epilogue_slots, subtile_widths
from wsdsl.lowering.footprint import axis_sizes, is_heavy
from wsdsl.lowering.precision import fp8_axes, promotes
from wsdsl.lowering.product_operands import multiplied, operand_loads
from wsdsl.lowering.register_tiles import MAX_WIDTH, chunk_widths
from wsdsl.lowering.store_panels import stored_as_panels
from wsdsl.schedule import Schedule, changed

Reasons = Iterator[tuple[str, Loc | None, str]]
LEAVE_OUT = "leave tile_n_variants out"


def width_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Yield the findings against several tile widths, if the schedule has them."""
    if (chosen.tile_n_variants or 1) > 1:
        told = f"Schedule.tile_n_variants is {chosen.tile_n_variants}"
        for why, loc, hint in _reasons(kernel, chosen):
            yield Finding(f"WS0428 {told}, and {why}", loc, hint)


def _reasons(kernel: Kernel, chosen: Schedule) -> Reasons:
    if not kernel.of(ops.Contract):
        yield "the kernel has no matmul", None, LEAVE_OUT
        return
    if kernel.target.has_tensor_memory:
        yield "accumulators in tensor memory have one width", None, LEAVE_OUT
        return
    nest = [loop.index.type for loop in output_nest(kernel)[0]]
    axes = [kind for kind in nest if isinstance(kind, Axis) and kind.role == "columns"]
    if len(axes) != 1:
        which = ", ".join(loop_variable(a.name) for a in axes) or "none"
        yield f"1 output loop along wgmma's N is needed; there is {which}", None, LEAVE_OUT
        return
    if (ragged := ragged_loop(kernel)) and ragged.index.type == axes[0]:
        name = loop_variable(axes[0].name)
        yield f"the loop over `{name}` walks parts of {axes[0].dim}", ragged.loc, LEAVE_OUT
    yield from _of_schedule(kernel, chosen, axes[0])
    yield from _of_source(kernel, axes[0])


def most_widths(columns: int, narrow: bool) -> int:
    """Return the number of widths of a tile, which differ in its last chunk."""
    return chunk_widths(columns, narrow)[-1] // WIDTH_STEP


def has_narrow_chunks(kernel: Kernel, axis: Axis) -> bool:
    """Whether chunks of columns have half as many, since elements of four bytes are stored."""
    stores = (op for op in kernel.of(ops.Store) if any(a.name == axis.name for a in op.axes))
    return any(op.dtype.bytes == 4 and op.tensor in stored_as_panels(kernel) for op in stores)


def _parts_read(kernel: Kernel, schedule: Schedule) -> tuple[int, ...]:
    """The columns of each part in which tiles come that are read in addition to the accumulators;
    none if there are none. Accumulators have the same parts."""
    for group in epilogue_slots(kernel, schedule):
        if not all_lines(group.loads):
            heavy = is_heavy(kernel, schedule)
            return subtile_widths(kernel, group.loads, axis_sizes(kernel, schedule), heavy)
    return ()


def most_widths_of(kernel: Kernel) -> int:
    """Of tiles that are multiples of 64 columns, the most that there may be."""
    return most_widths(MAX_WIDTH, any(op.dtype.bytes == 4 for op in kernel.of(ops.Store)))


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


def _of_schedule(kernel: Kernel, chosen: Schedule, axis: Axis) -> Reasons:
    variable, size = loop_variable(axis.name), axis_sizes(kernel, chosen)[axis.name]
    narrow, parts = has_narrow_chunks(kernel, axis), _parts_read(kernel, chosen)
    most = parts[-1] // WIDTH_STEP if parts else most_widths(size, narrow)
    if (chosen.tile_n_variants or 1) > most:
        chunk = max(parts) if parts else 32 if narrow else 64
        why = ", since elements of 4 bytes are stored" if narrow else ""
        why = ", since the epilogue loads tiles in such parts" if parts else why
        hint = f"use tile_n_variants={most}, or a tile of {variable} that is a multiple of {chunk}"
        limit = f"they differ in its last {chunk} columns or fewer{why}"
        yield f"a tile {variable}={size} has {most}: {limit}", None, hint
    for op in kernel.of(ops.Contract):
        for columns in narrowings(chosen.tile_n_variants or 1):
            if fault := columns_fault(size - columns, op.dtype):
                yield f"one has {size - columns} columns: {fault}", op.loc, LEAVE_OUT
                break
    if chosen.cuts_tiles:
        hint = 'use scheduler="persistent" or "grid"'
        yield f'scheduler="{chosen.scheduler}" stores partial accumulators', None, hint
    if cooperation.cluster_along(chosen, axis.name) > 1:
        along = cooperation.cluster_along(chosen, axis.name)
        yield f"a cluster has {along} CTAs along them", None, f"leave {variable} out of the cluster"
    elif cooperation.cluster_splits(kernel, chosen) > 1:
        yield "a cluster splits their contraction", None, "leave cluster out"
    elif cooperation.cluster_size(chosen) > 1 and chosen.multicast is not False:
        yield "the CTAs of a cluster multicast them", None, "use multicast=False"
    if cooperation.shared_role(kernel, chosen) == "columns":
        divided = f'consumer_split="{chosen.consumer_split}" splits them'
        yield divided, None, "leave consumer_split out"
    if promotes(chosen) and fp8_axes(kernel):
        # By value, ptxas finds no registers for such a group of products.
        promoted = f"accumulators of fp8 are promoted every {chosen.mma_promotion_interval}"
        yield f"{promoted} elements of K", None, f"use mma_promotion_interval=0, or {LEAVE_OUT}"
    if axis.dim in dict(kernel.sizes):
        yield f"{axis.dim} has one size", None, LEAVE_OUT


def _of_source(kernel: Kernel, axis: Axis) -> Reasons:
    variable = loop_variable(axis.name)
    written = {op.tensor for op in kernel.of(ops.Store)}
    for op in kernel.ops:
        if isinstance(op, ops.Load) and op.tensor in written:
            yield "this tensor is also stored", op.loc, LEAVE_OUT
        elif isinstance(op, ops.Load) and op.result in multiplied(kernel):
            last = op.index[-1].type
            lies = isinstance(last, Axis) and last.name == axis.name
            if lies or op.tensor.name in kernel.unaligned:
                how = f"has `{variable}` contiguous" if lies else "is TMA-incompatible"
                yield f"this operand {how}", op.loc, LEAVE_OUT
        elif isinstance(op, ops.Store):
            yield from _of_store(kernel, op, variable)
        elif not _is_columnwise(op):
            yield "this needs more than one column", op.loc, LEAVE_OUT
    for op in kernel.of(ops.Contract):
        if op.scales or any(v not in operand_loads(kernel) for v in (op.a, op.b)):
            yield "operands are transformed or scaled", op.loc, LEAVE_OUT


def _is_columnwise(op: Op) -> bool:
    """Whether no element of the result depends on another column, or on the bounds of the tile."""
    if isinstance(op, ops.Lookup | ops.Whole | ops.End | ops.Block | ops.ReduceBlocks):
        return False
    return isinstance(op, ops.DimLoop | ops.Yield | ops.Contract) or op.repeatable


def _of_store(kernel: Kernel, op: ops.Store, variable: str) -> Reasons:
    if op.tensor not in stored_as_panels(kernel) or op.tensor.name in kernel.unaligned:
        yield "this store is TMA-incompatible", op.loc, LEAVE_OUT
    elif op.accumulate:
        yield "this adds to memory", op.loc, LEAVE_OUT
    elif op.last is None or op.last.role != "rows":
        hint = f'map `{variable}` to M: mma_m="{variable}"'
        yield f"this stores whole rows along `{variable}`", op.loc, hint
