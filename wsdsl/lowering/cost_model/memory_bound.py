"""How long kernels without products take whose threads hold vectors (`holds_vectors`).

Several CTAs run on an SM, and while one waits another loads. What limits them together is memory,
by which each tensor goes once; L2, by which what several want goes to each; or instructions. What
limits them one by one: a CTA waits for memory, computes, and meets those that share its rows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from wsdsl.ir.hardware.histogram_layout import WARP, WORD
from wsdsl.ir.op import Kernel, Op, Value, once, operands, results_of
from wsdsl.ir.ops import Cast, ForTiles, Load, Map, Reduce, Store
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import THREADS, Axis, Sizes, Tile
from wsdsl.lowering.axes import axes_of, is_scattered
from wsdsl.lowering.batch_coarsening import in_front
from wsdsl.lowering.cooperation import cluster_along, num_cooperating
from wsdsl.lowering.cost_model.sized_kernel import ANY, Walked, elements, trips
from wsdsl.lowering.cost_model.speeds import issuing, larger
from wsdsl.lowering.cost_model.terms import SECTOR_BYTES
from wsdsl.lowering.cost_model.workload import Work, Workload
from wsdsl.lowering.held_rows import are_held, ctas_with, held_axes, loaded_before
from wsdsl.lowering.instruction_counts import TURNED, by_unit, instructions, of_access
from wsdsl.lowering.loop_stages import is_mask
from wsdsl.lowering.register_layout import is_striped, turned
from wsdsl.lowering.smem_privatization import counters_of
from wsdsl.schedule import Schedule

MEMORY, L2, INSTRUCTIONS, LATENCY = "memory", "L2", "instructions", "latency"
ADDED, COUNTED = "additions in L2", "additions in SMEM"
SECTORS, FAR_SECTORS, LINE = 29.0, 17.0, 128
"""Sectors that L2 adds to a cycle, of what it holds and of what it has to bring from memory, as
measured on an H100 of rows of f32 (`scatter_add`); and bytes."""
ALONE, OF_LINE, AT_LEAST = 44.0, 0.21, 2.0
"""The same of elements by themselves: at the most, of each line, and of few lines. 2²⁴ numbers in
2²⁰ bins take 215 us there, in 1024 1438, and in 64 4880."""
BY_WARP, BY_HAND = 2.0, 12.0
"""Cycles of an SM for a warp's additions to counters, of integers and of f32, which take a loop."""
SUMMED = 0.04
"""Cycles of an SM for a counter that is cleared and added up."""


@dataclass(frozen=True)
class PlainCost:
    """In cycles."""

    units: Mapping[str, float]  # What each takes by itself: the largest is the limit.
    tile: Workload  # Of each CTA: those of a cluster that share rows have a tile each.
    ctas_per_sm: int
    read_bytes: float
    written_bytes: float
    is_held: bool  # A tile has whole rows.
    first: float  # Until some CTAs load and others compute, and from when none do.

    @property
    def limit(self) -> str:
        return max(self.units, key=self.units.__getitem__)

    @property
    def cycles(self) -> float:
        whole = reduce(larger, [n for name, n in self.units.items() if name != LATENCY])
        return self.tile.start + larger(self.first + whole, self.units[LATENCY])


class _Access:
    """Of the whole problem: `inside` elements each time that loops have gone `around` it."""

    def __init__(self, work: Work, op: Load | Store, loops: tuple[Walked, ...]) -> None:
        values = (op.result,) if isinstance(op, Load) else (op.value, *op.index)
        own = [name for v in values if isinstance(v.type, Tile) for name in v.type.axes]
        self.op, self.loops = op, loops
        self.axes = tuple(dict.fromkeys((*own, *(axis.name for axis in op.axes))))
        dims = axes_of(work.kernel)
        extents = (work.ragged.get(name, work.size(dims[name].dim)) for name in self.axes)
        self.inside = math.prod(extents)
        self.around = [walked for walked in (*work.outer, *loops) if walked[0] not in self.axes]
        # In all, where tiles do not go over them again.
        self.elements = self.inside * math.prod(size for name, size in self.around if not name)

    def bytes(self, tile: Sizes) -> float:
        return self.op.dtype.bits / 8 * self.inside * trips(self.around, tile)


@dataclass(frozen=True)
class _Computed:
    issued: float  # Instructions of an element, ...
    special: float  # ... and of the exp unit among them.
    axes: tuple[str, ...]
    loops: tuple[Walked, ...]
    same: object  # What is the same need not be made again by who has the row.


class Plain:
    """Such a kernel taken apart once, beside what `Work` has of it."""

    def __init__(self, work: Work) -> None:
        self.work, self.kernel, made = work, work.kernel, work.kernel.definers
        self.accesses, self.computed, same = list[_Access](), list[_Computed](), _Same(work.kernel)
        loop = work.in_turns
        alike = {*in_front(work.body, loop.index)[0]} if loop else set[Op]()
        for op, loops in work.inside:
            around, counted = tuple(map(work.walked, loops)), instructions(op)
            if loop and op not in alike:
                around = *around, (loop.index.name, ANY)
            if isinstance(op, Load | Store):
                self.accesses.append(access := _Access(work, op, around))
                through = TURNED if op in turned(self.kernel) else 0.0
                counted = of_access(op, is_striped(self.kernel)) + through, access.axes
            if counted and not is_mask(op, made):
                own = op if isinstance(op, Store) else same.of(results_of(op)[0])
                self.computed.append(_Computed(*by_unit(op, counted[0]), counted[1], around, own))
        self.stores = [a for a in self.accesses if isinstance(a.op, Store)]
        # Memory reads what it adds to.
        self.adding = [a for a in self.stores if isinstance(a.op, Store) and a.op.accumulate]
        self.added = [(a.op, a.elements) for a in self.adding if isinstance(a.op, Store)]

    def cost(self, schedule: Schedule, tile: Sizes) -> PlainCost:
        work, rates = self.work, self.work.rates
        held, consumers = are_held(self.kernel, schedule, tile), num_cooperating(schedule)
        largest = max((elements(a.axes, tile) for a in self.accesses), default=1)
        ctas = schedule.ctas_per_sm or ctas_with(largest // (THREADS * consumers), consumers)
        sharing = max((cluster_along(schedule, name) for name in held_axes(self.kernel)), default=1)
        asked = work.under(tile)
        asked = replace(asked, tiles=max(1, asked.tiles) * sharing)
        room, sm_cycle = work.target.num_sms * ctas, asked.clock / rates.clock
        again = loaded_before(self.kernel) if held else ()
        loads = [a for a in self.accesses if isinstance(a.op, Load) and a.op not in again]
        reads = [*loads, *self.adding]
        running = min(room, asked.tiles)
        share = running / asked.tiles
        read, written = (self._memory(some, tile, share) for some in (reads, self.stores))
        memory = rates.dram_ns(read + written, written) * asked.clock
        # Of one tile: L2, instructions, and what of them others hide.
        l2 = sum(self._beyond_sm(a, tile) for a in reads) / rates.l2_load_bytes
        l2 += sum(self._beyond_sm(a, tile) for a in self.stores) / rates.l2_store_bytes
        l2, computing = l2 / asked.tiles, self._computing(held, tile) / sharing * sm_cycle
        apart = computing * (rates.fma_lanes / issuing(rates, consumers) - 1)
        # They meet for what is reduced or turned; those of a cluster when they begin and end, too.
        reductions = len(self.kernel.of(Reduce))
        alone = (reductions + len(turned(self.kernel))) * rates.named_barrier_cycles * sm_cycle
        shared = reductions * rates.cluster_exchange_cycles + 2 * rates.cluster_barrier_cycles
        apart += alone if sharing == 1 else shared
        latency = rates.tma_dram_cycles
        waits = 1 if held else sum(trips(loops, tile) for loops in {a.loops for a in loads}) or 1
        tiles, turns = max(1.0, asked.tiles / work.target.num_sms), asked.tiles / room
        own = waits * latency + apart + computing + l2 + memory / tiles
        # Those that are dealt out begin whenever one ends.
        turns = math.ceil(turns) if schedule.scheduler == "persistent" else turns
        in_l2, in_smem, at_end = adding_cycles(work, self.added, schedule, running)
        units = {
            MEMORY: memory,
            L2: math.ceil(tiles) * l2,
            INSTRUCTIONS: math.ceil(tiles) * computing,
            LATENCY: max(1.0, turns / (schedule.stages or 1)) * own,
            ADDED: in_l2 * sm_cycle,
            COUNTED: in_smem * sm_cycle,
        }
        # The first CTAs load while none computes, and the last ones compute while none loads.
        hidden = min(max(units[MEMORY], units[L2]), units[INSTRUCTIONS])
        first = latency + (apart + hidden / max(1.0, turns)) / waits + at_end * sm_cycle
        return PlainCost(units, asked, ctas, read, written, held, first)

    def _computing(self, held: bool, tile: Sizes) -> float:
        """Cycles of an SM for a tile of all that share it."""
        rates, issued, special = self.work.rates, 0.0, 0.0
        for one in {c.same: c for c in self.computed}.values() if held else self.computed:
            number = elements(one.axes, tile) * trips(one.loops, tile)
            issued += one.issued * number
            special += one.special * number
        return max(issued / rates.fma_lanes, special / rates.exp_lanes)

    def _beyond_sm(self, access: _Access, tile: Sizes) -> float:
        """Bytes that come from L2: of what L1 holds, which has what SMEM leaves, once to an SM."""
        moved, whole = access.bytes(tile), self.work.num_bytes(access.op.tensor.as_tensor)
        target = self.work.target
        return min(moved, whole * target.num_sms) if whole <= target.smem_bytes else moved

    def _memory(self, accesses: Sequence[_Access], tile: Sizes, share: float) -> float:
        """Bytes of memory: of a tensor once, and each time that rows are gone over, if those of the
        `share` of CTAs that run are more than L2 holds."""
        total = 0.0
        for tensor in dict.fromkeys(access.op.tensor for access in accesses):
            times = [access.bytes(tile) for access in accesses if access.op.tensor == tensor]
            whole = self.work.num_bytes(tensor.as_tensor)
            again = len(times) if whole * share > self.work.rates.l2_capacity_bytes else 1
            total += min(sum(times), whole * again)
        return total


@once
def plain_of(work: Work) -> Plain:
    return Plain(work)


def adding_cycles(
    work: Work, added: Iterable[tuple[Store, int]], schedule: Schedule, ctas: float
) -> tuple[float, float, float]:
    """For so many elements that each store adds: of L2, which takes those of a line one after the
    other; of each SM, for counters in SMEM; and when those of so many CTAs are added up."""
    counters = {held.tensor: held for held in counters_of(work.kernel, schedule)}
    in_l2 = in_smem = at_end = 0.0
    for op, number in added:
        lines = max(1.0, work.num_bytes(op.tensor.as_tensor) / LINE)
        if held := counters.get(op.tensor.name):
            conflicts = 1 + math.log2(WARP / held.copies) / 2
            each = (BY_HAND if op.dtype.is_float else BY_WARP) * conflicts
            in_smem += number / WARP * each / work.target.num_sms
        elif not isinstance(op.index[-1].type, Axis) and is_scattered(op):
            in_l2 += number / min(ALONE, max(AT_LEAST, OF_LINE * lines))
        else:
            is_far = lines * LINE > work.rates.l2_capacity_bytes
            sectors = number * op.dtype.bits / 8 / SECTOR_BYTES
            in_l2 += sectors / (FAR_SECTORS if is_far else SECTORS)
    for held in counters.values():
        count = math.prod(held.extents)
        at_end += (schedule.ctas_per_sm or 1) * count * held.copies * SUMMED
        lines = max(1.0, count * WORD / LINE)
        at_end += ctas * count * WORD / SECTOR_BYTES / min(SECTORS, lines)
    return in_l2, in_smem, at_end


class _Same:
    """What is computed of the same where loops over rows have one turn."""

    def __init__(self, kernel: Kernel) -> None:
        self.made, self.known = kernel.definers, dict[Value, int]()
        self.numbers = dict[object, int]()
        self.alias = dict[Value, Value]()
        for op in kernel.of(ForTiles):
            if op.index.as_axis.name in held_axes(kernel):
                self.alias |= dict(zip(op.args, op.init, strict=True))
                self.alias |= dict(zip(op.result, yielded(op.body), strict=True))

    def of(self, value: Value) -> int:
        """A number of what it is: that of another value that is the same."""
        if value in self.alias:
            return self.of(self.alias[value])
        if value not in self.known:
            op, kind = self.made.get(value), value.type
            what: object = kind.dim if isinstance(kind, Axis) else value
            if isinstance(op, Map | Cast | Load | Reduce):
                dtype = kind.dtype if isinstance(kind, Tile) else None
                what = type(op), getattr(op, "fn", ""), dtype, *map(self.of, operands(op))
            self.known[value] = self.numbers.setdefault(what, len(self.numbers))
        return self.known[value]
