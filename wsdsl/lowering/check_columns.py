"""Check the columns of tiles: MMAs have multiples of 8, TMA copies rows of 16 bytes, or of 32 along
the columns of an operand that consumers split, since each part begins with a panel.
"""

import math
from collections.abc import Iterable, Iterator

from wsdsl.diagnostics import Finding, counted
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.hardware.wgmma_shapes import COLUMN_STEP, MAX_COLUMNS, columns_fault
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.ops import Contract, Load, Reduce, ReduceBlocks, Scan, Store
from wsdsl.ir.types import THREADS, Axis, DType, Sizes
from wsdsl.lowering import register_layout
from wsdsl.lowering.axes import axes_of, loop_variable, whole_axes
from wsdsl.lowering.cooperation import cluster_along, cluster_size, num_shares
from wsdsl.lowering.epilogue_operands import epilogue_slots
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.held_rows import are_held, height_in, held_axes, most_elements, read_and_stored
from wsdsl.lowering.product_operands import multiplied
from wsdsl.lowering.schedule_findings import cluster_fault, extent_fault, split_fault
from wsdsl.lowering.spread_rows import spread_axes
from wsdsl.lowering.store_panels import stored_as_panels
from wsdsl.schedule import Schedule

OPERAND_LINE = 32


def column_step(kernel: Kernel, given: Schedule) -> int:
    """The multiple that any number of a consumer's columns may be."""
    products = [dtype for name in axes_of(kernel) for _, dtype in _products(kernel, name)]
    found = [2 * COLUMN_STEP if dtype.is_integer else COLUMN_STEP for dtype in products]
    found += [line // _bytes(tensor) for tensor, _, line in _lines(kernel, given)]
    return max(found, default=COLUMN_STEP)


def slice_step(kernel: Kernel, given: Schedule) -> int:
    """Return the step of the columns of a slice, which is stored but not an operand of an MMA."""
    stored = (_bytes(tensor) for tensor, _, line in _lines(kernel, given) if line == TMA_ALIGN)
    return max((COLUMN_STEP, *(TMA_ALIGN // each for each in stored)))


def per_consumer(step: int, consumers: int) -> str:
    """The limit of a tile's extent."""
    each = f" ({step} per consumer)" if consumers > 1 else ""
    return f"a multiple of {step * consumers}{each}"


def column_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    consumers = num_shares(kernel, chosen)["columns"]
    for name, size in axis_sizes(kernel, chosen).items():
        if register_layout.holds_vectors(kernel) or axes_of(kernel)[name].role != "columns":
            continue
        own = size // consumers
        if size % (COLUMN_STEP * consumers) or size > MAX_COLUMNS:
            limit = f"{per_consumer(COLUMN_STEP, consumers)} up to {MAX_COLUMNS}"
            yield extent_fault(kernel, name, size, limit)
            continue
        for op, dtype in _products(kernel, name):
            if size and (fault := columns_fault(own, dtype)):
                limit = per_consumer(2 * COLUMN_STEP, consumers)
                yield extent_fault(kernel, name, size, f"{limit}: {fault}", op.loc)
        for tensor, axis, line in dict.fromkeys(_lines(kernel, chosen)):
            if axis.name == name and own * _bytes(tensor) % line:
                limit = per_consumer(line // _bytes(tensor), consumers)
                copied = f"`{tensor.name}` ({getattr(tensor.type, 'dtype', None)})"
                why = f"{limit}: TMA copies rows of {copied} by {line} bytes"
                yield extent_fault(kernel, name, size, why)


def _products(kernel: Kernel, axis: str) -> Iterator[tuple[Contract, DType]]:
    """Those of which the axis is free, and the type of their operands."""
    for op in kernel.of(Contract):
        if any(axis in side for side in op.free):
            yield op, op.dtype


def _lines(kernel: Kernel, schedule: Schedule) -> Iterator[tuple[Value, Axis, int]]:
    """The tensors that TMA moves along columns, and of how many bytes their lines are multiples."""
    loads = kernel.of(Load) if num_shares(kernel, schedule)["columns"] > 1 else ()
    operands = (op for op in loads if op.result in multiplied(kernel))
    found = [(op.tensor, op.index[-1], OPERAND_LINE) for op in operands]
    panels = (op for op in kernel.of(Store) if op.tensor in stored_as_panels(kernel))
    stores = (op for op in panels if op.tensor.name not in kernel.unaligned)
    in_parts = (op for group in epilogue_slots(kernel, schedule) for op in group.loads)
    found += [(op.tensor, op.index[-1], TMA_ALIGN) for op in (*stores, *in_parts)]
    for tensor, last, line in found:
        if isinstance(last.type, Axis) and last.type.role == "columns":
            yield tensor, last.type, line


def _bytes(tensor: Value) -> int:
    return tensor.as_tensor.dtype.bytes


def spread_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Check clusters whose CTAs reduce the columns of accumulators together."""
    spread = [name for name in spread_axes(kernel) if cluster_along(chosen, name) > 1]
    if spread and chosen.cuts_tiles:
        why = f"its CTAs reduce `{loop_variable(spread[0])}` together, which"
        why += f' scheduler="{chosen.scheduler}" splits'
        yield cluster_fault(chosen, why, hint='use scheduler="persistent" or "grid"')
    yield from cluster_faults(kernel, chosen, spread)


def cluster_faults(kernel: Kernel, chosen: Schedule, shared: Iterable[str]) -> Iterator[Finding]:
    """Reject clusters whose CTAs split `shared` axes, and split other axes or store in place."""
    along = max((cluster_along(chosen, name) for name in shared), default=1)
    split = {name for name in shared if cluster_along(chosen, name) > 1}
    loaded = {op.tensor for op in kernel.of(Load)} if split else set[Value]()
    for op in kernel.of(Store):
        if op.tensor in loaded and not split & {axis.name for axis in op.axes}:
            why = f"all its CTAs load `{op.tensor.name}`, which one of them stores without waiting"
            yield cluster_fault(chosen, why, op.loc)
    if along > 1 and cluster_size(chosen) > along:
        why = "CTAs that split rows cannot split other axes"
        yield cluster_fault(chosen, why, hint="leave the other axes out")


def lane_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Reject tiles that the threads of a warpgroup cannot divide into whole vectors."""
    if not register_layout.holds_vectors(kernel) or register_layout.flat_axis(kernel) is not None:
        return
    sizes, shares = axis_sizes(kernel, chosen), num_shares(kernel, chosen)
    height, most = height_in(kernel, sizes), MAX_COLUMNS
    if register_layout.reduces_rows(kernel):
        most = register_layout.MOST_REDUCED
        if shares["columns"] > 1:
            yield split_fault(chosen, "a reduction needs whole rows")
    rows = [sizes[name] for name, axis in axes_of(kernel).items() if axis.role == "rows"]
    if all(rows) and are_held(kernel, chosen, sizes):
        yield from _of_one_row(kernel, chosen, sizes, height if rows else 1)
    yield from cluster_faults(kernel, chosen, held_axes(kernel))
    for name, axis in axes_of(kernel).items() if not rows else ():
        unit = COLUMN_STEP * shares["columns"]
        if axis.role == "columns" and sizes[name] % unit:
            limit = per_consumer(COLUMN_STEP, shares["columns"])
            yield extent_fault(kernel, name, sizes[name], limit)
    if not rows or not all(rows):
        return  # There are none, or it is open how many there are beside the columns.
    if height * register_layout.WARP < THREADS:
        yield from _shared_by_warps(kernel, chosen, height)
    if max((cluster_along(chosen, name) for name in held_axes(kernel)), default=1) > 1:
        for name in sorted(read_and_stored(kernel)):
            why = f"each of its CTAs would load and store `{name}`"
            yield cluster_fault(chosen, why, hint="leave it out, or store to another tensor")
    # Of what is turned threads hold whole tiles.
    tall = max(rows) // shares["rows"] if register_layout.turned(kernel) else height
    for name, axis in axes_of(kernel).items():
        size, limit = sizes[name] // shares[axis.role], per_consumer(height, shares["rows"])
        if axis.role == "rows" and sizes[name] % (height * shares["rows"]):
            yield extent_fault(kernel, name, sizes[name], limit)
        elif axis.role == "rows" and sizes[name] > most:
            yield extent_fault(kernel, name, sizes[name], f"{most} or less")
        if axis.role != "columns":
            continue
        least = max(COLUMN_STEP, THREADS // height * 2)
        if size % least:
            hint = ""
            if name in whole_axes(kernel):
                fitting = 2 * THREADS // math.gcd(size, 2 * THREADS)
                hint = f"use tiles of {fitting} rows, since each has all of `{axis.dim}`"
            limit = f"a multiple of {least}: {THREADS} threads share {counted(height, 'row')}"
            yield extent_fault(kernel, name, sizes[name], limit, hint=hint)
        elif size * tall > THREADS * most_elements(kernel):
            limit = f"{THREADS * most_elements(kernel) // tall} or less with {tall} rows"
            yield extent_fault(kernel, name, sizes[name], limit)


def _of_one_row(kernel: Kernel, chosen: Schedule, sizes: Sizes, height: int) -> Iterator[Finding]:
    """What has no rows, and CTAs share: each thread sends what it has, which no other may have."""
    axes, consumers = axes_of(kernel), num_shares(kernel, chosen)["columns"]
    for op in kernel.of(Reduce):
        if cluster_along(chosen, op.axis) == 1:
            continue
        has_rows = any(axes[name].role == "rows" for name in op.x.as_tile.axes)
        least = 2 * THREADS * consumers
        if not has_rows and (height > 1 or sizes[op.axis] % least):
            why = f"several threads would have the same columns of `{loop_variable(op.axis)}`"
            hint = f"use tiles of 1 row and a multiple of {least} columns, or leave it out"
            yield cluster_fault(chosen, why, op.loc, hint)


def _shared_by_warps(kernel: Kernel, chosen: Schedule, height: int) -> Iterator[Finding]:
    """What goes along rows of which several warps have parts, and is of one warp."""
    sizes, shares = axis_sizes(kernel, chosen), num_shares(kernel, chosen)["columns"]
    for op in kernel.of(Scan, ReduceBlocks):
        needed = "a whole row"
        if isinstance(op, ReduceBlocks):
            needed = f"a whole block of {op.size}"
            vector = register_layout.thread_vector(kernel)
            vector = math.gcd(vector, sizes[op.axis] * height // (shares * THREADS))
            if op.size <= register_layout.WARP * vector:
                continue
        told = f"WS0403 this needs {needed} in one warp; warps split rows in tiles of {height} rows"
        yield Finding(told, op.loc, f"use tiles of {THREADS // register_layout.WARP} rows or more")
