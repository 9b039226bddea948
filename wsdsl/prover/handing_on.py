"""Kernels whose CTAs hand sums on: what each turn does with the slot of its tile, and when.

A flag counts the elements of its tile's contraction whose sum lies in the slot. The piece
[begin, end) has the slot from the moment the flag is `begin`, without a wait if that is 0, until it
adds to the flag: its length, or -begin if it is the last one. All ways through a turn are looked
at, for each of the four kinds of pieces: is it continued (begin > 0), is it finished (end >= size)?
docs/prover.md has the argument why this is enough.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import memory_ops as m
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Kernel, Op, Region, operands, regions
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.walk import walk
from wsdsl.prover.errors import Failure, Party
from wsdsl.prover.linear import Linear, Positive, Sums, truth
from wsdsl.prover.slots import NotUnderstood, Place, Slots
from wsdsl.prover.turns import check_turns

HANDING_ON = "handing on"
"""The kind of failure."""
SOME = Linear(1)
TOUCHES = (b.WaitFlag, b.ArriveFlag, m.LoadGlobal, m.StoreGlobal)


@dataclass(frozen=True)
class Way:
    """What has been done on a way through a turn.

    `has`: what was waited for (all sums before it, or just the first one). `loose`: since all warps
    met. `read`: places whose elements several threads have read since then.
    """

    has: Linear | None = None
    loose: bool = False
    handed: bool = False
    open: bool = False
    loads: frozenset[Place] = frozenset()
    stores: frozenset[Place] = frozenset()
    read: frozenset[Place] = frozenset()

    @property
    def untouched(self) -> bool:
        return not (self.has or self.handed or self.loads or self.stores)


@dataclass
class Findings:
    """Of all turns, to be compared."""

    flags: dict[Place, Op] = field(default_factory=dict[Place, Op])
    places: dict[Place, Op] = field(default_factory=dict[Place, Op])
    loaded: dict[Place, Op] = field(default_factory=dict[Place, Op])
    left: list[frozenset[Place]] = field(default_factory=list[frozenset[Place]])
    middles: set[bool] = field(default_factory=set[bool])
    """Do pieces in the middle wait for all in front of them?"""


def check_handing_on(kernel: Kernel) -> None:
    """Raises Failure where sums are handed on in another way than is understood."""
    grid = next((op for op in kernel.body if isinstance(op, b.LaunchGrid)), None)
    lent = {op.result.name for op in walk(kernel.body) if isinstance(op, m.AllocateGlobal)}
    if not lent or grid is None:
        return
    sums, found, agent = Sums(kernel), Findings(), 0
    slots = Slots(kernel, grid.cluster, sums)
    for op in kernel.body:
        used = [o for o in walk((op,)) if _lent(o, lent)]
        if isinstance(op, Partition):
            if used:
                _Turn(op, sums, slots, grid, found, agent).check(used)
            agent += op.num_warpgroups
        elif used:
            raise _fail(0, used[0], "outside of the partitions this is not understood")
    _compare(found)
    differs = check_turns(kernel)
    if differs:
        raise _fail(agent - 1, *differs)


def _lent(op: Op, lent: set[str]) -> bool:
    return any(v.name in lent for v in operands(op))


def _fail(agent: int, op: Op, message: str, hint: str = "") -> Failure:
    return Failure(HANDING_ON, message, Party(agent, op), hint=hint)


def _compare(found: Findings) -> None:
    """Whoever comes next finds what those before have left, where they have left it."""
    for op in list(found.flags.values())[1:]:
        raise _fail(0, op, "this is another flag of the slot than elsewhere")
    for place, op in found.places.items():
        for other in found.places:
            if place != other and place.meets(other):
                raise _fail(0, op, "elsewhere other lines are taken, and these in part")
    for place, op in found.loaded.items():
        if not all(place in left for left in found.left):
            raise _fail(0, op, "a piece before this may leave nothing here")
    if len(found.middles) > 1:
        op = next(iter(found.places.values()))
        raise _fail(0, op, "some pieces wait for all in front of them, some do not")


class _Turn:
    """One partition's turns."""

    def __init__(
        self,
        partition: Partition,
        sums: Sums,
        slots: Slots,
        grid: b.LaunchGrid,
        found: Findings,
        agent: int,
    ) -> None:
        self.partition, self.sums, self.slots, self.found = partition, sums, slots, found
        self.grid, self.agent = grid, agent
        self.begin = self.end = Linear()
        self.slot: Linear | None = None
        self.continued = self.finished = False
        self.held: dict[Positive, bool] = {}
        self.last: Op = partition

    def fail(self, op: Op, message: str, hint: str = "") -> Failure:
        return _fail(self.agent, op, message, hint)

    def check(self, used: list[Op]) -> None:
        loops = [op for op in self.partition.body if isinstance(op, b.ForRange)]
        work = next((op for op in loops if any(o is used[0] for o in walk((op,)))), None)
        for op in used:
            if work is None or not any(op is o for o in walk(work.body)):
                raise self.fail(op, "only turns of one loop over the work are understood")
            if not isinstance(op, TOUCHES):
                raise self.fail(op, "what this does with a lent tensor is not understood")
        assert work is not None
        self.find_piece(used)
        if len(self.grid.contraction) != 1:
            raise self.fail(work, "one dimension is cut: `contraction` of launch_grid says which")
        ((dim, _),) = self.grid.contraction
        left = self.sums.size(dim) - self.end
        for self.continued, self.finished in itertools.product((False, True), repeat=2):
            self.held = {Positive(self.begin): self.continued, Positive(left): not self.finished}
            for way in self.region(work.body, {Way()}):
                self.finish(way)

    def find_piece(self, used: list[Op]) -> None:
        """Its beginning is what is waited for, its end what arrivals count from there."""
        waits = [op for op in used if isinstance(op, b.WaitFlag)]
        begins = {self.sums.of(op.count): op for op in waits}
        begins.pop(SOME, None)
        if len(begins) != 1:
            told = "where pieces begin is not understood: one value is waited for"
            raise self.fail((waits or used)[-1], told, "wait until the flag is `begin`")
        ((self.begin, _),) = begins.items()
        arrivals = [op for op in used if isinstance(op, b.ArriveFlag)]
        ends = {self.amount(op) + self.begin: op for op in arrivals}
        ends.pop(Linear(), None)
        if len(ends) != 1:
            told = "where pieces end is not understood: their length is added to the flag"
            raise self.fail((arrivals or used)[-1], told, "add end - begin, or at last -begin")
        ((self.end, self.last),) = ends.items()

    def amount(self, op: b.ArriveFlag) -> Linear:
        return Linear(op.amount) if op.by is None else self.sums.of(op.by)

    # Ways ----------------------------------------------------------------------------------------

    def region(self, region: Region, ways: set[Way]) -> set[Way]:
        for op in region:
            ways = {after for way in ways for after in self.after(op, way)}
        return ways

    def after(self, op: Op, way: Way) -> Iterator[Way]:
        match op:
            case t.If():
                test = truth(self.sums.test(op.cond), self.held)
                bodies = [op.then, op.orelse] if test is None else [op.then if test else op.orelse]
                if test is None and any(self.touches(o) for o in walk((op,))):
                    way = replace(way, open=True)
                for body in bodies:
                    yield from self.region(body, {way})
            case b.NamedBarrierSync():
                yield replace(way, loose=False, read=frozenset())
            case _ if self.touches(op):
                yield self.touch(op, way)
            case _:
                for inner in regions(op):
                    for o in walk(inner):
                        if self.touches(o):
                            raise self.fail(o, "in here this is not understood")
                yield way

    def touches(self, op: Op) -> bool:
        return isinstance(op, TOUCHES) and op.tensor.name in self.slots.each

    def touch(self, op: Any, way: Way) -> Way:
        if way.handed:
            raise self.fail(op, "the slot has been handed on: it is another piece's now")
        if self.finished and not self.continued:
            raise self.fail(op, "a tile that is not cut has no slot")
        flag = isinstance(op, (b.WaitFlag, b.ArriveFlag))
        if flag != (op.tensor.name in self.slots.zeroed):
            raise self.fail(op, "flags are in zeroed tensors, sums in others")
        try:
            slot, place = self.slots.place(op, self.partition.num_warpgroups)
        except NotUnderstood as told:
            raise self.fail(op, str(told), "index = slot * each + a line in the slot") from None
        if self.slot not in (None, slot):
            raise self.fail(op, "this is another slot than the one before")
        self.slot = slot
        if flag:
            self.found.flags[place] = op
        else:
            self.found.places[place] = op
        match op:
            case b.WaitFlag():
                return self.wait(op, way)
            case b.ArriveFlag():
                return self.arrive(op, way)
            case m.LoadGlobal():
                return self.load(op, way, place)
            case _:
                return self.store(op, way, place)

    def wait(self, op: b.WaitFlag, way: Way) -> Way:
        if not self.continued:
            raise self.fail(op, "the first piece of a tile has nobody to wait for")
        count = self.sums.of(op.count)
        return replace(way, has=self.begin if self.begin in (count, way.has) else SOME, loose=True)

    def load(self, op: m.LoadGlobal, way: Way, place: Place) -> Way:
        if way.has != self.begin:
            raise self.fail(
                op, "this may read the slot before the sum is there", "wait until the flag is `begin`"
            )
        self.found.loaded[place] = op
        read = way.read if place.alone else way.read | {place}
        return replace(way, loose=True, loads=way.loads | {place}, read=read)

    def store(self, op: m.StoreGlobal, way: Way, place: Place) -> Way:
        if op.pred is not None:
            raise self.fail(op, "a store on a condition is not understood")
        if self.continued and way.has is None:
            raise self.fail(op, "this may overwrite a sum of the pieces before", "wait for the flag")
        if self.continued and way.has != self.begin and not op.accumulate:
            raise self.fail(op, "this may overwrite what others add", "wait until it is `begin`")
        if not self.continued and op.accumulate:
            raise self.fail(op, "this adds to a slot that holds anything")
        if not op.accumulate and place in way.read:
            raise self.fail(
                op, "other threads may not have read this yet", "let all warps meet: named_barrier_sync"
            )
        return replace(way, loose=True, stores=way.stores | {place})

    def arrive(self, op: b.ArriveFlag, way: Way) -> Way:
        if way.loose:
            raise self.fail(
                op,
                "the slot is handed on while threads may still use it",
                hint="let all warps meet before: named_barrier_sync",
            )
        if self.continued and (way.has is None or (self.finished and way.has != self.begin)):
            raise self.fail(op, "this may come before the pieces in front have arrived")
        wanted = Linear() - self.begin if self.finished else self.end - self.begin
        first = not self.continued and self.amount(op) == self.end
        if not first and self.amount(op) != wanted:
            raise self.fail(op, "this adds another amount than the length, or at last -begin")
        return replace(way, handed=True)

    def finish(self, way: Way) -> None:
        if self.finished and not self.continued:
            return
        if not way.handed:
            if way.open and way.untouched:
                return  # another partition's turn
            told = "the slot is not handed on, so that others wait for ever"
            raise self.fail(self.last, told, "arrive on the flag on every way")
        if not self.finished:
            self.found.left.append(way.stores)
            if self.continued:
                self.found.middles.add(way.has == self.begin)
