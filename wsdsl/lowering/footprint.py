"""What a schedule costs a kernel: tile sizes, SMEM bytes, accumulator registers."""

from __future__ import annotations

from wsdsl.ir.op import Kernel
from wsdsl.ir.target import SMEM_ALIGN
from wsdsl.ir.tile_ops import Contract, ForEach, ForTiles, Store, Whole
from wsdsl.ir.types import Tile
from wsdsl.ir.walk import walk
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.load_groups import find_load_groups
from wsdsl.schedule import Schedule

STAGING_BUFFERS = 2
STAGING_BYTES = 8192
"""One buffer of a warpgroup: 64 rows of at most 128 bytes."""

OUTER_RING_DEPTH = 2
"""Slots of a circular buffer whose slots are held around an inner loop."""


def num_turns(schedule: Schedule) -> int:
    """Compute partitions that take turns at the tiles."""
    return (schedule.consumers or 1) if schedule.mode == "pingpong" else 1


def num_sharing(schedule: Schedule) -> int:
    """Warpgroups that share a tile."""
    return (schedule.consumers or 1) // num_turns(schedule)


def axis_sizes(kernel: Kernel, schedule: Schedule) -> dict[str, int]:
    """Elements a tile along every axis. Axes taken whole are rounded up to what the tensor cores
    take; 0 where the size of a whole dimension is not known.
    """
    sizes, static, tile = dict[str, int](), dict(kernel.sizes), schedule.tile or {}
    sharing = num_sharing(schedule)
    whole = {op.result.type for op in walk(kernel.body) if isinstance(op, Whole)}
    for name, axis in axes_of(kernel).items():
        if axis in whole:
            unit = 64 * sharing if axis.role == "rows" else 16
            sizes[name] = -(-static.get(axis.dim, 0) // unit) * unit
        else:
            sizes[name] = tile.get(name, tile.get(loop_variable(name), 0))
    return sizes


def tile_bytes(tile: Tile, sizes: dict[str, int]) -> int:
    """SMEM of one tile in a slot."""
    elements = 1
    for axis in tile.axes:
        elements *= sizes[axis]
    return -(-elements * tile.dtype.bytes // SMEM_ALIGN) * SMEM_ALIGN


def slot_bytes(layout: tuple[Tile, ...], sizes: dict[str, int]) -> int:
    return sum(tile_bytes(tile, sizes) for tile in layout)


def smem_bytes(kernel: Kernel, schedule: Schedule, stages: int) -> int:
    """All of a CTA's SMEM: slots, staging for stores, mbarriers."""
    sizes = axis_sizes(kernel, schedule)
    slots: dict[int, int] = {}
    for group in find_load_groups(kernel.body):
        size = slot_bytes(group.layout, sizes)
        slots[group.height] = max(slots.get(group.height, 0), size)
    total = 0
    for height, size in slots.items():
        depth = stages if height == 0 else OUTER_RING_DEPTH
        total += depth * (size + 16)
    if any(isinstance(op, Store) for op in walk(kernel.body)):
        total += STAGING_BYTES * STAGING_BUFFERS * (schedule.consumers or 1)
    return total


def accumulator_registers(kernel: Kernel, schedule: Schedule) -> int:
    """Registers a thread for the tiles that live across a loop's body or come out of a product."""
    sizes = axis_sizes(kernel, schedule)
    roles = {name: axis.role for name, axis in axes_of(kernel).items()}
    loops = [op for op in walk(kernel.body) if isinstance(op, (ForTiles, ForEach))]
    carried = {v for op in loops for v in (*op.args, *op.result)}
    held: list[Tile] = []
    for op in loops:
        # What goes on from one loop to the next, or into an inner one, is the same registers.
        fresh = [r for r, first in zip(op.result, op.init, strict=True) if first not in carried]
        held += [v.type for v in fresh if isinstance(v.type, Tile) and len(v.type.axes) > 1]
    for op in walk(kernel.body):
        if isinstance(op, Contract) and op.acc not in carried:
            assert isinstance(op.result.type, Tile)
            held.append(op.result.type)
    total = 0
    for tile in held:
        rows = sum(sizes[x] for x in tile.axes if roles[x] == "rows")
        columns = sum(sizes[x] for x in tile.axes if roles[x] == "columns")
        total += rows // (64 * num_sharing(schedule)) * columns // 2
    return total


def slot_cycles(kernel: Kernel, schedule: Schedule) -> int:
    """Cycles for which the products of one slot keep the tensor cores busy, at the least: a product
    of 64 rows, 16 deep, takes half as many cycles as it has columns.
    """
    sizes = axis_sizes(kernel, schedule)
    found: list[int] = []
    for group in find_load_groups(kernel.body):
        if group.height:
            continue
        loaded = {load.result for load in group.loads}
        cycles = 0
        for op in walk(kernel.body):
            if isinstance(op, Contract) and loaded & {op.a, op.b}:
                assert isinstance(op.a.type, Tile) and isinstance(op.b.type, Tile)
                volume = 1
                for axis in {*op.a.type.axes, *op.b.type.axes}:
                    volume *= sizes[axis]
                cycles += volume // (64 * 16 * 2)
        found.append(cycles)
    return min(found, default=0)
