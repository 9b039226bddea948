"""Decide what follows from the schedule: rings, staging, subtiles, and in which order loads come.

Before: `kernel.plan` is None
After: `kernel.plan` is a `Plan`; the text is the same

Passes from here on read the plan, or the ops that it was written to, and decide nothing by
registers, by warpgroups, or by what SMEM is left over.

Why here: the last ops of the level TILE are there, and axes have their sizes and roles.
"""

import dataclasses
import math
from collections.abc import Iterator

from wsdsl.ir.hardware.tcgen05_shapes import allocated
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import ClusterAllgather, Load, Reduce
from wsdsl.ir.plan import Allocation, Plan, PlannedPartition, PlannedRing
from wsdsl.ir.rewriter import Namer
from wsdsl.ir.types import Axis, Sizes
from wsdsl.lowering import footprint
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.buffer_assignment import SlotGroup, layouts_of, operand_slots
from wsdsl.lowering.cooperation import num_cooperating, num_pingpong_consumers, shared_role
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.decode import num_decoders
from wsdsl.lowering.early_loads import load_shares, load_warps, loaded_tensors
from wsdsl.lowering.edges import edges
from wsdsl.lowering.epilogue_operands import epilogue_slots
from wsdsl.lowering.smem_allocations import allocations, pipelines, smem_depths, tile_bytes
from wsdsl.lowering.smem_privatization import counters_of
from wsdsl.lowering.tmem_accumulators import multiplying_warps, scale_columns_of, sum_slots
from wsdsl.lowering.tmem_scales import stores_scales
from wsdsl.schedule import Schedule

LEAST_COPYING = 56
"""Registers of a thread that copies operands: what such ones have beside two consumers. Beside
three, or heavy ones, they have 24 or 32, none for the addresses of what they would ask for ahead.
"""


EARLY_BYTES = 48 << 10
"""Of a CTA, that L2 is asked for while the kernel in front ends. Lossless weights of 14336 x 4096
by 64 rows take 36.1 us with 48 KB of each of 112 CTAs as with 96, 36.9 with none, 37.7 with 384 (an
H100): L2 has no room for it beside what the kernel in front reads."""
FEW_LINES = 64
"""Of a tile that is copied to a slot."""


def make_plan(kernel: Kernel) -> Kernel:
    assert kernel.schedule is not None
    schedule, groups = kernel.schedule, operand_slots(kernel)
    in_parts = epilogue_slots(kernel, schedule)
    axes, counters = axes_of(kernel), counters_of(kernel)
    staging, parts = smem_depths(kernel, schedule)
    smem = [*allocations(kernel, schedule, schedule.stages or 1, staging, parts)]
    smem += (Allocation("privatized bins", each.bytes) for each in counters)
    rings = tuple(_rings(kernel, schedule, parts))
    columns = sum(ring.depth * ring.size.columns for ring in rings if ring.producer != "scale")
    if columns:
        columns += scale_columns_of(kernel, footprint.axis_sizes(kernel, schedule))
    copied = loaded_tensors(groups) & {*kernel.unaligned}
    loading = (schedule.registers or {}).get("load", LEAST_COPYING)
    roles = {role: tuple(n for n, a in axes.items() if a.role == role) for role in _ROLES}
    plan = Plan(
        schedule=schedule,
        target=kernel.target,
        tile=tuple((name, axis.size) for name, axis in axes.items()),
        rows=roles["rows"],
        columns=roles["columns"],
        summed=roles[""],
        shared=shared_role(kernel, schedule),
        partitions=tuple(_partitions(kernel, schedule, groups, in_parts)),
        edges=tuple(_edges(kernel, schedule)),
        rings=rings,
        smem=tuple(smem),
        tmem_columns=allocated(columns) if columns else 0,
        meetings=tuple(_meetings(kernel)),
        counters=counters,
        staging=staging if any(each.label == "staging" for each in smem) else 0,
        in_order=_loads_in_order(schedule),
        late_loads=num_cooperating(schedule) > 2,
        order_barriers=follow_one_another(kernel, schedule),
        copies_ahead=bool(copied) and loading >= LEAST_COPYING,
        asks_early=asked_early(kernel, schedule, groups),
    )
    made = dataclasses.replace(kernel, plan=plan)
    made.__dict__.update({**vars(kernel), "plan": plan})  # What is known of the kernel stays.
    return made


_ROLES = ("rows", "columns", "")
_NAMES = {"add": "sum", "max": "max", "min": "min"}
"""Of reductions, as the language has them."""
_RINGS = {"rest": "part_ring", "sums": "sum_ring", "scales": "scale_ring"}


def _meetings(kernel: Kernel) -> Iterator[str]:
    """What the CTAs of a cluster send each other of their rows, each time that they wait."""
    for op in kernel.ops:
        if isinstance(op, Reduce) and op.ctas > 1:
            yield f"{_NAMES[op.fn]} along {op.axis}"
        elif isinstance(op, ClusterAllgather):
            made = (kernel.definers.get(x) for x in op.x)
            own = [_NAMES[reduced.fn] for reduced in made if isinstance(reduced, Reduce)]
            yield f"{', '.join(own)} along {op.axis}, at once"


def _partitions(
    kernel: Kernel,
    schedule: Schedule,
    groups: tuple[SlotGroup, ...],
    in_parts: tuple[SlotGroup, ...],
) -> Iterator[PlannedPartition]:
    registers = schedule.registers or {}
    shares = load_shares(groups, schedule), load_warps(kernel, groups, schedule)
    for tensors, warps in zip(*shares, strict=True):
        own = registers.get("load", 0) if warps > 1 else 0
        yield PlannedPartition("load", warps, own, tensors, fills_slots=True)
    if in_parts:
        yield PlannedPartition("load", 1, 0, loaded_tensors(in_parts))
    if scales := loaded_tensors(g for g in groups if g.consumer == "scale"):
        yield PlannedPartition("load", 1, 0, scales)
    if sum_slots(kernel):
        yield PlannedPartition("mma", multiplying_warps(kernel))
    if num_decoders(kernel):
        yield PlannedPartition("decode", 4, registers.get("decode", 0))
    if stores_scales(groups):
        yield PlannedPartition("scale", 4)
    for _ in range(num_pingpong_consumers(schedule)):
        own = registers.get("compute", 0)
        yield PlannedPartition("compute", 4 * num_cooperating(schedule), own)


def _edges(kernel: Kernel, schedule: Schedule) -> Iterator[str]:
    in_tensors = {n for n, size in pipelines(kernel, schedule).items() if size.columns}
    for edge in edges(kernel):
        yield str(dataclasses.replace(edge, space="TMEM") if edge.ring in in_tensors else edge)


def _rings(kernel: Kernel, schedule: Schedule, parts: int) -> Iterator[PlannedRing]:
    groups = (*operand_slots(kernel), *epilogue_slots(kernel, schedule), *sum_slots(kernel))
    sizes, namer = footprint.axis_sizes(kernel, schedule), Namer.of(kernel)
    for number, size in sorted(pipelines(kernel, schedule).items()):
        own = [group for group in groups if group.ring == number]
        firsts = [next(g for g in own if g.layout == held) for held in layouts_of(own)[number]]
        edges = (group.edges[i] for group in own for i in _copy_order(group, sizes))
        held = (f"{edge.name}: {edge.layout}" for edge in edges)
        operand = "operand_ring" if size.columns else "ring"
        yield PlannedRing(
            name=namer.new(_RINGS.get(own[0].edges[0].depth or "", operand)),
            number=number,
            holds=tuple(dict.fromkeys(held)),
            orders=tuple(_copy_order(group, sizes) for group in firsts),
            depth=size.depth(schedule.stages or 1, parts),
            size=size,
            producer=own[0].producer,
            consumer=_reader(kernel, own[0]),
            num_consumers=_num_readers(kernel, own[0], schedule),
        )


def _num_readers(kernel: Kernel, group: SlotGroup, schedule: Schedule) -> int:
    """Warpgroups that read a slot, or give it back: of operands one thread, with tensor memory."""
    by_one = group.consumer == "mma" and bool(sum_slots(kernel))
    return 1 if group.to_threads or by_one else num_cooperating(schedule)


def _reader(kernel: Kernel, group: SlotGroup) -> str:
    """On sm_90a those who compute multiply, too."""
    if group.consumer == "mma":
        return "mma" if sum_slots(kernel) else "compute"
    return group.consumer if group.to_threads else "compute"


def _copy_order(group: SlotGroup, sizes: Sizes) -> tuple[int, ...]:
    """The fields of a slot as they are copied: the smallest first, where one has few lines; what
    lies beside operands comes last.

    Loading is the limit then, and with the large one first it takes 2 to 15 % longer on an H200.
    """
    fields = [i for i, edge in enumerate(group.edges) if not edge.box]
    beside = [i for i, edge in enumerate(group.edges) if edge.box]
    if group.producer != "load" or group.edges[0].depth == "rest":
        return *fields, *beside
    axes = {i: _axes(group.edges[i].load) for i in fields}
    summed = set[str].intersection(*axes.values()) if axes else set[str]()
    lines = {i: math.prod(sizes[a] for a in own - summed) for i, own in axes.items()}
    if fields and min(lines.values()) <= FEW_LINES:
        fields.sort(key=lambda i: lines[i])
    return *fields, *beside


def _axes(load: Load) -> set[str]:
    return {v.type.name for v in load.index if isinstance(v.type, Axis)}


def _loads_in_order(schedule: Schedule) -> bool:
    """Whether sums leave no registers for what an epilogue reads to come before it is needed: that
    is why consumers were given as many as there are. Consumers in ping-pong do not wait for it in
    vain, since another has the tensor cores meanwhile.
    """
    compute = (schedule.registers or {}).get("compute", 0)
    return schedule.mode == "pingpong" and compute >= footprint.MOST_REGISTERS


def asked_early(
    kernel: Kernel, schedule: Schedule, groups: tuple[SlotGroup, ...]
) -> tuple[tuple[str, int], ...]:
    """Return the tensors from which operands are computed, each with the iterations that the load
    partition prefetches to L2. Many CTAs share others (benchmarks/results/inside_models.md).
    """
    sizes = footprint.axis_sizes(kernel, schedule)
    edges = (e for group in groups for e in group.edges if e.consumers[0] == "compute")
    held = [(e, e.made) for e in edges if e.producer == "load"]
    each = sum(tile_bytes(e.layout, sizes) for e, _ in held)
    may = schedule.launch_pdl is not False and not schedule.pdl_independent and not kernel.unaligned
    if not (each and may) or kernel.target.has_tensor_memory:
        return ()
    iterations = max(1, EARLY_BYTES // each)
    return tuple((op.tensor.name, iterations) for _, op in held if isinstance(op, Load))


def follow_one_another(kernel: Kernel, schedule: Schedule) -> bool:
    """By cycles of an iteration of each loop with a chain; what a schedule says counts."""
    if schedule.order_barriers is not None:
        return schedule.order_barriers
    others = num_cooperating(schedule) - 1
    if not others or shared_role(kernel, schedule) != "rows":
        return False
    work = Work.of(kernel, {})
    asked = work.under({name: axis.size for name, axis in axes_of(kernel).items()})
    chains = [step for step in asked.steps if step.chained]
    # Of one consumer, as of all: each has as large a part of both.
    between = [step.instructions / work.rates.fma_lanes for step in chains]
    return bool(chains) and all(
        cycles <= others * step.tensor for cycles, step in zip(between, chains, strict=True)
    )
