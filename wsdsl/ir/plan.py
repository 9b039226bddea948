"""Plan of a kernel before it is partitioned: its schedule, and all that follows from it.

The choice makes it once, and lowering reads it. A text of the level TILE needs none, since it has
the schedule; `partition_loads` writes each decision to the op that it is about (`pipeline`,
`partition`), so a text of the level PARTITIONED has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wsdsl.ir.hardware.histogram_layout import counter_bytes
from wsdsl.ir.hardware.target import Target
from wsdsl.record import record
from wsdsl.schedule import Schedule


@record
class PlannedRing:
    """A pipeline, the edges' `number`; `holds` says what a stage has. `num_consumers`
    warpgroups read each stage; `line_bytes` are those of single lines, which lie apart from the
    stage's panels. With `subtiles` a tile passes through in parts of these columns. In the `space`
    "TMEM" a stage has `columns` columns of tensor memory.
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
    `staging`: buffers a warpgroup, of `staging_bytes`, for results.
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
    exchanged_bytes: int = 0
    """Of the accumulators sent within a cluster."""
    meetings: tuple[str, ...] = ()
    """Rows that CTAs reduce together, per transfer."""
    counters: tuple[PlannedCounters, ...] = ()
    staging: int = 0
    staging_bytes: int = 0
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
    if plan.num_consumers > 1 and schedule.mode != "pingpong":
        yield _line("consumer split", f"cooperating consumers split a tile's {plan.shared}")
    if plan.order_barriers:
        yield _line("ordered barrier", "consumers alternate, once per iteration")
    elif schedule.mode == "pingpong":
        yield _line("ordered barrier", "consumers alternate, once per tile")
    for n, edge in enumerate(plan.edges):
        yield _line("" if n else "edges", edge)
    for ring in plan.rings:
        stages = f"{ring.depth} stages of {ring.slot_bytes + ring.line_bytes} bytes"
        if ring.space == "TMEM":
            stages = f"{ring.depth} stages of {ring.columns} TMEM columns"
        yield _line(ring.name, f"{stages}: {', '.join(ring.holds)}")
        order = "" if ring.space == "TMEM" else " (loads in this order)"
        yield _line("", f"producer {ring.producer}{order}, consumer {ring.consumer}")
        if ring.subtiles:
            yield _line("", f"for the epilogue, in subtiles of {_runs(ring.subtiles)} columns")
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
        yield _line(
            "privatized bins", f"{count} of {bins.tensor}{copies}: {bins.bytes} bytes of SMEM"
        )
    if plan.staging:
        yield _line("staging", f"{plan.staging} x {plan.staging_bytes} bytes per warpgroup")
    if schedule.mma_promotion_interval:
        yield _line("promotion", f"to f32 every {schedule.mma_promotion_interval} elements of K")
    for n, sent in enumerate(plan.meetings):
        yield _line("" if n else "cluster exchange", sent)
    if plan.exchanged_bytes:
        yield _line("cluster split-K", f"{plan.exchanged_bytes} bytes of DSMEM for accumulators")
    start = "ends" if schedule.launch_pdl is False else "has started"
    yield _line("next kernel", f"may start once this one {start}")
    yield _line("SMEM", f"{plan.smem_bytes} of {plan.target.smem_bytes} bytes")


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
