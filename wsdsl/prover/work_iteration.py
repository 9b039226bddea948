"""All ways through one iteration of a work loop, as far as workspace tensors are touched there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import memory_ops as m
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Op, Region, Value, regions
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.walk import walk
from wsdsl.prover.errors import Failure, Party
from wsdsl.prover.linear import Linear, Positive, Sums, truth
from wsdsl.prover.periodic_values import Known, evaluate, periodic_values_of
from wsdsl.prover.scheduler_terms import scheduler_terms
from wsdsl.prover.workspace_slots import NotUnderstood, Place, WorkspaceSlots

SPLIT_K = "split-K"
"""The kind of failure."""
TOUCHES = (b.WaitFlag, b.ArriveFlag, m.LoadGlobal, m.StoreGlobal)
RELAXED = "who waits for this may not see the sum: it does not release"
AS_WRITTEN = "compute it as wsdsl/ir/tile_scheduler.py does: other formulas are not understood"
MEET = "let all warps meet before: named_barrier_sync"


@dataclass(frozen=True)
class Way:
    """What has been done on a way through an iteration.

    `has`: what was waited for. `arrived`: how often. `loose`: something was touched since all warps
    met. `read`: places whose elements several threads have read since then.
    """

    has: Linear | None = None
    arrived: int = 0
    loose: bool = False
    loads: frozenset[Place] = frozenset()
    stores: frozenset[Place] = frozenset()
    read: frozenset[Place] = frozenset()

    @property
    def untouched(self) -> bool:
        return not (self.has or self.arrived or self.loads or self.stores)


@dataclass
class Findings:
    """Of all partitions, to be compared."""

    flags: dict[Place, Op] = field(default_factory=dict[Place, Op])
    places: dict[Place, Op] = field(default_factory=dict[Place, Op])
    loaded: dict[Place, Op] = field(default_factory=dict[Place, Op])
    left: list[frozenset[Place]] = field(default_factory=list[frozenset[Place]])


class WorkIteration(ABC):
    """One partition's iterations."""

    @property
    def whole(self) -> bool:
        """Whether the tile is not cut, in which case nothing is handed on."""
        return False

    def __init__(
        self,
        partition: Partition,
        sums: Sums,
        slots: WorkspaceSlots,
        grid: b.LaunchGrid,
        found: Findings,
        agent: int,
    ) -> None:
        self.partition, self.sums, self.slots, self.grid = partition, sums, slots, grid
        self.found, self.agent = found, agent
        self.held: dict[Positive, bool] = {}
        self.now: dict[Value, int | None] = {}
        self.hands: list[tuple[bool, ...]] = []
        """Of each kind of pieces: in which phases one is handed on."""

    @abstractmethod
    def find(self, used: list[Op]) -> None:
        """What the ops say of the pieces, which is what the tile scheduler says."""

    @abstractmethod
    def kinds(self) -> Iterator[dict[Positive, bool]]:
        """What may hold in an iteration, one case after another."""

    @abstractmethod
    def touch(self, op: Any, way: Way) -> Way: ...

    @abstractmethod
    def finish(self, way: Way) -> None: ...

    def fail(self, op: Op, message: str, hint: str = "") -> Failure:
        return Failure(SPLIT_K, message, Party(self.agent, op), hint=hint)

    def check(self, used: list[Op]) -> None:
        loops = [op for op in self.partition.body if isinstance(op, b.ForRange)]
        work = next((op for op in loops if any(o is used[0] for o in walk((op,)))), None)
        for op in used:
            if work is None or not any(op is o for o in walk(work.body)):
                raise self.fail(op, "only iterations of one work loop are understood")
            if not isinstance(op, TOUCHES):
                raise self.fail(op, "what this does with a workspace tensor is not understood")
        assert work is not None
        self.work, self.given = work, scheduler_terms(self.grid, self.sums, work.index)
        self.slot = self.given.slot
        for name in ("start", "stop", "step"):
            if self.sums.of(getattr(work, name)) != getattr(self.given, name):
                told = f"`{name}` of the loop over the work is not the tile scheduler's"
                raise self.fail(work, told, AS_WRITTEN)
        self.find(used)
        tests = [op.cond for op in walk(work.body) if isinstance(op, t.If) and self.inside(op)]
        self.phases = periodic_values_of(work, tests, self.sums.made)
        for held in self.kinds():
            if all(of.of.terms or truth(of, {}) == is_so for of, is_so in held.items()):
                self.held = held
                hands = tuple(map(self.hands_on, self.phases.known))
                if not self.whole:
                    self.hands.append(hands)

    def hands_on(self, now: Known) -> bool:
        """Whether this phase is this partition's: then every way hands the sum on."""
        self.now = dict(now)
        ways = self.region(self.work.body, {Way()})
        if all(way.untouched for way in ways):
            return False
        for way in ways:
            self.finish(way)
        return True

    def inside(self, op: Op) -> bool:
        return any(self.touches(o) for o in walk((op,)))

    def region(self, region: Region, ways: set[Way]) -> set[Way]:
        for op in region:
            ways = {after for way in ways for after in self.after(op, way)}
        return ways

    def after(self, op: Op, way: Way) -> Iterator[Way]:
        match op:
            case t.If():
                test = evaluate(op.cond, self.now, self.sums.made)
                if test is None:
                    test = truth(self.sums.test(op.cond), self.held)
                bodies = [op.then, op.orelse] if test is None else [op.then if test else op.orelse]
                for body in bodies:
                    yield from self.region(body, {way})
            case b.NamedBarrierSync(item=None, num_warpgroups=num) if (
                num >= self.partition.num_warpgroups
            ):
                yield replace(way, loose=False, read=frozenset())
            case b.SyncWarp():
                yield replace(way, read=frozenset(p for p in way.read if p.holder != "warp"))
            case _ if self.touches(op):
                yield self.touch(op, way)
            case b.ForRange():
                inner = [o for o in walk(op.body) if self.touches(o)]
                for o in inner:
                    if not isinstance(o, m.LoadGlobal):
                        raise self.fail(o, "only loads are understood in a loop")
                yield way
                if inner:
                    once = self.region(op.body, {way})
                    yield from once | self.region(op.body, once)
            case _:
                for o in walk(tuple(o for inner in regions(op) for o in inner)):
                    if self.touches(o):
                        raise self.fail(o, "in here this is not understood")
                yield way

    def touches(self, op: Op) -> bool:
        return isinstance(op, TOUCHES) and op.tensor.name in self.slots.each

    # What iterations have in common ---------------------------------------------------------------

    def place(self, op: Any) -> tuple[Linear, Place]:
        flag = isinstance(op, (b.WaitFlag, b.ArriveFlag))
        if flag != (op.tensor.name in self.slots.zeroed):
            raise self.fail(op, "flags are in zeroed tensors, sums in others")
        try:
            slot, place = self.slots.place(op, self.partition.num_warpgroups)
        except NotUnderstood as told:
            raise self.fail(op, str(told), "index = slot * each + a line in the slot") from None
        if flag:
            self.found.flags[place] = op
        else:
            self.found.places[place] = op
        return slot, place

    def same(self, op: Op, slot: Linear) -> None:
        """One slot in all of an iteration: its tile's."""
        if self.slot != slot:
            raise self.fail(op, "this is another slot than its tile's", AS_WRITTEN)

    def plain(self, op: m.StoreGlobal, way: Way, place: Place) -> None:
        if op.pred is not None and not self.slots.by_one(op, self.partition.num_warpgroups):
            raise self.fail(op, "a store on a condition is not understood")
        if not op.accumulate and place in way.read:
            raise self.fail(op, "other threads may not have read this yet", "sync_warp()")
