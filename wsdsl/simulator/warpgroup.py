"""The state of a warpgroup, which the ops of the SCHEDULED level work on."""

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np

from wsdsl.diagnostics import Finding
from wsdsl.ir.effects import Span
from wsdsl.ir.op import Op, Value
from wsdsl.ir.ops import Partition
from wsdsl.ir.printer import print_head
from wsdsl.ir.verify.threads import misplaced
from wsdsl.simulator.cta import Cta, Recent
from wsdsl.simulator.recorded_effects import Effect, Kind, Space, thread_numbers
from wsdsl.simulator.simulation_error import SimulationError
from wsdsl.simulator.state.mbarrier_state import Barrier
from wsdsl.simulator.state.register_fragments import RegisterOperands
from wsdsl.simulator.state.smem_bytes import Region, SharedMemory
from wsdsl.simulator.state.smem_races import Access, Conflict, ThreadAccess
from wsdsl.simulator.state.tmem_cells import CellAccess, TensorPipe
from wsdsl.simulator.state.vector_clocks import THREADS, Clock
from wsdsl.simulator.state.wgmma_groups import WgmmaPipe


@dataclass(frozen=True)
class Blocked:
    """A warpgroup waits at `op` until `ready`; `reason` tells for what, in a deadlock's report."""

    op: Op
    ready: Callable[[], bool]
    reason: Callable[[], str]


Steps = Generator[Blocked | None, None, Any]
"""A coroutine: None offers a switch, Blocked demands one."""


class Undefined:
    """The content of registers that no wgmma has written."""


UNDEFINED = Undefined()


@dataclass(frozen=True)
class SharedItems:
    """`num` items of `bytes` bytes at `offset` in SMEM."""

    label: str
    offset: int
    bytes: int
    num: int


@dataclass(frozen=True)
class State:
    stage: int
    parity: int


@dataclass(eq=False)
class StoreGroup:
    """TMA stores of one commit group: each has a `read_done`, a `write_done` and its accesses."""

    stores: list[Any] = field(default_factory=list[Any])


class Warpgroup:
    """128 threads that run the kernel's body together, and the ops that one of them runs alone."""

    def __init__(self, cta: Cta, partition: Partition, number: int, rank: int) -> None:
        """`number` is the partition's among those of the kernel, `rank` the place in it."""
        self.cta, self.partition, self.number, self.rank = cta, partition, number, rank
        self.index = len(cta.recent)
        self.name = f"{partition.role} warpgroup {rank}"
        self.full_name = f"CTA {cta.index} {self.name}"
        self.told = self.name if cta.residents.alone else self.full_name
        self.values: dict[str, Any] = {}
        self.elected = False
        self.in_partition = False
        self.first = cta.everyone.start + THREADS * self.index
        self.everyone = slice(self.first, self.first + THREADS)
        self.one = slice(self.first, self.first + 1)
        self.loops: list[tuple[str, int]] = []
        self.recent: Recent = deque(maxlen=4)
        cta.recent.append((self.name, self.recent))
        self.counts: Counter[str] = Counter()
        self.ops_run = 0
        self.runs: Counter[int] = Counter()
        self.registers = cta.entry_registers
        self.wgmma = WgmmaPipe()
        self.tensor_pipe = TensorPipe(self.one)
        self.cell_accesses: list[CellAccess] = []
        """Of tensor memory, that no wait and fence have followed."""
        self.operands = RegisterOperands(frozenset())
        self.open_stores = StoreGroup()
        self.store_groups: list[StoreGroup] = []
        self.read_groups = 0
        self.written_groups = 0
        self.blocked: Blocked | None = None
        self.run: Callable[[tuple[Op, ...]], Steps]
        """Runs a region; returns the values that it yields."""
        self.done = False
        self.effects = cta.residents.effects

    @property
    def key(self) -> str:
        """The name by which a script calls it."""
        return warpgroup_key(self.cta.index, self.number, self.partition, self.rank)

    @property
    def actors(self) -> slice:
        """The threads that run the current op, as components of the clocks."""
        return self.one if self.elected else self.everyone

    def warp(self, i: int) -> slice:
        return slice(self.first + 2 * i, self.first + 2 * i + 2)

    def storing(self, i: int) -> slice:
        return slice(self.first + 2 * i, self.first + 2 * i + 1)

    def integers(self) -> dict[str, int]:
        """Return the scalars that are known, with the number of the warpgroup in its partition."""
        known = {k: int(v) for k, v in self.values.items() if isinstance(v, int | np.integer)}
        return known | {"rank": self.rank}

    def get(self, value: Value, op: Op) -> Any:
        held = self.values[value.name]
        if held is UNDEFINED:
            self.fail(op, f"no wgmma has written {value}", kind="uninitialized")
        return held

    def last_store(self, otherwise: Op) -> Op:
        groups = [self.open_stores, *self.store_groups[self.read_groups :]]
        found = [s.accesses[0].op for group in groups for s in group.stores]
        return found[-1] if found else otherwise

    def note(self, op: Op) -> None:
        """Remember an op that others can see, for the trace."""
        self.recent.append((op, tuple(self.loops)))
        self.counts[type(op).__name__] += 1
        self.ops_run += 1
        self.runs[id(op)] += 1

    def times_run(self, op: Op | None) -> int:
        """How often it has come to this op, or to any."""
        return self.ops_run if op is None else self.runs[id(op)]

    def where(self) -> str:
        return "".join(f", %{name} = {value}" for name, value in self.loops)

    def fail(
        self, op: Op, message: str, *, kind: str = "misuse", hint: str = "", extra: Op | None = None
    ) -> NoReturn:
        head = f"CTA {self.cta.index}, {self.name}{self.where()}: {message}"
        findings = [Finding(f"{head}\n  in {print_head(op)}", op.loc, hint)]
        if extra is not None:
            what = "the earlier access" if kind == "race" else "the other op"
            findings.append(Finding(f"{what}: {print_head(extra)}", extra.loc))
        raise SimulationError(kind, findings, trace(self.cta.cluster.ctas))

    def outside(self, op: Op, message: str) -> NoReturn:
        self.fail(op, message, kind="bounds")

    def check(self, op: Op, told: str) -> None:
        """Fail if a barrier or a rule has answered with what is wrong."""
        if told:
            self.fail(op, told)

    def settle(self, op: Op, what: str, conflict: Conflict | None) -> None:
        if conflict is None:
            return
        if conflict.earlier is None:
            self.fail(op, f"{what}: {conflict.reason}", kind="uninitialized")
        earlier: Access = conflict.earlier
        by = f"{earlier.who} accessed by {op_word(earlier.op)}"
        self.fail(op, f"{what}, which {by}; {conflict.reason}", kind="race", extra=earlier.op)

    def by_threads(self, op: Op, threads: slice, who: str = "") -> ThreadAccess:
        return ThreadAccess(who or self.told, op, threads, self.cta.clocks.own[threads].copy())

    def begin(
        self,
        op: Op,
        what: str,
        kind: Literal["read", "write", "add"],
        memory: SharedMemory,
        region: Region,
        access: Access,
        threads: slice,
        reader: object = None,
        asynchronous: bool = True,
    ) -> None:
        """Record an access to SMEM and check it for races; see `SharedAccesses.begin`."""
        self.effect(op, kind, "shared", threads, region, owner=memory.cta)
        ranges = self._stated_ranges(op, kind, region, threads)
        found = memory.accesses.begin(kind, ranges, access, threads, reader, asynchronous)
        self.settle(op, what, found)

    def _stated_ranges(
        self, op: Op, kind: Kind, region: Region, threads: slice
    ) -> Sequence[tuple[int, int]]:
        """Return the addresses that the op's effects state for an access to a region."""
        at = region.ranges[0][0]
        for access in self.cta.residents.stated(op, "smem"):
            held = self.values.get(access.of.name) if access.of is not None else None
            same = kind == ("write" if access.kind == "take" else access.kind)
            if not same or not isinstance(held, SharedItems):
                continue
            first, size = held.offset, held.bytes
            if first <= at < first + held.num * size:
                start, warp = at - (at - first) % size, (threads.start - self.first) // 2
                spans = access.spans[warp if len(access.spans) > 1 else 0]
                return [(start + x, start + y) for x, y in map(self.range_of, spans) if x < y]
        return self.fail(op, f"its effects have no {kind} of SMEM at {at}")

    def range_of(self, span: Span) -> tuple[int, int]:
        start = span.start
        for term, by in span.terms:
            start += by * (self.rank if isinstance(term, str) else int(self.values[term.name]))
        end = start + span.size
        return (start, end) if span.limit is None else (start, min(end, span.limit))

    def effect(
        self,
        op: Op,
        kind: Kind,
        space: Space,
        threads: slice,
        at: Any = None,
        name: str = "",
        owner: int | None = None,
    ) -> None:
        """Record an effect of the op (`effects.py`), if that is enabled."""
        if self.effects is not None:
            cta = self.cta.index
            where = cta if owner is None else owner
            numbers = thread_numbers(threads, self.cta.everyone.start)
            self.effects.append(Effect(op, kind, space, cta, numbers, where, name, at))

    def arrive(
        self, op: Op, barrier: Barrier, threads: slice, count: int = 1, known: Clock | None = None
    ) -> None:
        """Arrive at a barrier; `known`: the clock that it gathers, if not that of the threads."""
        self.note_arrival(op, barrier, threads)
        clock = self.cta.clocks.release(threads) if known is None else known
        self.check(op, barrier.arrive(count, clock))

    def note_arrival(self, op: Op, barrier: Barrier, threads: slice) -> None:
        self.effect(op, "arrive", "barrier", threads, barrier.stage, barrier.label, barrier.cta)

    def of_rank(self, op: Op, rank: Value) -> Cta:
        """A CTA of the cluster."""
        number, cluster = int(self.get(rank, op)), self.cta.cluster
        if not 0 <= number < cluster.size:
            self.outside(op, f"rank {number} in a cluster of {cluster.size} CTAs")
        return cluster.ctas[number]

    def of_pair(self, op: Op, rank: Value) -> Cta:
        """A CTA of the same pair."""
        cta = self.of_rank(op, rank)
        if cta.rank // 2 != self.cta.rank // 2:
            self.fail(op, f"the CTA of rank {cta.rank} is in another pair")
        return cta

    def pair(self, op: Op, cta_group: int) -> list[Cta]:
        """The CTAs that an instruction is about: one's own, or both of a pair whose first it is."""
        if cta_group == 1:
            return [self.cta]
        rank, ctas = self.cta.rank, self.cta.cluster.ctas
        if rank % 2 or rank + 1 >= len(ctas):
            self.fail(op, "only the first CTA of a pair can issue an op of the pair")
        if ctas[rank + 1].done:
            self.fail(op, ended(ctas[rank + 1]), hint=END_TOGETHER)
        return ctas[rank : rank + 2]

    def check_threads(self, op: Op) -> None:
        told, hint = misplaced(op, self.elected)
        if told:
            self.fail(op, told, hint=hint)

    def slot(self, op: Any) -> tuple[SharedItems, State]:
        """The items in SMEM of an op, and the state that says which of them."""
        return self.values[op.shared.name], self.values[op.state.name]

    def item(self, op: Op, shared: SharedItems, index: int, offset: int, size: int) -> int:
        """The address of `size` bytes in an item."""
        if not 0 <= index < shared.num:
            self.outside(op, f"item {index} of `{shared.label}`, which has {shared.num}")
        if offset < 0 or offset + size > shared.bytes:
            told = f"bytes {offset} to {offset + size} of an item of `{shared.label}`"
            self.outside(op, f"{told}, which has {shared.bytes} bytes")
        return shared.offset + index * shared.bytes + offset

    def place(self, op: Any, size: int, offset: int = 0) -> tuple[int, str]:
        """The address of `size` bytes in the item of the op's state, and the item's name."""
        shared, state = self.slot(op)
        name = f"item {state.stage} of `{shared.label}`"
        return self.item(op, shared, state.stage, offset, size), name

    def barrier(self, op: Op, barriers: Value, state: State, cta: Cta | None = None) -> Barrier:
        """The barrier of the state's stage, of one's own CTA or of another of the cluster."""
        if cta is None or cta is self.cta:
            held: list[Barrier] = self.values[barriers.name]
            meeting, hint = "sync_cta", ""
        else:
            if cta.done:
                self.fail(op, ended(cta), hint=END_TOGETHER)
            held = cta.barriers.get(barriers.name, [])
            meeting, hint = "sync_cluster", START_TOGETHER
            if not held:
                self.fail(op, f"CTA {cta.index} may not have started", hint=hint)
        if not 0 <= state.stage < len(held):
            self.outside(op, f"stage {state.stage} of `{held[0].label}`, which has {len(held)}")
        found = held[state.stage]
        if told := found.unusable(self.actors, meeting):
            self.fail(op, told, hint=hint)
        return found


def destinations(wg: Warpgroup, op: Op, multicast: Value | None) -> list[Cta]:
    """The CTAs that a mask says, or one's own."""
    if multicast is None:
        return [wg.cta]
    cluster = wg.cta.cluster
    mask = int(wg.get(multicast, op))
    if not 0 < mask < 1 << cluster.size:
        wg.outside(op, f"multicast mask {mask:#b} in a cluster of {cluster.size}")
    found = [cta for cta in cluster.ctas if mask >> cta.rank & 1]
    for cta in found:
        if cta.done:
            wg.fail(op, ended(cta), hint=END_TOGETHER)
    return found


END_TOGETHER = "end with a sync_cluster, so that no CTA ends before the last access to its SMEM"
START_TOGETHER = "add a sync_cluster after the initialization of the barriers"


def ended(cta: Cta) -> str:
    return f"CTA {cta.index} of the cluster has ended"


def warpgroup_key(cta: int, number: int, partition: Partition, rank: int) -> str:
    return f"cta{cta}/{number}.{partition.role}.{rank}"


def trace(ctas: Sequence[Cta]) -> str:
    lines: list[str] = []
    for cta in ctas:
        lines.append(f"CTA {cta.index} of seed {cta.residents.seed}, last steps:")
        for name, recent in cta.recent:
            lines += [f"  {name}:", *(f"    {_line(op, where)}" for op, where in recent)]
    return "\n".join(lines)


def op_word(op: Op) -> str:
    return print_head(op).split(" = ")[-1].split("(", 1)[0]


def _line(op: Op, loops: tuple[tuple[str, int], ...]) -> str:
    line = f"{op.loc.line}: " if op.loc else ""
    return f"{line}{print_head(op)}" + "".join(f"  %{n}={v}" for n, v in loops)
