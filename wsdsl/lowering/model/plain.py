"""How long kernels without products take whose threads hold vectors (`holds_vectors`).

Several CTAs run on an SM, and while one waits another loads. What limits them together is memory,
by which each tensor goes once; L2, by which what several CTAs want goes to each of them; or
instructions. What limits them one by one is how long a CTA takes for its tile: it waits for memory,
computes with what comes, and meets the others that share its rows. So many bytes are under way as
there are CTAs, and tiles that each of them loads ahead.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wsdsl.ir.op import Kernel, Op, Value, operands, results_of
from wsdsl.ir.tile_ops import Cast, ForTiles, Load, Map, Reduce, Store
from wsdsl.ir.types import THREADS, Axis, Tile
from wsdsl.ir.walk import yielded
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.cooperation import cluster_along, num_cooperating
from wsdsl.lowering.held_rows import are_held, ctas_with, held_axes, loaded_before
from wsdsl.lowering.instruction_counts import TURNED, by_unit, instructions, of_access
from wsdsl.lowering.lanes import is_striped, turned
from wsdsl.lowering.loop_stages import is_mask
from wsdsl.lowering.model.adding import Adding
from wsdsl.lowering.model.loading import larger, memory_ns
from wsdsl.lowering.model.numbers import READY
from wsdsl.lowering.model.steps import Workload
from wsdsl.lowering.turns import in_front
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    from wsdsl.lowering.model.workload import Work

MEMORY, L2, INSTRUCTIONS, LATENCY = "memory", "L2", "instructions", "latency"
ADDED, COUNTED = "additions in L2", "additions in SMEM"
BESIDE_EACH_OTHER = MEMORY, L2, INSTRUCTIONS, ADDED, COUNTED
Sizes = Mapping[str, int]
_Loops = tuple[tuple[str, int], ...]
"""Axes, or "", and how long they are."""


@dataclass(frozen=True)
class PlainCost:
    """In cycles, but for bytes of memory."""

    units: Mapping[str, float]
    """What each takes of the time by itself: the largest is the limit."""
    tile: Workload
    """Of each CTA: those of a cluster that share rows have a tile each."""
    ctas_per_sm: int
    read_bytes: float
    written_bytes: float
    is_held: bool
    """Whether a tile has whole rows."""
    first: float = 0.0
    """Beside memory, L2 and instructions: until there are CTAs that load and others that compute,
    and from when there are none.
    """

    @property
    def memory_ns(self) -> float:
        """In which memory could move the bytes, if nothing else took time."""
        moved = self.read_bytes + self.written_bytes
        return memory_ns(self.tile.rates, moved, self.written_bytes)

    @property
    def limit(self) -> str:
        return max(self.units, key=self.units.__getitem__)

    @property
    def cycles(self) -> float:
        whole = 0.0
        for name in BESIDE_EACH_OTHER:
            whole = larger(whole, self.units[name])
        return self.tile.start + larger(self.first + whole, self.units[LATENCY])


@dataclass(frozen=True)
class _Access:
    """Of the whole problem: `inside` elements each time that loops have gone `around` it."""

    op: Load | Store
    axes: tuple[str, ...]
    inside: int
    around: _Loops
    loops: _Loops
    """In which it stands, in a tile."""

    @property
    def element(self) -> float:
        return self.op.dtype.bits / 8

    @property
    def elements(self) -> int:
        """In all, where tiles do not go over them again."""
        return self.inside * math.prod(size for name, size in self.around if not name)

    def bytes(self, tile: Sizes) -> float:
        return self.element * self.inside * _turns(self.around, tile)


@dataclass(frozen=True)
class _Computed:
    """So many instructions an element, and of the exp unit; what is the `same` need not be made
    again by who has the row.
    """

    issued: float
    special: float
    axes: tuple[str, ...]
    loops: _Loops
    same: object


class Plain:
    """Such a kernel taken apart once, beside what `Work` has of it."""

    def __init__(self, kernel: Kernel, work: Work) -> None:
        self.kernel, self.work = kernel, work
        self.same, made = _Same(kernel), kernel.definers
        self.loads, self.stores = list[_Access](), list[_Access]()
        self.computed = list[_Computed]()
        # Of what a tile takes one after the other there is no size: it has as many as it says.
        outer, loop = tuple(map(work.walked, work.nest)), work.in_turns
        alike = {*in_front(work.body, loop.index)[0]} if loop else set[Op]()
        for op, loops in work.inside:
            around = tuple(map(work.walked, loops))
            if loop and op not in alike:
                around = *around, (loop.index.name, 0)
            counted = instructions(op)
            if isinstance(op, Load | Store):
                access = self._access(op, (*outer, *around), around)
                (self.loads if isinstance(op, Load) else self.stores).append(access)
                through = TURNED if op in turned(kernel) else 0.0
                counted = of_access(op, is_striped(kernel)) + through, access.axes
            if counted and not is_mask(op, made):
                same = op if isinstance(op, Store) else self.same.of(results_of(op)[0])
                units = by_unit(op, counted[0])
                self.computed.append(_Computed(*units, counted[1], around, same))
        added = ((a.op, a.elements) for a in self.stores if isinstance(a.op, Store))
        self.adding = Adding(kernel, work, added)

    def _access(self, op: Load | Store, every: _Loops, inner: _Loops) -> _Access:
        kind = op.result.type if isinstance(op, Load) else op.value.type
        kinds = (kind, *(v.type for v in op.index if isinstance(op, Store)))
        own = [name for k in kinds if isinstance(k, Tile) for name in k.axes]
        axes = tuple(dict.fromkeys((*own, *(axis.name for axis in op.axes))))
        inside = math.prod(self.work.size(axes_of(self.kernel)[name].dim) for name in axes)
        around = tuple(x for x in every if x[0] not in axes)
        return _Access(op, axes, inside, around, inner)

    def cost(self, schedule: Schedule, tile: Sizes) -> PlainCost:
        work, rates = self.work, self.work.rates
        held, ctas = are_held(self.kernel, schedule, tile), self._ctas_per_sm(schedule, tile)
        sharing = max((cluster_along(schedule, name) for name in held_axes(self.kernel)), default=1)
        asked = work.under(tile)
        asked = dataclasses.replace(asked, tiles=max(1, asked.tiles) * sharing)
        room, outside = work.target.num_sms * ctas, asked.clock
        loads = [a for a in self.loads if not (held and a.op in loaded_before(self.kernel))]
        # Memory reads what it adds to.
        added = [a for a in self.stores if isinstance(a.op, Store) and a.op.accumulate]
        both = [*loads, *added], self.stores
        read, written = (self._memory(some, asked, tile, room) for some in both)
        made = PlainCost({}, asked, ctas, read, written, held)
        # In nanoseconds; of one tile: L2, instructions, and what of them others hide.
        loaded, stored = (
            sum(self._beyond_sm(a, tile) for a in some) / asked.tiles for some in both
        )
        l2 = (loaded / rates.l2_load_bytes + stored / rates.l2_store_bytes) / outside
        computing = self._computing(held, tile) / sharing
        ready = 1 - (1 - READY) ** num_cooperating(schedule)
        apart = computing * (1 / ready - 1) + self._meeting(sharing)
        latency = rates.tma_dram_cycles / outside
        waits = 1 if held else sum(_turns(loops, tile) for loops in {a.loops for a in loads}) or 1
        tiles = max(1.0, asked.tiles / work.target.num_sms)
        own = waits * latency + apart + computing + l2 + made.memory_ns / tiles
        # Those that are dealt out begin whenever one ends.
        turns = asked.tiles / room
        turns = math.ceil(turns) if schedule.scheduler == "persistent" else turns
        units = {
            MEMORY: made.memory_ns,
            L2: math.ceil(tiles) * l2,
            INSTRUCTIONS: math.ceil(tiles) * computing,
            LATENCY: max(1.0, turns / (schedule.stages or 1)) * own,
            ADDED: self.adding.in_l2(schedule) / rates.clock,
            COUNTED: self.adding.in_smem(schedule) / rates.clock,
        }
        # The first CTAs load while none computes, and the last ones compute while none loads.
        hidden = min(max(units[MEMORY], units[L2]), units[INSTRUCTIONS])
        first = latency + (apart + hidden / max(1.0, turns)) / waits
        first += self.adding.at_end(schedule, min(room, asked.tiles)) / rates.clock
        in_cycles = {name: nanoseconds * asked.clock for name, nanoseconds in units.items()}
        return dataclasses.replace(made, units=in_cycles, first=first * asked.clock)

    def _computing(self, held: bool, tile: Sizes) -> float:
        """Nanoseconds of an SM for a tile of all that share it."""
        rates, issued, special = self.work.rates, 0.0, 0.0
        once = {c.same: c for c in self.computed}.values() if held else self.computed
        for one in once:
            elements = math.prod(tile[name] for name in one.axes) * _turns(one.loops, tile)
            issued += one.issued * elements
            special += one.special * elements
        return max(issued / rates.fma_lanes, special / rates.exp_lanes) / rates.clock

    def _beyond_sm(self, access: _Access, tile: Sizes) -> float:
        """Bytes that come from L2: of what L1 holds, which has what SMEM leaves, once to an SM."""
        moved, whole = access.bytes(tile), self.work.num_bytes(access.op.tensor.type)
        target = self.work.target
        return min(moved, whole * target.num_sms) if whole <= target.smem_bytes else moved

    def _ctas_per_sm(self, schedule: Schedule, tile: Sizes) -> int:
        if schedule.ctas_per_sm:
            return schedule.ctas_per_sm
        consumers = num_cooperating(schedule)
        largest = max(
            (math.prod(tile[n] for n in a.axes) for a in (*self.loads, *self.stores)), default=1
        )
        return ctas_with(largest // (THREADS * consumers), consumers)

    def _memory(self, accesses: list[_Access], asked: Workload, tile: Sizes, room: int) -> float:
        """Bytes of memory: those of a tensor once, and each time that rows are gone over, if those
        of all CTAs that run are more than L2 holds.
        """
        found = defaultdict[Value, list[float]](list)
        for access in accesses:
            found[access.op.tensor].append(access.bytes(tile))
        total = 0.0
        for tensor, times in found.items():
            whole = self.work.num_bytes(tensor.type)
            at_once = whole * min(1.0, room / max(1, asked.tiles))
            again = len(times) if at_once > self.work.rates.l2_capacity_bytes else 1
            total += min(sum(times), whole * again)
        return total

    def _meeting(self, sharing: int) -> float:
        """Of a CTA, with itself or with others, for what is reduced or turned."""
        rates, reductions = self.work.rates, len(self.kernel.of(Reduce))
        if sharing == 1:
            meetings = reductions + len(turned(self.kernel))
            return meetings * rates.named_barrier_cycles / rates.clock
        # They meet when they begin and before they end, too.
        whole = reductions * rates.cluster_exchange_cycles + 2 * rates.cluster_barrier_cycles
        return whole / rates.tensor_smem_clock


def _turns(loops: _Loops, tile: Sizes) -> int:
    """Of those with no size there are as many as a tile has, one after the other."""
    size_of = ((size, tile[name] if name else 1) for name, size in loops)
    return math.prod(-(-size // max(1, own)) if size else own for size, own in size_of)


class _Same:
    """What is computed of the same where loops over rows have one turn."""

    def __init__(self, kernel: Kernel) -> None:
        self.made, self.known = kernel.definers, dict[Value, object]()
        self.alias: dict[Value, Value] = {}
        for op in kernel.of(ForTiles):
            if op.index.as_axis.name in held_axes(kernel):
                self.alias |= dict(zip(op.args, op.init, strict=True))
                self.alias |= dict(zip(op.result, yielded(op.body), strict=True))

    def of(self, value: Value) -> object:
        if value not in self.known:
            self.known[value] = self._found(value)
        return self.known[value]

    def _found(self, value: Value) -> object:
        if value in self.alias:
            return self.of(self.alias[value])
        if isinstance(value.type, Axis):
            return value.type.dim
        op = self.made.get(value)
        if isinstance(op, Map | Cast | Load | Reduce):
            kind = value.type.dtype if isinstance(value.type, Tile) else None
            read = (self.of(v) for v in operands(op))
            return (type(op), getattr(op, "fn", ""), kind, *read)
        return value
