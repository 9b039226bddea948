"""Plan of a kernel before it is partitioned: its schedule, and all that follows from it.

The choice makes it once, and lowering reads it. A text of the level TILE needs none, since it has
the schedule; `partition_loads` writes each decision to the op that it is about (`pipeline`,
`partition`), so a text of the level PARTITIONED has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wsdsl.ir.hardware.histogram_layout import counter_bytes
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.hardware.target import Target
from wsdsl.ir.hardware.tcgen05_shapes import COLUMNS
from wsdsl.record import record
from wsdsl.schedule import Schedule

MBARRIER = 8
"""Bytes."""


@record
class Allocation:
    """`bytes` of SMEM for a purpose. Tiles are aligned to `SMEM_ALIGN`, mbarriers and the address
    of TMEM to what one of them has.
    """

    label: str
    bytes: int
    align: int = SMEM_ALIGN


def pipeline_smem(label: str, depth: int, *slot_bytes: int) -> Iterator[Allocation]:
    """Return the allocations of a pipeline, with two mbarriers per stage."""
    yield from (Allocation(label, depth * size) for size in slot_bytes if size)
    yield Allocation(f"mbarriers of {label}", 2 * depth * MBARRIER, MBARRIER)


def placed(sizes: Sequence[tuple[int, int]]) -> list[range]:
    """Return the address ranges of allocations of (alignment, bytes): tiles come first, the largest
    before others, then mbarriers, then the address of TMEM.
    """
    found, used = [range(0)] * len(sizes), 0
    ranks = ((-a, -b * (a == SMEM_ALIGN), n) for n, (a, b) in enumerate(sizes))
    for *_, n in sorted(ranks):
        used += -used % sizes[n][0]
        found[n] = range(used, used := used + sizes[n][1])
    return found


def smem_end(allocations: Iterable[Allocation]) -> int:
    """Return the bytes of SMEM that allocations take."""
    places = placed([(each.align, each.bytes) for each in allocations])
    return max((place.stop for place in places), default=0)


@record
class PipelineSize:
    """Bytes per stage of panels and of SMEM rows of vectors, which are in a separate allocation; or
    columns of TMEM. A tile of epilogue operands comes in `subtiles` of these columns. `fixed` is a
    number of stages that the schedule does not decide, `least` the least.
    """

    panels: int = 0
    lines: int = 0
    subtiles: tuple[int, ...] = ()
    columns: int = 0
    fixed: int = 0
    least: int = 0

    def depth(self, stages: int, parts: int) -> int:
        """Return the stages, `parts` for epilogue operands."""
        return self.fixed or (parts if self.subtiles else max(stages, self.least))


@record
class PlannedRing:
    """A pipeline, the edges' `number`; `holds` says what a stage has. `num_consumers` warpgroups
    read each stage.
    """

    name: str
    number: int
    holds: tuple[str, ...]
    orders: tuple[tuple[int, ...], ...]
    """By layout, the fields of a stage as they are copied; `holds` is in that order, too."""
    depth: int
    size: PipelineSize
    producer: str
    consumer: str
    num_consumers: int


@record
class PlannedPartition:
    """`tensors` are those that it copies to stages, `fills_slots` those of MMAs; of one warp, it
    is one thread.
    """

    role: str
    num_warps: int
    registers: int = 0
    tensors: frozenset[str] = frozenset()
    fills_slots: bool = False


@record
class PlannedCounters:
    """A CTA's counters of the first `extents` elements of a tensor; see `ir/ops/histogram.py`."""

    tensor: str
    extents: tuple[int, ...]
    copies: int

    @property
    def bytes(self) -> int:
        return counter_bytes(self.extents, self.copies)


@record
class Plan:
    """`tile` has elements per tile by axis, `rows`, `columns` and `summed` the axes by what they
    are to the tensor cores; consumers who cooperate each have a part of a tile's `shared` axis.
    `staging`: buffers per warpgroup for results.
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
    """Edges between partitions, one per line."""
    smem: tuple[Allocation, ...] = ()
    tmem_columns: int = 0
    meetings: tuple[str, ...] = ()
    """Rows that CTAs reduce together, per transfer."""
    counters: tuple[PlannedCounters, ...] = ()
    staging: int = 0
    in_order: bool = False
    """Whether what threads load from GMEM comes when it is needed: sums leave no registers."""
    late_loads: bool = False
    """Whether what multiplies a product is loaded behind its issue, and not in front."""
    order_barriers: bool = False
    """Whether consumers who share a tile follow one another in each iteration of a chain."""
    copies_ahead: bool = False
    """Whether threads that copy operands prefetch later ones to L2."""
    asks_early: tuple[tuple[str, int], ...] = ()
    """Tensors, and the iterations that the load partition prefetches to L2 before it waits."""
    chosen_by: str = ""
    """The reason of the schedule, where that is not the model."""

    @property
    def loads(self) -> Sequence[PlannedPartition]:
        """The partitions that fill the MMAs' stages."""
        return [p for p in self.partitions if p.fills_slots]

    def registers(self, role: str) -> int:
        """A thread's; 0 where none are moved between partitions."""
        return (self.schedule.registers or {}).get(role, 0)

    @property
    def smem_bytes(self) -> int:
        return smem_end(self.smem)

    def __str__(self) -> str:
        return "\n".join(_page(self))


def _page(plan: Plan) -> Iterator[str]:
    schedule, sizes = plan.schedule, dict(plan.tile)
    yield f"{schedule!r}"
    if plan.chosen_by:
        yield plan.chosen_by
    yield from _sides(plan, sizes)
    along = schedule.raster or "the last axis"
    order = f"raster along {along}, swizzle groups of {schedule.swizzle or 1}"
    yield _line("tile scheduler", f"{schedule.scheduler or 'persistent'}, {order}")
    if schedule.cuts_tiles:
        splits = f" in {schedule.splits} splits" if schedule.splits else ""
        reduction = f"{schedule.reduction or 'serial'} reduction"
        yield _line("", f"split along {', '.join(plan.summed)}{splits}, {reduction}")
    if schedule.cluster:
        sides = ", ".join(f"{num} along {name}" for name, num in schedule.cluster.items())
        multicast = "without multicast" if schedule.multicast is False else "with multicast"
        paired = "CTA pairs (cta_group 2)"
        yield _line("cluster", f"{sides}, {paired if schedule.cta_group == 2 else multicast}")
    for partition in plan.partitions:
        yield _line(f"partition {partition.role}", _who(partition))
    if any(p.num_warps > 4 for p in plan.partitions if p.role == "compute"):
        yield _line("consumer split", f"cooperating consumers split a tile's {plan.shared}")
    if plan.order_barriers:
        yield _line("ordered barrier", "consumers alternate, once per iteration")
    elif schedule.mode == "pingpong":
        yield _line("ordered barrier", "consumers alternate, once per tile")
    for n, edge in enumerate(plan.edges):
        yield _line("" if n else "edges", edge)
    for ring in plan.rings:
        stages = f"{ring.depth} stages of {ring.size.panels + ring.size.lines} bytes"
        if ring.size.columns:
            stages = f"{ring.depth} stages of {ring.size.columns} TMEM columns"
        yield _line(ring.name, f"{stages}: {', '.join(ring.holds)}")
        order = "" if ring.size.columns else " (loads in this order)"
        yield _line("", f"producer {ring.producer}{order}, consumer {ring.consumer}")
        if ring.size.subtiles:
            yield _line("", f"for the epilogue, in subtiles of {_runs(ring.size.subtiles)} columns")
    order = "in program order" if plan.in_order else "as early as registers allow"
    yield _line("GMEM loads", f"of threads: {order}")
    if plan.late_loads:
        yield _line("", "of scale factors: after the issue of the MMAs")
    if plan.copies_ahead:
        yield _line("", "to SMEM stages: with L2 prefetch of later stages")
    for tensor, count in plan.asks_early:
        iterations = f"{count} iteration{'s' if count > 1 else ''} of {tensor}"
        yield _line("", f"L2 prefetch of {iterations} before griddepcontrol.wait")
    for bins in plan.counters:
        copies = f", {bins.copies} copies by lane" if bins.copies > 1 else ""
        count = " x ".join(map(str, bins.extents))
        yield _line("privatized bins", f"{count} of {bins.tensor}{copies}")
    if schedule.mma_promotion_interval:
        yield _line("promotion", f"to f32 every {schedule.mma_promotion_interval} elements of K")
    for n, sent in enumerate(plan.meetings):
        yield _line("" if n else "cluster exchange", sent)
    start = "ends" if schedule.launch_pdl is False else "has started"
    yield _line("next kernel", f"may start once this one {start}")
    if plan.tmem_columns:
        yield _line("TMEM", f"{plan.tmem_columns} of {COLUMNS} columns")
    yield _line("SMEM", f"{plan.smem_bytes} of {plan.target.smem_bytes} bytes")
    for each in plan.smem:
        yield _line("", f"{each.bytes} bytes: {each.label}")


def _sides(plan: Plan, sizes: dict[str, int]) -> Iterator[str]:
    sides = {"M axes": plan.rows, "N axes": plan.columns, "K axes": plan.summed}
    for side, axes in sides.items():
        if axes:
            told = ", ".join(f"{axis} by {sizes[axis]}" for axis in axes)
            widths = plan.schedule.tile_n_variants or 1
            if axes == plan.columns and widths > 1:
                told += f", or up to {8 * (widths - 1)} fewer by steps of 8, chosen per launch"
            yield _line(side, told)


def _who(partition: PlannedPartition) -> str:
    num = partition.num_warps // 4
    found = [f"{num} warpgroup{'s' if num > 1 else ''}" if num else "one thread"]
    if partition.registers:
        found.append(f"{partition.registers} registers per thread")
    if partition.tensors:
        found.append(f"loads {', '.join(sorted(partition.tensors))}")
    return ", ".join(found)


def _runs(widths: tuple[int, ...]) -> str:
    """64, 64, 32 as 2 x 64, 32."""
    numbers = {width: widths.count(width) for width in widths}
    return ", ".join(f"{num} x {w}" if num > 1 else f"{w}" for w, num in numbers.items())


def _line(subject: str, text: str) -> str:
    return f"  {subject:<20}{text}"
