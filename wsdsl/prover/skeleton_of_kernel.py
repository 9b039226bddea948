"""The synchronising events of a SCHEDULED kernel, as codegen is to emit them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import fragment_ops as f
from wsdsl.ir import memory_ops as m
from wsdsl.ir import tile_ops as t
from wsdsl.ir.blocks import BLOCK_BYTES, COLUMNS
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.pipeline_ops import Partition, by_warpgroup
from wsdsl.ir.types import DTYPES, Accumulator, Barriers, Fragment, Shared
from wsdsl.ir.wgmma import PTX_NAMES, k_step, may_be_mn_major
from wsdsl.prover.skeleton_language import EVERYBODY, EVERYWHERE, UNKNOWN, Graph, Letter

FOLDED = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "min": min,
    "max": max,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
}
CONDITIONAL = "conditional "
"""An event that depends on more than which thread it is."""
LINE = 8
"""Bytes of an mbarrier."""


@dataclass(frozen=True)
class Items:
    """`num` places in SMEM, `stride` bytes apart, one of which an event takes; by the CTA's rank in
    its cluster, as much further as `shifts` says.
    """

    name: str
    start: int
    stride: int
    num: int
    shifts: tuple[int, ...] = (0,)

    def values(self) -> frozenset[int]:
        last = self.start + self.stride * self.num
        places = range(self.start, last, self.stride)
        return frozenset(at + shift for at in places for shift in self.shifts)


@dataclass
class Places:
    """What SMEM holds: arrays of mbarriers, and the destinations of copies. And who uses it."""

    num_threads: int = 0
    barriers: dict[Value, Items] = field(default_factory=dict[Value, Items])
    destinations: dict[tuple[Value, int, Value | None], Items] = field(
        default_factory=dict[tuple[Value, int, Value | None], Items]
    )


@dataclass(frozen=True)
class Who:
    """Who executes: warpgroups (of a partition), or one elected thread of theirs."""

    first: int = 0
    num: int = 0
    warp: int = 0
    inside: bool = False
    elected: bool = False

    def one_in(self, count: int) -> int:
        """The first of every `count` threads."""
        return sum(1 << t for t in range(128 * self.first, 128 * (self.first + self.num), count))

    def one(self) -> int:
        """Who acts for a warpgroup, or (outside of partitions) for the CTA."""
        return EVERYBODY if self.elected else self.one_in(128) if self.inside else 1


def ctas(ranks: Sequence[int | None]) -> str:
    """The CTA that is meant, for each one of the cluster."""
    known = [rank for rank in ranks if rank is not None]
    return UNKNOWN if len(known) < len(ranks) else f"CTA {' '.join(map(str, known))}"


def sent(to: str, offsets: Sequence[int | None]) -> str:
    """`offsets`: in SMEM, for each warpgroup."""
    if to == UNKNOWN or None in offsets:
        return UNKNOWN
    return f"{to} at {' '.join(map(str, offsets))}"


def skeleton_of_kernel(kernel: Kernel) -> tuple[Graph, Places]:
    made = _Builder()
    num = sum(op.num_warpgroups for op in kernel.body if isinstance(op, Partition)) or 1
    made.places.num_threads = 128 * num
    made.region(kernel.body, Who(num=num))
    made.graph.ends.add(made.now)
    return made.graph, made.places


class _Builder:
    def __init__(self) -> None:
        self.graph, self.places, self.now = Graph(), Places(), 0
        self.known: dict[Value, int | float | bool] = {}
        self.cluster = 1
        self.by_rank: dict[Value, tuple[int, ...]] = {}
        """Numbers that depend on nothing but the CTA's rank in its cluster."""
        self.by_warpgroup: dict[Value, int] = {}
        """Multiples of the warpgroup's index in its partition: of how much."""
        self.arrivals: dict[Value, int] = {}
        self.shared: dict[Value, m.AllocateShared] = {}
        self.empty: set[Value] = set()
        self.around: list[tuple[Value, Value]] = []
        """Bounds of the loops that stand around."""

    # Shapes of control ---------------------------------------------------------------------------

    def emit(
        self,
        op: Op,
        kind: str,
        detail: str = "",
        barrier: str = "",
        to: str = "",
        threads: int = EVERYBODY,
    ) -> None:
        node = self.graph.add(Letter(kind, detail, barrier, to), op, threads)
        self.graph.join(self.now, node)
        self.now = node if threads == EVERYBODY else self.past(node, ~threads, self.now)

    def past(self, node: int, others: int, before: int) -> int:
        """After a node that `others` leave out."""
        return self.silent(node, self.silent(before, threads=others))

    def silent(self, *before: int, threads: int = EVERYBODY) -> int:
        node = self.graph.add(threads=threads)
        for held in before:
            self.graph.join(held, node)
        return node

    def region(self, region: Region, who: Who) -> None:
        at = 0
        while at < len(region):
            op, last = region[at], at + 1
            if isinstance(op, Partition):
                while last < len(region) and isinstance(region[last], Partition):
                    last += 1
                self.partitions(region[at:last])
            else:
                self.op(op, who)
            at = last

    def partitions(self, ops: Sequence[Op]) -> None:
        """Each warpgroup runs one, and those that its further warps run; codegen gives the last one
        all that are left."""
        bodies: list[tuple[list[tuple[Region, Who]], int]] = []
        first = 0
        for together in by_warpgroup([op for op in ops if isinstance(op, Partition)]):
            who = Who(first, together[0].num_warpgroups, inside=True)
            sharing = [(op.body, replace(who, warp=warp)) for warp, op in enumerate(together)]
            bodies.append((sharing, who.one_in(1)))
            first += together[0].num_warpgroups
        self.either(bodies)

    def either(self, bodies: Sequence[tuple[Sequence[tuple[Region, Who]], int]]) -> None:
        before, ends = self.now, list[int]()
        for sharing, threads in bodies:
            self.now = self.silent(before, threads=threads)
            for body, who in sharing:
                self.region(body, who)
            ends.append(self.now)
        self.now = self.silent(*ends)

    def loop(self, op: b.ForRange, who: Who) -> None:
        start, stop = self.known.get(op.start), self.known.get(op.stop)
        bounds = op.start, op.stop
        # One that is within another with its bounds is run, and LLVM knows that, too.
        runs = True if bounds in self.around else None
        if start is not None and stop is not None:
            runs = start < stop
        if runs is False:
            return
        before = self.now
        first = self.now = self.silent(before)
        self.around.append(bounds)
        self.region(op.body, who)
        self.around.pop()
        self.graph.join(self.now, first)
        self.now = self.silent(self.now) if runs else self.silent(self.now, before)

    def elect(self, op: b.Elect, who: Who) -> None:
        before = self.now
        threads = 1
        if who.inside:
            threads = (1 << 32) - 1 << 128 * who.first + 32 * who.warp
            self.now = self.graph.add(Letter("elect.sync"), op, threads)
            self.graph.join(before, self.now)
        else:
            self.now = self.silent(before, threads=threads)
        asked = self.now
        self.region(op.body, replace(who, elected=True))
        # Which lane is elected is not known.
        done = self.silent(self.now, *([asked] if who.inside else []))
        self.now = self.past(done, ~threads, before)

    def fold_by_rank(self, op: t.Map) -> None:
        each = [self.by_rank.get(x) or (self.known.get(x),) * self.cluster for x in op.args]
        if len(each) == 2 and None not in (*each[0], *each[1]):
            found = (FOLDED[op.fn](x, y) for x, y in zip(*each, strict=True))
            self.by_rank[op.result] = tuple(int(x) for x in found)

    # Ops -----------------------------------------------------------------------------------------

    def op(self, op: Op, who: Who) -> None:
        match op:
            case t.Constant():
                self.known[op.result] = op.value
            case b.CtaRank():
                self.by_rank[op.result] = tuple(range(self.cluster))
            case b.WarpgroupIndex():
                self.by_warpgroup[op.result] = 1
            case t.Map(fn="mul", args=(x, y)) if x in self.by_warpgroup and y in self.known:
                self.by_warpgroup[op.result] = self.by_warpgroup[x] * int(self.known[y])
            case t.Map() if op.fn in FOLDED and any(x in self.by_rank for x in op.args):
                self.fold_by_rank(op)
            case t.Map() if op.fn in FOLDED and all(x in self.known for x in op.args):
                x, y = (self.known[v] for v in op.args)
                if y or op.fn not in ("floordiv", "mod"):
                    self.known[op.result] = FOLDED[op.fn](x, y)
            case t.If():
                cond = self.known.get(op.cond)
                bodies = [op.then, op.orelse] if cond is None else [op.then if cond else op.orelse]
                self.either([([(body, who)], EVERYBODY) for body in bodies])
            case b.ForRange():
                self.loop(op, who)
            case b.Elect():
                self.elect(op, who)
            case b.LaunchGrid():
                self.cluster = op.cluster
            case b.AllocateBarriers():
                assert isinstance(op.result.type, Barriers)
                name = f"{op.label} (at {op.offset})"
                items = Items(name, op.offset, LINE, op.result.type.num)
                self.places.barriers[op.result] = items
                self.arrivals[op.result] = op.arrivals
            case m.AllocateShared():
                self.shared[op.result] = op
            case _:
                self.event(op, who)

    def event(self, op: Op, who: Who) -> None:
        match op:
            case b.InitializeBarriers():
                items = self.places.barriers[op.barriers]
                for i in range(items.num):
                    count = str(self.arrivals[op.barriers])
                    self.emit(op, "mbarrier.init", count, f"{items.name}[{i}]")
            case b.FenceBarrierInit():
                self.emit(op, "fence.mbarrier_init")
                self.emit(op, "fence.proxy.async")
            case b.WaitPredecessor():
                self.emit(op, "griddepcontrol", "wait")
            case b.LaunchDependents():
                self.emit(op, "griddepcontrol", "launch_dependents")
            case b.SyncCta():
                self.emit(op, "bar.sync", "0")
            case b.SyncCluster():
                self.emit(op, "barrier.cluster.arrive" + ".relaxed" * op.relaxed)
                self.emit(op, "barrier.cluster.wait")
            case b.NamedBarrierSync():
                self.emit(op, "bar.sync", f"{op.barrier}, {128 * op.num_warpgroups}")
            case b.NamedBarrierArrive():
                self.emit(op, "bar.arrive", f"{op.barrier}, {128 * op.num_warpgroups}")
            case b.SyncWarp():
                self.emit(op, "bar.warp.sync")
            case b.FenceAsyncProxy():
                self.emit(op, "fence.proxy.async", EVERYWHERE if op.everywhere else "")
            case b.SetMaxRegisters():
                self.emit(op, f"setmaxnreg.{'inc' if op.increase else 'dec'}", str(op.count))
            case b.WaitBarrier():
                self.emit(op, "mbarrier.try_wait", "", self.places.barriers[op.barriers].name)
            case b.ArriveBarrier():
                kind = "mbarrier.arrive" if op.cta is None else "remote mbarrier.arrive"
                threads = EVERYBODY if op.each_thread else who.one()
                if op.each_warp:
                    threads = who.one_in(32)
                pred = True if op.pred is None else self.known.get(op.pred)
                if pred is not None:
                    threads = threads if pred else 0
                else:
                    kind = CONDITIONAL + kind
                name = self.places.barriers[op.barriers].name
                to = "" if op.cta is None else self.targets(op.cta)
                self.emit(op, kind, barrier=name, to=to, threads=threads)
            case b.ArriveExpectTx():
                name = self.places.barriers[op.barriers].name
                self.emit(op, "mbarrier.arrive.expect_tx", str(op.tx_bytes), name)
            case b.ArriveFlag():
                kind = f"red.{'release' if op.release else 'relaxed'}.gpu"
                kind += ".add" if op.wrap is None else ".inc"
                register = op.by is not None or op.wrap is not None
                amount = "a register" if register else str(op.amount)
                self.emit(op, kind, amount, threads=who.one())
            case b.WaitFlag():
                self.emit(op, "ld.acquire.gpu")
            case _:
                self.copy_or_product(op, who)

    def copy_or_product(self, op: Op, who: Who) -> None:
        match op:
            case m.TmaLoad():
                kind = "multicast TMA load" if op.multicast is not None else "TMA load"
                rank = f"{len(op.coordinates)}d"
                name = self.places.barriers[op.barriers].name
                self.emit(op, kind, rank, name, self.destination(op).name)
            case m.SendFragment():
                assert isinstance(op.value.type, Fragment)
                name = self.places.barriers[op.barriers].name
                for block in range(op.value.type.columns // COLUMNS):
                    to = self.sent(op, block * BLOCK_BYTES, who)
                    self.emit(op, "st.async", "16 bytes", name, to)
            case m.TmaStore():
                kind = "TMA reduction" if op.accumulate else "TMA store"
                self.emit(op, kind, f"{len(op.coordinates)}d", threads=who.one_in(32))
            case m.TmaStoreCommit():
                self.emit(op, "cp.async.bulk.commit_group", threads=who.one_in(32))
            case m.TmaStoreWait():
                kind = f"cp.async.bulk.wait_group{'.read' if op.read else ''}"
                self.emit(op, kind, str(op.pending), threads=who.one_in(32))
            case f.WgmmaFence():
                self.emit(op, "wgmma.fence")
            case f.EmptyAccumulator():
                self.empty.add(op.result)
            case f.Wgmma():
                for step in range(op.k // k_step(DTYPES[op.dtype])):
                    self.emit(op, "wgmma.mma_async", self.product(op, step))
            case f.WgmmaCommit():
                self.emit(op, "wgmma.commit_group")
            case f.WgmmaWait():
                self.emit(op, "wgmma.wait_group", str(op.pending))
            case _:
                pass

    def targets(self, cta: Value) -> str:
        known = self.known.get(cta)
        ranks = None if known is None else (int(known),) * self.cluster
        return ctas(ranks or self.by_rank.get(cta) or (None,))

    def sent(self, op: m.SendFragment, further: int, who: Who) -> str:
        start = self.shared[op.shared].offset + op.offset + further
        each = 0 if op.shift is None else self.by_warpgroup.get(op.shift)
        groups = range(self.places.num_threads // 128)
        places = [None if each is None else start + each * (g - who.first) for g in groups]
        return sent(self.targets(op.cta), places)

    def destination(self, op: m.TmaLoad) -> Items:
        key = op.shared, op.offset, op.shift
        if key not in self.places.destinations:
            assert isinstance(op.shared.type, Shared)
            shared = self.shared[op.shared]
            start = shared.offset + op.offset
            shifts = (0,) if op.shift is None else self.by_rank[op.shift]
            further = "" if op.shift is None else "+shift"
            name = f"{shared.label}+{op.offset}{further} (at {start})"
            items = Items(name, start, op.shared.type.bytes, op.shared.type.num, shifts)
            self.places.destinations[key] = items
        return self.places.destinations[key]

    def product(self, op: f.Wgmma, step: int) -> str:
        assert isinstance(op.acc.type, Accumulator)
        known = self.known.get(op.accumulate)
        if known is False and op.acc not in self.empty:
            known = None  # It takes over registers, by a flag that nobody can fold.
        flag = "1" if step else "p" if known is None else str(int(known))
        a, b = (DTYPES[name] for name in op.dtypes)
        total = {"i32": "s32"}.get(op.acc.type.dtype.name, op.acc.type.dtype.name)
        names = f"{total}.{PTX_NAMES[a.name]}.{PTX_NAMES[b.name]}"
        shape = f"m64n{op.acc.type.columns}k{k_step(a)}.{names}"
        registers = isinstance(op.a.type, Fragment)
        rest = [] if a.is_integer else [1, 1]
        if may_be_mn_major(a):
            majors = [op.b_k_major] if registers else [op.a_k_major, op.b_k_major]
            rest += [int(not k_major) for k_major in majors]
        return ", ".join([f"{shape} {'{a}' if registers else 'a'}", "b", flag, *map(str, rest)])
