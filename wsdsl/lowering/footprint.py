"""Resources of a schedule: tile sizes, bytes of SMEM, registers of accumulators (TILE)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wsdsl.ir.hardware.block_scale_factors import WORD
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.hardware.tcgen05_shapes import LANES
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.hardware.wgmma_shapes import is_fp8, k_step
from wsdsl.ir.op import Kernel, Value, once, once_each
from wsdsl.ir.ops import Block, Contract, DimLoop, ForEach, ForTiles, Load, Map, Store
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import Axis, Sizes, Tile
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest, whole_axes
from wsdsl.lowering.batch_coarsening import taken_in_turns
from wsdsl.lowering.buffer_assignment import SlotGroup, operand_slots
from wsdsl.lowering.cooperation import cluster_along, cluster_splits_beside, num_shares
from wsdsl.lowering.cta_pairs import PAIR, in_pairs
from wsdsl.lowering.decode import ROWS, decoded
from wsdsl.lowering.epilogue_operands import (
    MAX_DEPTH,
    MIN_DEPTH,
    epilogue_slots,
    subtile_offsets,
    subtile_widths,
)
from wsdsl.lowering.held_rows import are_held, covering_columns, height_in, held_axes
from wsdsl.lowering.product_operands import computed_operands, operand_lines
from wsdsl.lowering.register_layout import holds_vectors, turned, turned_bytes
from wsdsl.lowering.split_k_rules import cut_loop
from wsdsl.lowering.spread_rows import spread_bytes
from wsdsl.lowering.tensor_chains import held_by_threads
from wsdsl.lowering.tmem_operands import in_tensor_memory
from wsdsl.schedule import PRECISE_EVERY, Schedule

STAGING_BUFFERS = 2
"""Buffers of a warpgroup for stores; one if stages leave no room for more."""
STAGING_BYTES = 8192
"""One buffer of a warpgroup: 64 rows of at most 128 bytes."""

LEAST_LOOKAHEAD = 2304
"""Cycles of the tensor cores by which loads run ahead at the least, at the cost of a buffer for
stores. On an H200 256 x 64 with 4 stages, not 5, is at 0.91, block-scaled 128 x 64 with 7, not 8,
at 0.91; beyond this a buffer is worth as much as a stage (128 x 144 with an epilogue).
"""

TENSOR_STAGING_BYTES = 16384
"""The same where sums lie in tensor memory: 128 rows."""
MAX_LINE = 128
"""Bytes: the widest line of a panel."""
MOST_REGISTERS = 240
"""A thread's of two consumers; loading is left 24."""
OUTER_RING_DEPTH = 2
"""Stages of a pipeline whose stages are in use around an inner loop."""


@once
def depth_steps(kernel: Kernel) -> Mapping[str, tuple[int, int]]:
    """By axis that products sum over: elements that an instruction takes of it, or a copy to SMEM
    of what is packed two to a byte, and that fill a line of 128 bytes in SMEM (or less, to stay
    within the blocks of scales)."""
    found: dict[str, tuple[int, int]] = {}
    for op in kernel.of(Contract):
        for axis in op.summed:
            step, line = found.get(axis, (1, op.dtype.count(MAX_LINE)))
            own = max(k_step(op.dtype), WORD * op.block)
            found[axis] = max(step, own), min(line, op.dtype.count(MAX_LINE))
    for load in kernel.of(Load):
        if load.dtype.bits < 8 and load.last is not None and load.last.name in found:
            step, line = found[load.last.name]
            step = max(step, load.dtype.count(TMA_ALIGN))
            found[load.last.name] = step, max(step, line)
    for op in kernel.ops:
        if isinstance(op, Block) and isinstance(op.axis.type, Axis) and op.axis.type.name in found:
            step, line = found[op.axis.type.name]
            found[op.axis.type.name] = step, math.gcd(line, op.size)
    return found


@once_each
def axis_sizes(kernel: Kernel, schedule: Schedule) -> dict[str, int]:
    """Return the elements of a tile along every axis. Axes taken whole are rounded up to the steps
    of MMAs and of transformed operands; 0 if the size of a whole dimension is unknown.
    """
    tile = schedule.tile or {}
    sizes = {name: tile.get(name, tile.get(variable, 0)) for name, variable in _variables(kernel)}
    if loop := taken_in_turns(kernel):
        sizes[loop.index.name] = tile.get(loop.index.name, 1)
    written = {made.axes[0] for made in decoded(kernel).tiles.values()}
    for name in whole_axes(kernel):
        axis, step = axes_of(kernel)[name], depth_steps(kernel).get(name, (1, 1))[0]
        if size := held_axes(kernel).get(name):
            consumers = num_shares(kernel, schedule)["columns"]
            own = -(-size // (cluster_along(schedule, name) * consumers))
            sizes[name] = consumers * covering_columns(kernel, own, height_in(kernel, sizes))
            continue
        unit = ROWS if axis.role == "rows" or name in written else max(16, step)
        unit *= num_shares(kernel, schedule)[axis.role]
        sizes[name] = -(-dict(kernel.sizes).get(axis.dim, 0) // unit) * unit
    return sizes


@once
def _variables(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    return tuple([(name, loop_variable(name)) for name in axes_of(kernel)])


def tile_bytes(tile: Tile, sizes: dict[str, int]) -> int:
    """Return the bytes of SMEM of one tile in a stage."""
    elements = math.prod(sizes[axis] for axis in tile.axes)
    return -(-tile.dtype.size(elements) // SMEM_ALIGN) * SMEM_ALIGN


def slot_bytes(kernel: Kernel, schedule: Schedule, group: SlotGroup, sizes: dict[str, int]) -> int:
    shares, operands = num_shares(kernel, schedule), 0
    for edge in group.operands:
        tile, (*_, last) = edge.layout, edge.layout.axes
        role, among = axes_of(kernel)[last].role, shares
        if kernel.target.has_tensor_memory:
            among = dict.fromkeys(shares, 1)  # One thread multiplies.
        made = edge.producer == "decode" and last in whole_axes(kernel)
        if group.consumer == "decode" or made:
            # `assign_decode_axes` gives a whole dimension that role for all partitions.
            role, among = decoded(kernel).roles[last], dict.fromkeys(shares, 1)
        held = _held_sizes(kernel, schedule, sizes, tile)
        _, elements = operand_lines(held[last], tile.dtype, role, among[role])
        operands += tile_bytes(tile, {**held, last: elements})
    beside = sum(edge.box.bytes(sizes) for edge in group.edges if edge.box)
    return operands + -(-beside // SMEM_ALIGN) * SMEM_ALIGN


def _held_sizes(
    kernel: Kernel, schedule: Schedule, sizes: dict[str, int], tile: Tile
) -> dict[str, int]:
    """Return the bytes of an MMA operand in a stage."""
    if not in_pairs(schedule):
        return sizes
    sides = {name for name in tile.axes if axes_of(kernel)[name].role == "columns"}
    return {name: size // PAIR if name in sides else size for name, size in sizes.items()}


def ring_depth(kernel: Kernel, group: SlotGroup, stages: int) -> int:
    """Return the stages of a group's pipeline, if the innermost pipelines have `stages`."""
    if not group.is_innermost:
        return OUTER_RING_DEPTH
    return max(stages, _held_together(kernel)[group.ring])


@once
def _held_together(kernel: Kernel) -> Counter[int]:
    """Map each pipeline to the stages that consumers use at the same time before an MMA with a
    transformed operand.
    """
    found = Counter[int]()
    for group in operand_slots(kernel):
        operands = ((i, computed_operands(kernel, op)) for i, op in enumerate(group.block)
                    if isinstance(op, Contract))  # fmt: skip
        held = (i for i, values in operands if not decoded(kernel).tiles.keys() >= {*values})
        found[group.ring] += group.last < next(held, 0)
    return found


def smem_bytes(
    kernel: Kernel, schedule: Schedule, stages: int, buffers: int = STAGING_BUFFERS
) -> int:
    """Count the SMEM of a CTA: stages, `buffers` per warpgroup for stores, parts, mbarriers."""
    slots, staging, rest = _smem_parts(kernel, schedule)
    rings: dict[int, int] = {}
    for group, size in slots:
        rings[group.ring] = max(rings.get(group.ring, 0), ring_depth(kernel, group, stages) * size)
    return sum(rings.values()) + staging * buffers + rest


@once_each
def _smem_parts(
    kernel: Kernel, schedule: Schedule
) -> tuple[Sequence[tuple[SlotGroup, int]], int, int]:
    """Return the bytes per stage of each group, of the staging buffers, and of the rest."""
    sizes, consumers = axis_sizes(kernel, schedule), schedule.consumers or 1
    there = in_tensor_memory(kernel, sizes)
    groups = [g for g in operand_slots(kernel) if g.in_shared and g.ring not in there]
    slots = [(group, slot_bytes(kernel, schedule, group, sizes) + 16) for group in groups]
    is_staged = kernel.of(Store) and not holds_vectors(kernel)
    staging = staging_bytes(kernel) * consumers if is_staged else 0
    rest = exchange_bytes(kernel, schedule) * consumers + exchanged_bytes(kernel, schedule)
    rest += -(-spread_bytes(kernel, schedule) // SMEM_ALIGN) * SMEM_ALIGN
    return slots, staging, rest + part_bytes(kernel, schedule, MIN_DEPTH)


def exchange_bytes(kernel: Kernel, schedule: Schedule) -> int:
    """Return the bytes of a warpgroup for tiles that are transposed."""
    if not turned(kernel):
        return 0
    sizes, shares = axis_sizes(kernel, schedule), num_shares(kernel, schedule)
    return turned_bytes(kernel, lambda name: sizes[name] // shares[axes_of(kernel)[name].role])


def staging_bytes(kernel: Kernel) -> int:
    """Of a buffer of a warpgroup."""
    in_tensors = kernel.target.has_tensor_memory and kernel.of(Contract)
    return TENSOR_STAGING_BYTES if in_tensors else STAGING_BYTES


def sharing_ctas(kernel: Kernel, schedule: Schedule) -> int:
    """Count the CTAs of a cluster that reduce accumulators or other sums of a tile together; CTAs
    that share register-resident rows reduce them each time.
    """
    held = held_axes(kernel) if are_held(kernel, schedule, axis_sizes(kernel, schedule)) else ()
    return cluster_splits_beside(schedule, (loop.index for loop in output_nest(kernel)[0]), held)


def exchanged_bytes(kernel: Kernel, schedule: Schedule) -> int:
    """Return the bytes of the accumulators that other CTAs of a split cluster send, and of their
    mbarriers, rounded up.
    """
    sharing = sharing_ctas(kernel, schedule)
    loop = _cut_loop(kernel) if sharing > 1 else None
    if loop is None:
        return 0
    sizes = axis_sizes(kernel, schedule)
    sums = [v.type for v in loop.result if isinstance(v.type, Tile)]
    whole = sum(tile_bytes(tile, sizes) for tile in sums)
    return whole // sharing * (sharing - 1) + SMEM_ALIGN


@once
def _cut_loop(kernel: Kernel) -> ForTiles | None:
    return cut_loop(output_nest(kernel)[1])


def part_bytes(kernel: Kernel, schedule: Schedule, depth: int = 1) -> int:
    """Return the bytes of a pipeline of `depth` stages for epilogue operands; 0 without them."""
    total, sizes = 0, axis_sizes(kernel, schedule)
    for group in epilogue_slots(kernel, schedule):
        widths = subtile_widths(kernel, group.loads, sizes, is_heavy(kernel, schedule))
        panels, lines = subtile_offsets(group.layout, widths, sizes)[1]
        total += depth * (panels + 16) + -(-depth * lines // SMEM_ALIGN) * SMEM_ALIGN
    return total


@once_each
def is_heavy(kernel: Kernel, schedule: Schedule) -> bool:
    """Whether sums leave too few registers for an epilogue in wide chunks: ptxas 13.0 spills from
    176 accumulators a thread on."""
    return register_demand(kernel, schedule) >= 168


def part_depth(kernel: Kernel, schedule: Schedule) -> int:
    """Return the stages of that pipeline: as many as fit in SMEM with the other pipelines."""
    used = smem_bytes(kernel, schedule, schedule.stages or 1)
    room = kernel.target.smem_bytes - used + part_bytes(kernel, schedule, MIN_DEPTH)
    depths = range(MAX_DEPTH, MIN_DEPTH, -1)
    return next((d for d in depths if part_bytes(kernel, schedule, d) <= room), MIN_DEPTH)


@once_each
def accumulator_registers(kernel: Kernel, schedule: Schedule) -> int:
    """Count the registers per thread of tiles that are live across a loop's body, and of results of
    MMAs; of MMAs that are promoted at once, those of a row block (`schedule_products` says why).
    Accumulators in TMEM need none.
    """
    if kernel.target.has_tensor_memory and kernel.of(Contract):
        return _registers(kernel, schedule, held_by_threads(kernel))
    tiles = _tiles(kernel)
    block = _registers(kernel, schedule, tiles.passing, blocks=1)
    return _registers(kernel, schedule, tiles.held) + block * _parts(kernel, schedule)


@once_each
def register_demand(kernel: Kernel, schedule: Schedule) -> int:
    """The same for a choice that surely fits. Where a loop rescales an accumulator (attention), its
    scores are computed with until they are an operand, by as many registers as it has itself.
    """
    rescaled = () if kernel.target.has_tensor_memory else _tiles(kernel).rescaled
    own = accumulator_registers(kernel, schedule)
    return own + _registers(kernel, schedule, rescaled)


def score_registers(kernel: Kernel, schedule: Schedule) -> int:
    """Count the registers per thread of scores, a part of those of accumulators."""
    return _registers(kernel, schedule, _tiles(kernel).scores)


def _parts(kernel: Kernel, schedule: Schedule) -> int:
    """In how many parts products are promoted whose sums are held while they last."""
    sizes = axis_sizes(kernel, schedule)
    products = (op for op in kernel.of(Contract) if op.acc is None)
    interval = schedule.mma_promotion_interval
    return max((num_parts(op, sizes, interval) for op in products), default=1)


def num_parts(op: Contract, tile: Sizes, every: int | None) -> int:
    """Of a product that is read at once: how often its sum is promoted. `tile`: elements along
    every axis; `every`: `Schedule.mma_promotion_interval`.
    """
    if every == 0 or not is_fp8(op.dtype):
        return 1
    return max(1, depth_of(op, tile) // (every or PRECISE_EVERY))


def depth_of(op: Contract, tile: Sizes) -> int:
    """Elements of a tile that a product sums over."""
    return max(tile[x] for x in op.summed)


@once_each
def promoted_registers(kernel: Kernel, schedule: Schedule) -> int:
    """Count the registers per thread of promoted accumulators alone, and of rows of factors that
    are loaded meanwhile.
    """
    if kernel.target.has_tensor_memory:
        return 0
    sizes = axis_sizes(kernel, schedule)
    rows = sum(sizes[name] // 4 for name in _rows_of_factors(kernel))
    return _registers(kernel, schedule, _tiles(kernel).promoted) + rows


@once
def _rows_of_factors(kernel: Kernel) -> Sequence[str]:
    """Return the axis of each row that is loaded in addition to the operands of MMAs."""
    found: list[str] = []
    for loop in kernel.ops:
        if isinstance(loop, ForTiles) and any(isinstance(op, Contract) for op in loop.body):
            loads = (op.axes for op in loop.body if isinstance(op, Load))
            lines = (axes[0] for axes in loads if len(axes) == 1)
            found += [axis.name for axis in lines if axis.role == "columns"]
    return found


class _Tiles(NamedTuple):
    """Return the values of accumulators of MMAs, of promoted accumulators, of their MMAs if there
    are no others, of accumulators that a loop rescales before MMAs add to them in place, and of
    those of the first that are scores: inputs of an operand.
    """

    held: list[Tile]
    promoted: list[Tile]
    passing: list[Tile]
    rescaled: list[Tile]
    scores: list[Tile]


@once
def _tiles(kernel: Kernel) -> _Tiles:
    loops = kernel.of(ForTiles, ForEach)
    carried = {v for op in loops for v in (*op.args, *op.result)}
    kept = {v for op in loops for v in yielded(op.body)}
    held, promoted, passing, rescaled, scores = found = _Tiles([], [], [], [], [])
    alone: set[Value] = set()
    for op in loops:
        products = [inner.result for inner in op.body if isinstance(inner, Contract)]
        if len(products) == 1 and any(_is_promoted(op, i) for i in range(len(op.result))):
            alone |= {*products}
        for i, made in enumerate(op.result):
            # Values that the next loop or an inner one carries on have the same registers.
            if op.init[i] in carried or not isinstance(made.type, Tile) or len(made.type.axes) < 2:
                continue
            (promoted if _is_promoted(op, i) else held).append(made.type)
    for op in kernel.ops:
        if isinstance(op, Contract) and op.acc not in carried:
            in_place = rescaled if op.acc is not None and op.result in kept else held
            (passing if op.result in alone else in_place).append(op.result.as_tile)
            scores += [op.result.as_tile] if op.acc is None and op.result not in alone else []
    return found


def _is_promoted(loop: DimLoop, i: int) -> bool:
    """Whether a loop, or one in it, does nothing to a carried tile but add products to it."""
    arg, last = loop.args[i], yielded(loop.body)[i]
    products = {op.result for op in loop.body if isinstance(op, Contract)}
    for op in loop.body:
        if isinstance(op, Map) and op.result == last:
            return op.fn in ("add", "fma") and arg in op.args and bool(products & {*op.args})
        if isinstance(op, DimLoop) and last in op.result and arg in op.init:
            return _is_promoted(op, op.init.index(arg))
    return False


def _registers(
    kernel: Kernel, schedule: Schedule, tiles: Sequence[Tile], blocks: int | None = None
) -> int:
    """Count the registers per thread of tiles, or of `blocks` blocks of 64 of their rows."""
    if not tiles:
        return 0
    sizes = axis_sizes(kernel, schedule)
    axes, shares = axes_of(kernel), num_shares(kernel, schedule)
    total = 0
    for tile in tiles:
        rows = sum([sizes[x] for x in tile.axes if axes[x].role == "rows"])
        columns = sum([sizes[x] for x in tile.axes if axes[x].role == "columns"])
        total += (blocks or rows // (64 * shares["rows"])) * columns // (2 * shares["columns"])
    return total


def product_cycles(product: Contract, sizes: Sizes, rows: int) -> float:
    """Return the least cycles of the tensor cores for an MMA: an instruction needs half as many
    cycles as it has columns. `sizes`: elements of a tile along every axis.
    """
    a, b = product.tiles
    volume = math.prod(sizes[axis] for axis in {*a.axes, *b.axes})
    return volume / (rows * k_step(product.dtype) * 2)


@once_each
def row_blocks(kernel: Kernel, schedule: Schedule) -> int:
    """Blocks of 64 rows that a consumer has."""
    sizes, sharing = axis_sizes(kernel, schedule), num_shares(kernel, schedule)["rows"]
    rows = [sizes[name] for name, axis in axes_of(kernel).items() if axis.role == "rows"]
    return max(rows, default=0) // (64 * sharing)


def fits_smem(
    kernel: Kernel, schedule: Schedule, stages: int, buffers: int = STAGING_BUFFERS
) -> bool:
    return smem_bytes(kernel, schedule, stages, buffers) <= kernel.target.smem_bytes


def runs_ahead(kernel: Kernel, schedule: Schedule) -> bool:
    """Whether SMEM has room for enough stages to keep the tensor cores busy."""
    stages = -(-LEAST_LOOKAHEAD // max(1, slot_cycles(kernel, schedule)))
    return fits_smem(kernel, schedule, stages, buffers=1)


def slot_cycles(kernel: Kernel, schedule: Schedule) -> int:
    """Return the cycles of the MMAs of one stage."""
    sizes = axis_sizes(kernel, schedule)
    rows = LANES if kernel.target.has_tensor_memory else 64
    products = _slot_products(kernel)
    found = [sum([product_cycles(op, sizes, rows) for op in used]) for used in products]
    return int(min(found, default=0))


@once
def _slot_products(kernel: Kernel) -> Sequence[Sequence[Contract]]:
    """Return the MMAs that read each of the innermost stages."""
    groups = (g for g in operand_slots(kernel) if g.is_innermost and not g.to_threads)
    tiles = ({edge.value for edge in group.edges} for group in groups)
    return [[op for op in kernel.of(Contract) if {op.a, op.b} & held] for held in tiles]
