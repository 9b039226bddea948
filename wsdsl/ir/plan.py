"""The decisions about a kernel before warp specialization: its schedule, and all that follows.

The schedule heuristics make a plan once, and lowering reads it. TILE IR needs no plan, since it has
the schedule; `partition_loads` writes each decision to its op (`circular_buffer`, `partition`), so
PARTITIONED IR has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wsdsl.ir.counter_layout import counter_bytes
from wsdsl.ir.target import Target
from wsdsl.schedule import Schedule


@dataclass(frozen=True)
class PlannedRing:
    """A pipeline, with its `number`; `holds` lists the operands of a stage. `num_consumers`
    warpgroups read each stage; `line_bytes` are those of single rows, which are stored apart from
    the panels. With `subtiles` a tile passes through in parts of these numbers of columns. In the
    `space` "TMEM" a stage has `columns` columns of tensor memory.
    """

    name: str
    number: int
    holds: tuple[str, ...]
    orders: tuple[tuple[int, ...], ...]
    """By layout, the fields of a stage as they are copied; `holds` is in that order, too."""
    depth: int
    slot_bytes: int
    producer: str
    consumer: str
    num_consumers: int
    line_bytes: int = 0
    subtiles: tuple[int, ...] = ()
    space: str = "SMEM"
    columns: int = 0

    @property
    def bytes(self) -> int:
        """With two mbarriers per stage."""
        return self.depth * (self.slot_bytes + self.line_bytes + 16)


@dataclass(frozen=True)
class PlannedPartition:
    """`tensors` are those that it copies to pipelines, `fills_slots` those of MMAs; of one warp, it
    is one thread.
    """

    role: str
    num_warps: int
    registers: int = 0
    tensors: frozenset[str] = frozenset()
    fills_slots: bool = False


@dataclass(frozen=True)
class PlannedCounters:
    """A CTA's counters of the first `extents` elements of a tensor; see `ir/counter_ops.py`."""

    tensor: str
    extents: tuple[int, ...]
    copies: int

    @property
    def bytes(self) -> int:
        return counter_bytes(self.extents, self.copies)


@dataclass(frozen=True)
class Plan:
    """`tile` has the elements per tile by axis; `rows`, `columns` and `summed` are the axes of M, N
    and K of the tensor cores; cooperating consumers divide the `shared` axis of a tile.
    `staging`: buffers per warpgroup, of `staging_bytes`, for results.
    """

    schedule: Schedule
    target: Target
    tile: tuple[tuple[str, int], ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    summed: tuple[str, ...]
    shared: str
    partitions: tuple[PlannedPartition, ...]
    rings: tuple[PlannedRing, ...]
    edges: tuple[str, ...] = ()
    """The values that pass between partitions, one edge per line."""
    exchanged_bytes: int = 0
    """Of the accumulators that CTAs of a cluster send each other."""
    meetings: tuple[str, ...] = ()
    """The values of shared rows that CTAs send at once."""
    counters: tuple[PlannedCounters, ...] = ()
    staging: int = 0
    staging_bytes: int = 0
    in_order: bool = False
    """Whether threads load from GMEM at the first use: accumulators leave no registers."""
    late_loads: bool = False
    """Whether factors of an MMA are loaded after its issue, not before."""
    order_barriers: bool = False
    """Whether consumers that share a tile alternate in each iteration of back-to-back MMAs."""
    copies_ahead: bool = False
    """Whether threads that copy operands prefetch later ones to L2."""
    asks_early: int = 0
    """Iterations whose boxes are prefetched to L2 before `griddepcontrol.wait`."""
    chosen_by: str = ""
    """The source of the schedule, where that is not the cost model."""

    @property
    def loads(self) -> Sequence[PlannedPartition]:
        """The partitions that fill the pipelines of MMAs."""
        return [p for p in self.partitions if p.fills_slots]

    def registers(self, role: str) -> int:
        """A thread's; 0 where none are moved between partitions."""
        return (self.schedule.registers or {}).get(role, 0)

    @property
    def smem_bytes(self) -> int:
        """At the most: narrow results need less staging."""
        held = sum(ring.bytes for ring in self.rings) + self.exchanged_bytes
        held += sum(counters.bytes for counters in self.counters)
        return held + self.staging * self.staging_bytes * self.num_consumers

    @property
    def num_consumers(self) -> int:
        """Warpgroups that compute."""
        return sum(p.num_warps // 4 for p in self.partitions if p.role == "compute")

    def __str__(self) -> str:
        return "\n".join(_page(self))


def _page(plan: Plan) -> Iterator[str]:
    schedule, sizes = plan.schedule, dict(plan.tile)
    yield f"{schedule!r}"
    if plan.chosen_by:
        yield plan.chosen_by
    yield from _sides(plan, sizes)
    walked = f"{schedule.scheduler or 'persistent'}, raster swizzle {schedule.swizzle or 1}"
    along = f"along {schedule.raster}" if schedule.raster else "along the last axis"
    yield _line("tiles", f"scheduler {walked}, adjacent tiles {along}")
    if schedule.cuts_tiles:
        pieces = f" into {schedule.splits} parts" if schedule.splits else ""
        reduction = schedule.reduction or "serial"
        yield _line("", f"split along {', '.join(plan.summed)}{pieces}, {reduction}")
    if schedule.cluster:
        sides = ", ".join(f"{num} along {name}" for name, num in schedule.cluster.items())
        multicast = "without multicast" if schedule.multicast is False else "with multicast"
        paired = "as a pair (cta_group 2)"
        yield _line("cluster", f"{sides}, {paired if schedule.cta_group == 2 else multicast}")
    for partition in plan.partitions:
        yield _line(f"partition {partition.role}", _who(partition))
    yield _line("share", f"cooperating consumers divide a tile's {plan.shared}")
    if plan.order_barriers:
        yield _line("order barriers", "consumers alternate once per iteration")
    elif schedule.mode == "pingpong":
        yield _line("order barriers", "consumers alternate once per tile")
    for n, edge in enumerate(plan.edges):
        yield _line("" if n else "edges", edge)
    for ring in plan.rings:
        slots = f"{ring.depth} stages of {ring.slot_bytes + ring.line_bytes} bytes"
        if ring.space == "TMEM":
            slots = f"{ring.depth} stages of {ring.columns} columns of tensor memory"
        yield _line(ring.name, f"{slots}: {', '.join(ring.holds)}")
        order = "" if ring.space == "TMEM" else " in this order"
        yield _line("", f"filled by {ring.producer}{order}, read by {ring.consumer}")
        if ring.subtiles:
            yield _line("", f"for the epilogue, in subtiles of {_runs(ring.subtiles)} columns")
    order = "when they are needed" if plan.in_order else "as early as registers allow"
    yield _line("loads", f"by threads from GMEM, {order}")
    if plan.late_loads:
        yield _line("", "of factors of an MMA: after its issue")
    if plan.copies_ahead:
        yield _line("", "by threads, which prefetch later stages to L2")
    if plan.asks_early:
        iterations = f"{plan.asks_early} iteration{'s' if plan.asks_early > 1 else ''}"
        yield _line("", f"of {iterations}: prefetched to L2 before griddepcontrol.wait")
    for held in plan.counters:
        lanes = f", {held.copies} of each, by lanes" if held.copies > 1 else ""
        count = " x ".join(map(str, held.extents))
        told = f"of {count} elements of {held.tensor}{lanes}: {held.bytes} bytes of SMEM"
        yield _line("counters", f"{told}, added to memory when a CTA ends")
    if plan.staging:
        yield _line("staging", f"{plan.staging} x {plan.staging_bytes} bytes per warpgroup")
    if schedule.mma_promotion_interval:
        yield _line("promotion", f"to f32 every {schedule.mma_promotion_interval} elements of K")
    for n, sent in enumerate(plan.meetings):
        yield _line("" if n else "shared rows", f"the CTAs of a cluster send each other {sent}")
    if plan.exchanged_bytes:
        yield _line("exchange", f"{plan.exchanged_bytes} bytes for the accumulators of a cluster")
    overlap = "is complete" if schedule.launch_pdl is False else "has started"
    yield _line("next kernel", f"may start once this one {overlap}")
    yield _line("SMEM", f"{plan.smem_bytes} of {plan.target.smem_bytes} bytes")


def _sides(plan: Plan, sizes: dict[str, int]) -> Iterator[str]:
    sides = {"rows (wgmma's M)": plan.rows, "columns (N)": plan.columns, "depth (K)": plan.summed}
    for what, axes in sides.items():
        if axes:
            told = ", ".join(f"{axis} by {sizes[axis]}" for axis in axes)
            widths = plan.schedule.tile_n_variants or 1
            if axes == plan.columns and widths > 1:
                told += f", or up to {8 * (widths - 1)} fewer in steps of 8, by launch"
            yield _line(what, told)


def _who(partition: PlannedPartition) -> str:
    num = partition.num_warps // 4
    found = [f"{num} warpgroup{'s' if num > 1 else ''}" if num else "one thread"]
    if partition.registers:
        found.append(f"{partition.registers} registers per thread")
    if partition.tensors:
        found.append(f"copies {', '.join(sorted(partition.tensors))}")
    return ", ".join(found)


def _runs(widths: tuple[int, ...]) -> str:
    """64, 64, 32 as 2 x 64, 32."""
    numbers = {width: widths.count(width) for width in widths}
    return ", ".join(f"{num} x {w}" if num > 1 else f"{w}" for w, num in numbers.items())


def _line(what: str, told: str) -> str:
    return f"  {what:<20}{told}"
