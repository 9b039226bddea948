"""Resources of a schedule: tile sizes, bytes of SMEM, registers of accumulators (TILE)."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wsdsl.ir.hardware.block_scale_factors import WORD
from wsdsl.ir.hardware.tcgen05_shapes import LANES
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.hardware.wgmma_shapes import is_fp8, k_step
from wsdsl.ir.op import Kernel, Value, once, once_each
from wsdsl.ir.ops import Block, Contract, DimLoop, ForEach, ForTiles, Load, Map
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import Axis, Sizes, Tile
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest, whole_axes
from wsdsl.lowering.batch_coarsening import taken_in_turns
from wsdsl.lowering.buffer_assignment import operand_slots
from wsdsl.lowering.cooperation import cluster_along, cluster_splits_beside, num_shares
from wsdsl.lowering.decode import ROWS, decoded
from wsdsl.lowering.held_rows import are_held, covering_columns, height_in, held_axes
from wsdsl.lowering.tensor_chains import held_by_threads
from wsdsl.schedule import PRECISE_EVERY, Schedule

MAX_LINE = 128
"""Bytes: the widest line of a panel."""
MOST_REGISTERS = 240
"""A thread's of two consumers; loading is left 24."""


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


def sharing_ctas(kernel: Kernel, schedule: Schedule) -> int:
    """Count the CTAs of a cluster that reduce accumulators or other sums of a tile together; CTAs
    that share register-resident rows reduce them each time.
    """
    held = held_axes(kernel) if are_held(kernel, schedule, axis_sizes(kernel, schedule)) else ()
    return cluster_splits_beside(schedule, (loop.index for loop in output_nest(kernel)[0]), held)


@once_each
def is_heavy(kernel: Kernel, schedule: Schedule) -> bool:
    """Whether sums leave too few registers for an epilogue in wide chunks: ptxas 13.0 spills from
    176 accumulators a thread on."""
    return register_demand(kernel, schedule) >= 168


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
