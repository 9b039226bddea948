"""Tensors that a kernel writes: each access of a CTA follows earlier ones to the same
elements, where one of them writes; or goes elsewhere.

All ways through a partition are looked at together: accesses that may precede an op,
and the threads that see them complete. A thread's own accesses are in order; others of its warp or
its CTA must synchronize. TMA's writes are complete for the thread that has started them once it has
waited for more than their reads. Before TMA touches what threads have read or written there must
besides be a proxy fence of these threads, which synchronize after it. Loops are repeated until
nothing new comes; how often they run is open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import Touch, touches
from wsdsl.ir.effects import Arrive, Fence, Wait
from wsdsl.ir.op import Kernel, Op, Region, Value, regions
from wsdsl.ir.ops import Partition
from wsdsl.ir.rewriter import walk
from wsdsl.prover.failure import GLOBAL_ORDER, Failure, Party
from wsdsl.prover.machine.carried_scalars import Formulas
from wsdsl.prover.machine.instructions import named_barriers, workspaces
from wsdsl.prover.machine.linear import Linear
from wsdsl.prover.memory.gmem_accesses import Access
from wsdsl.prover.memory.gmem_regions import ALL, NOT_YET, OWN, WARP, GlobalPlaces
from wsdsl.prover.protocols.alternation import alternation
from wsdsl.prover.protocols.disjoint_items import meeting
from wsdsl.prover.protocols.ragged_items import loop_of_group
from wsdsl.prover.protocols.scheduler_terms import count_items
from wsdsl.reachability import reached

MOST_BEHIND = 16
"""Groups of TMA stores that are told apart; more pending ones are not understood."""


@dataclass(frozen=True)
class Known:
    """The threads that see an access complete; `fenced`: that its proxy fence has followed.
    `behind`: of a TMA store in flight, how many groups were committed behind its own, or -1.
    """

    over: int
    fenced: int = NOT_YET
    behind: int = -1

    def met(self, level: int) -> Known:
        """Threads that far away have met."""
        over, fenced = (max(x, level) if x >= OWN else x for x in (self.over, self.fenced))
        return replace(self, over=over, fenced=fenced)

    def least(self, other: Known) -> Known:
        return Known(
            min(self.over, other.over),
            min(self.fenced, other.fenced),
            min(self.behind, other.behind),
        )


Done = dict[Access, Known]
"""Accesses that may have been done."""


def check_global_order(kernel: Kernel) -> None:
    """Raises Failure where two accesses of a CTA may come in another order."""
    found = dict(touches(kernel))
    out = workspaces(kernel) | {x.tensor for x in found.values() if x.flag}
    written = frozenset(x.tensor for x in found.values() if x.writes)
    read = frozenset(x.tensor for x in found.values() if x.reads)
    found = {op: x for op, x in found.items() if x.tensor in written - out}
    grid = ops.grid_of(kernel)
    overlap = written - read if grid is not None and grid.overlapping else frozenset[str]()
    places = GlobalPlaces(kernel, overlap, written)
    partitions = [op for op in kernel.body if isinstance(op, Partition)]
    if not partitions:
        partitions = [Partition(role="kernel", body=kernel.body)]
    _check_sides(partitions, found, places)
    agent = 0
    for partition in partitions:
        if any(op in found for op in walk(partition.body)):
            _Partition(kernel, partition, found, places, agent).check()
        agent += partition.num_agents


def _fail(agent: int, op: Op, message: str, earlier: Op | None = None, hint: str = "") -> Failure:
    return Failure(GLOBAL_ORDER, message, Party(agent, op), earlier and Party(agent, earlier), hint)


def _check_sides(partitions: list[Partition], found: dict[Op, Touch], places: GlobalPlaces) -> None:
    """A tensor is one partition's, or that of partitions in ping-pong."""
    of_cta = Formulas(places.made, places.written, "cta")
    sides: dict[str, list[tuple[int, Op]]] = {}
    agent, held = 0, set[Op]()
    for partition in partitions:
        for op in walk(partition.body):
            if op in found:
                held.add(op)
                sides.setdefault(found[op].tensor, []).append((agent, op))
        agent += partition.num_agents
    for op, touch in found.items():
        if op not in held:
            told = f"outside of the partitions, accesses to `{touch.tensor}` are unordered"
            raise _fail(0, op, told)
    for tensor, uses in sides.items():
        if len({agent for agent, _ in uses}) == 1 or all(found[op].adds for _, op in uses):
            continue
        mine = {op for _, op in uses}
        sides_of = (p for p in partitions if any(o in mine for o in walk(p.body)))
        turns = [alternation(p, mine, places.sums, of_cta) for p in sides_of]
        if None in turns or len({x and x[0] for x in turns}) > 1 or len({*turns}) < len(turns):
            first, last = uses[0], next(use for use in uses if use[0] != uses[0][0])
            told = f"`{tensor}`, which the kernel writes, is accessed by another partition too"
            hint = "access it from one partition, or alternate the partitions by tile"
            raise _fail(*last, told, first[1], hint)


class _Partition:
    def __init__(
        self,
        kernel: Kernel,
        partition: Partition,
        found: dict[Op, Touch],
        places: GlobalPlaces,
        agent: int,
    ) -> None:
        self.kernel, self.partition, self.places, self.agent = kernel, partition, places, agent
        mine = [op for op in walk(partition.body) if op in found]
        self.accesses = {op: places.access(op) for op in mine}
        self.num = num = partition.num_warpgroups
        self.is_walked = False
        """Was there a loop over the work?"""
        self.item_loops: tuple[ops.Loop, ...] = ()
        """Of groups (`ragged_items.py`)."""
        self.of_one = False
        """Is this a part that one warpgroup runs at most?"""
        self.grid = grid = ops.grid_of(kernel)
        self.one_item = (
            grid is not None
            and (grid.ragged or grid.scheduler == "persistent")
            and count_items(grid.tiles, places.sums) != Linear(1)
        )
        """Is this done once, by a CTA that may have several items?"""
        self.own_barriers = _barriers(partition) - {
            x
            for other in kernel.body
            if isinstance(other, Partition) and other is not partition and num > 1
            for x in _barriers(other)
        }

    def check(self) -> None:
        self.region(self.partition.body, {}, work=True)
        grid = self.grid
        if grid is not None and not (grid.contraction or grid.overlapping or self.is_walked):
            self._check_apart(grid, None)

    def region(self, region: Region, done: Done, work: bool = False, elected: bool = False) -> Done:
        """`work`: the next loop may be the one over the work."""
        for op in region:
            match op:
                case ops.Loop():
                    done = self.loop(op, done, work, elected)
                case ops.If():
                    before = self.of_one
                    self.of_one = before or self._of_one(op.cond)
                    then = self.region(op.then, done, work, elected)
                    self.of_one = before
                    done = _join(then, self.region(op.orelse, done, work, elected))
                case _ if regions(op):  # by one thread
                    for inner in regions(op):
                        done = self.region(inner, done, work, True)
                case _:
                    done = self.after(op, done, elected)
        return done

    def loop(self, op: ops.Loop, done: Done, work: bool, elected: bool) -> Done:
        items = None
        if work and self.grid is not None and self.grid.ragged:
            items = loop_of_group(op, self.grid, self.places.sums, self.places.formulas)
        self.item_loops += (items,) if items else ()
        work = work and not items and self._is_work(op)
        before, entry = self.one_item, done
        while True:
            self.one_item = before and not work
            after = self.region(op.body, entry, items is not None, elected)
            self.one_item = before
            following = _join(done, self._next(op, after, work))
            if following == entry:
                return following
            entry = following

    def _is_work(self, op: ops.Loop) -> bool:
        """Its items are this CTA's, or this cluster's: they have tiles of their own. Where no tile
        is cut, it begins at that number, or goes on by how many there are; another loop that begins
        or ends by it walks a part of a dimension.
        """
        sums, grid = self.places.sums, self.grid
        start, stop, step = (sums.of(v) for v in op.bounds)
        if grid is None or not grid.contraction:
            if work := any(_of_grid(sums.meaning(x)) for x in (start, step)):
                self._check_items(op)
            return work

        def parts(x: Any) -> Iterable[Any]:
            if isinstance(x, Linear):
                return [sums.meanings[n] for n, _ in x.terms if isinstance(n, int)]
            return x if isinstance(x, tuple) else ()  # pyright: ignore[reportUnknownVariableType]

        if work := any(getattr(x, "within", "") == "grid" for x in reached([start, stop], parts)):
            self._check_apart(grid, op)
        return work

    def _check_items(self, op: ops.Loop) -> None:
        """No two CTAs, or clusters, walk the same item. Of tiles that are cut `split_k_protocol`
        says what an iteration does."""
        if (grid := self.grid) is None:
            return
        sums = self.places.sums
        start, stop, step = map(sums.of, op.bounds)
        if op in self.item_loops:
            self._check_apart(grid, op)
            return
        if (start, step) != tuple(map(sums.special, grid.worker)):
            told = "two CTAs may process the same item of this loop, and store the same elements"
            hint = "start at the index of the CTA (or cluster), with the number of CTAs as the step"
            raise self.fail(op, told, hint=hint)
        alike = grid.ragged and None not in self.places.formulas.within((), (op.bounds[1],))
        if stop != count_items(grid.tiles, sums) and not alike:
            told = "this loop may not end at the number of items of the grid"
            raise self.fail(op, told, hint="end it at the number of items of the grid")
        self._check_apart(grid, op)

    def _check_apart(self, grid: ops.LaunchGrid, loop: ops.Loop | None) -> None:
        self.is_walked = True
        within = walk(self.partition.body if loop is None else loop.body)
        own = [self.accesses[op] for op in within if op in self.accesses]
        stores = [x for x in own if not x.reads and not x.adds]
        if (store := meeting(loop, grid, stores, self.places)) is not None:
            told = "two work items store the same elements here"
            raise self.fail(store, told, hint="use different coordinates for each item")

    def _next(self, op: ops.Loop, done: Done, work: bool) -> Done:
        """The accesses, in terms of the next iteration."""
        made: Done = {}
        for access, known in done.items():
            if not (work and self.places.is_of_item(access.place, op.index)):
                aged = self.places.aged(access, op.index)
                made[aged] = known.least(made[aged]) if aged in made else known
        return made

    def after(self, op: Any, done: Done, elected: bool) -> Done:
        stated = [*op.effects(self.places.made)]
        if op in self.accesses:
            access = self.accesses[op]
            takes = any(getattr(effect, "kind", "") == "take" for effect in stated)
            if self.one_item and not access.reads and not takes:
                told = 'a CTA of a "persistent" grid has several items, but stores once'
                hint = 'store in a loop over the items, or use launch_grid(scheduler="grid")'
                raise self.fail(op, told, hint=hint)
            if elected and not access.reads:
                raise self.fail(op, "the prover does not support this store by one thread")
            self.compare_with_others(access)
            for before, known in done.items():
                self.compare(before, known, access)
            return done | {access: Known(NOT_YET if access.by_tma else OWN)}
        if elected:
            return done
        for effect in stated:
            match effect:
                case Wait(on="warp"):
                    done = {x: known.met(WARP) for x, known in done.items()}
                case Wait(on="cta" | "cluster"):
                    done = {x: known.met(ALL) for x, known in done.items()}
                case Wait(on="named barrier", item=item) if self._meets(op, item is None):
                    done = {x: known.met(ALL) for x, known in done.items()}
                case Fence(of="gmem"):
                    done = {
                        x: known if x.by_tma or known.fenced >= OWN else replace(known, fenced=OWN)
                        for x, known in done.items()
                    }
                case Arrive(on="bulk"):
                    for x, known in done.items():
                        if x.by_tma:
                            behind = min(known.behind + 1, MOST_BEHIND)
                            done = done | {x: replace(known, behind=behind)}
                case Wait(on="bulk", pending=pending) if not op.read:
                    for x, known in done.items():
                        if x.by_tma and known.behind >= pending >= 0:
                            done = done | {x: replace(known, over=max(known.over, OWN))}
                case _:
                    pass
        return done

    def _meets(self, op: Any, one: bool) -> bool:
        """Return whether all warps of the partition synchronize at `one` named barrier."""
        num = self.partition.num_warpgroups
        together = op.num_warpgroups == num and one
        return num == 1 or (together and op.barrier in self.own_barriers)

    def compare_with_others(self, access: Access) -> None:
        """With the same op of the other warpgroups, which run it when they like."""
        alone = not access.clashes(access) or self.of_one or self._of_one(access.pred)
        if not alone and self.places.meet(access.place, access.place, self.num):
            told = f"another warpgroup may store to the same elements of `{access.place.tensor}`"
            hint = "index by warpgroup_index, or store from one warpgroup"
            raise self.fail(access.op, told, hint=hint)

    def _of_one(self, test: Value | None) -> bool:
        """Whether it holds in no two warpgroups."""
        match self.places.made.get(test) if test is not None else None:
            case ops.Map(fn="eq", args=(x, y)):
                return self.places.tells_warpgroups(x, y)
            case ops.Map(fn="and", args=args):
                return any(map(self._of_one, args))
            case _:
                return False

    def compare(self, before: Access, known: Known, access: Access) -> None:
        if before.place.tensor != access.place.tensor or not before.clashes(access):
            return
        need = self.places.needed(before, access, self.partition.num_warpgroups)
        if need == NOT_YET:
            return
        tensor = access.place.tensor
        doing = "read" if access.reads else "overwrite"
        if known.over < need:
            did = "is read" if before.reads else "is written"
            told = f"this may {doing} `{tensor}` before it {did} by an earlier op"
            raise self.fail(access.op, told, before.op, _hint(before, known, need))
        if access.by_tma and not before.by_tma and known.fenced < need:
            did = "read" if before.reads else "wrote"
            told = f"this may {doing} `{tensor}` by TMA before the earlier access of threads"
            hint = "add fence_async_proxy(everywhere=True) in these threads, then synchronize them"
            raise self.fail(access.op, told, before.op, hint)

    def fail(self, op: Op, message: str, earlier: Op | None = None, hint: str = "") -> Failure:
        return _fail(self.agent, op, message, earlier, hint)


def _hint(before: Access, known: Known, need: int) -> str:
    met = {WARP: "sync_warp", ALL: "a named barrier of the partition"}.get(need, "")
    if before.by_tma and known.over == NOT_YET:
        return "tma_store_wait(pending=0, read=False)" + (f", then {met}" if met else "")
    return f"add {met} in between"


def _of_grid(meaning: Any) -> bool:
    """Return whether a term is an index in the grid, or an extent of it."""
    return bool(meaning) and getattr(meaning[0], "within", "") in ("grid", None)


def _barriers(partition: Partition) -> set[int]:
    return {x for op in walk(partition.body) for x in named_barriers(op)}


def _join(a: Done, b: Done) -> Done:
    if a is b:
        return a
    made = dict(a)
    for access, known in b.items():
        made[access] = known.least(made[access]) if access in made else known
    return made
