"""All ways through one iteration of a work loop, as far as workspace tensors are touched there."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import touch_in
from wsdsl.ir.effects import Access, Arrive, Wait
from wsdsl.ir.op import Kernel, Op, Region, Value, regions, walk
from wsdsl.ir.ops import Partition, grid_of
from wsdsl.prover.failure import SPLIT_K, Failure, Party
from wsdsl.prover.machine.linear import Linear, Positive, Sums, truth
from wsdsl.prover.protocols.periodic_values import Known, evaluate, periodic_values_of
from wsdsl.prover.protocols.scheduler_terms import scheduler_terms
from wsdsl.prover.protocols.workspace_slots import NotUnderstood, Place, WorkspaceSlots

RELAXED = "the arrival does not release: the wait may not see the accumulator"
AS_WRITTEN = "compute it as wsdsl/ir/tile_scheduler.py does: the prover supports only its formulas"
MEET = "synchronize all warps before: named_barrier_sync"


@dataclass(frozen=True)
class Way:
    """Steps on a way through an iteration.

    `has`: the value waited for. `arrived`: how often. `loose`: something was touched since warps
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
        """Whether the tile is not cut, in which case nothing is forwarded."""
        return False

    def __init__(
        self,
        partition: Partition,
        sums: Sums,
        slots: WorkspaceSlots,
        kernel: Kernel,
        found: Findings,
        agent: int,
    ) -> None:
        grid = grid_of(kernel)
        assert grid is not None
        self.partition, self.sums, self.slots, self.grid = partition, sums, slots, grid
        self.found, self.agent = found, agent
        self.held: dict[Positive, bool] = {}
        self.now: dict[Value, int | None] = {}
        self.hands: list[tuple[bool, ...]] = []
        """Of each kind of splits: in which phases one is forwarded."""

    @abstractmethod
    def find(self, used: list[Op]) -> None:
        """Find the splits in the ops and compare them with the tile scheduler's."""

    @abstractmethod
    def kinds(self) -> Iterator[dict[Positive, bool]]:
        """Cases of an iteration, one after another."""

    @abstractmethod
    def touch(self, op: Any, way: Way) -> Way: ...

    @abstractmethod
    def finish(self, way: Way) -> None: ...

    def fail(self, op: Op, message: str, hint: str = "") -> Failure:
        return Failure(SPLIT_K, message, Party(self.agent, op), hint=hint)

    def check(self, used: list[Op]) -> None:
        loops = [op for op in self.partition.body if isinstance(op, ops.Loop)]
        work = next((op for op in loops if any(o is used[0] for o in walk((op,)))), None)
        for op in used:
            if work is None or not any(op is o for o in walk(work.body)):
                raise self.fail(op, "the prover supports only iterations of one work loop")
            if self.effect(op) is None:
                raise self.fail(op, "the prover does not support this use of a workspace")
        assert work is not None
        self.work, self.given = work, scheduler_terms(self.grid, self.sums, work.index)
        self.slot = self.given.slot
        for name in ("start", "stop", "step"):
            if self.sums.of(getattr(work, name)) != getattr(self.given, name):
                told = f"`{name}` of the work loop differs from the tile scheduler"
                raise self.fail(work, told, AS_WRITTEN)
        self.find(used)
        tests = [op.cond for op in walk(work.body) if isinstance(op, ops.If) and self.inside(op)]
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
            case ops.If():
                test = evaluate(op.cond, self.now, self.sums.made)
                if test is None:
                    test = truth(self.sums.test(op.cond), self.held)
                bodies = [op.then, op.orelse] if test is None else [op.then if test else op.orelse]
                for body in bodies:
                    yield from self.region(body, {way})
            case _ if self.touches(op):
                yield self.touch(op, way)
            case ops.Loop():
                inner = [o for o in walk(op.body) if self.touches(o)]
                for o in inner:
                    if not o.repeatable:
                        raise self.fail(o, "the prover supports only loads in this loop")
                yield way
                if inner:
                    once = self.region(op.body, {way})
                    yield from once | self.region(op.body, once)
            case _:
                for o in walk(tuple(o for inner in regions(op) for o in inner)):
                    if self.touches(o):
                        raise self.fail(o, "the prover does not support this within a region")
                yield self.synchronized(op, way)

    def synchronized(self, op: Any, way: Way) -> Way:
        """The way after threads have waited for each other, if `op` is such a wait."""
        for effect in op.effects(self.sums.made):
            match effect:
                case Wait(on="named barrier", item=None) if (
                    op.num_warpgroups >= self.partition.num_warpgroups
                ):
                    way = replace(way, loose=False, read=frozenset())
                case Wait(on="warp"):
                    way = replace(way, read=frozenset(p for p in way.read if p.holder != "warp"))
                case _:
                    pass
        return way

    def effect(self, op: Op) -> Access | Arrive | Wait | None:
        """Return the effect of an op of threads that has no other."""
        match [*op.effects(self.sums.made)]:
            case [Access(asynchronous=False) | Arrive() | Wait() as effect]:
                return effect
            case _:
                return None

    def touches(self, op: Op) -> bool:
        touch = touch_in(op.effects(self.sums.made))
        return touch is not None and touch.tensor in self.slots.each

    # Common parts of iterations -------------------------------------------------------------------

    def place(self, op: Any) -> tuple[Linear, Place]:
        flag = not isinstance(self.effect(op), Access)
        if flag != (op.tensor.name in self.slots.zeroed):
            raise self.fail(op, "flags must be in zeroed workspaces, accumulators in others")
        try:
            slot, place = self.slots.place(op, self.partition.num_warpgroups)
        except NotUnderstood as told:
            raise self.fail(op, str(told), "index by entry * each + a row of the entry") from None
        if flag:
            self.found.flags[place] = op
        else:
            self.found.places[place] = op
        return slot, place

    def same(self, op: Op, slot: Linear) -> None:
        """One entry in all of an iteration: its tile's."""
        if self.slot != slot:
            raise self.fail(op, "this accesses the workspace entry of another tile", AS_WRITTEN)

    def plain(self, op: Any, way: Way, place: Place) -> None:
        if op.pred is not None and not self.slots.by_one(op, self.partition.num_warpgroups):
            raise self.fail(op, "the prover does not support a conditional store")
        if not op.accumulate and place in way.read:
            raise self.fail(op, "other threads may not have read this yet", "add sync_warp()")
