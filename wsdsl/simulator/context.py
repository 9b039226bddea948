"""The state of a CTA and of its warpgroups, which the ops of the SCHEDULED level work on."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn, Protocol

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Op, Value
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.printer import print_op
from wsdsl.ir.types import Fragment, Tile
from wsdsl.simulator.arrays import Arguments
from wsdsl.simulator.barriers import Barrier
from wsdsl.simulator.clocks import THREADS, Clocks
from wsdsl.simulator.errors import SimulationError
from wsdsl.simulator.races import Access, Conflict, SharedAccesses
from wsdsl.simulator.shared_memory import SharedMemory
from wsdsl.simulator.wgmma_groups import WgmmaPipe


class Agent(Protocol):
    """Work of the async proxy that is under way; the scheduler decides when it gets on."""

    @property
    def kind(self) -> str: ...

    def step(self) -> bool:
        """Get on; is there more to come?"""
        ...


@dataclass(frozen=True)
class Blocked:
    """A warpgroup waits at `op` until `ready`; `reason` tells for what, in a deadlock's report."""

    op: Op
    ready: Callable[[], bool]
    reason: Callable[[], str]


Steps = Generator[Blocked | None, None, Any]
"""A coroutine: None offers a switch, Blocked demands one."""


class Undefined:
    """What registers hold that no wgmma has written."""


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
    """TMA stores of one commit group: each has a `read_done`, a `write_done` and its reads."""

    stores: list[Any] = field(default_factory=list[Any])
    retired: bool = False


class Cta:
    """One CTA: its SMEM, barriers, clocks and what is in flight."""

    def __init__(
        self,
        index: int,
        num_ctas: int,
        arguments: Arguments,
        num_warpgroups: int,
        smem_bytes: int,
        num_barriers: int,
        registers: int,
        rng: Random,
        seed: int,
    ) -> None:
        self.seed = seed
        self.index, self.num_ctas, self.arguments, self.rng = index, num_ctas, arguments, rng
        self.clocks = Clocks(num_warpgroups, num_barriers)
        self.memory = SharedMemory(smem_bytes)
        self.accesses = SharedAccesses(smem_bytes, self.clocks)
        self.barriers: dict[str, list[Barrier]] = {}
        self.num_barriers = 0
        self.agents: list[Agent] = []
        self.warpgroups: list[Warpgroup] = []
        self.free_registers = 0
        self.entry_registers = registers
        self.at_sync = 0
        self.sync_round = 0

    def trace(self) -> str:
        lines = [f"CTA {self.index} of seed {self.seed}, last steps:"]
        for wg in self.warpgroups:
            lines += [f"  {wg.name}:", *(f"    {_line(op, where)}" for op, where in wg.recent)]
        return "\n".join(lines)


class Warpgroup:
    """128 threads that run the kernel's body together, and the ops that one of them runs alone."""

    def __init__(self, cta: Cta, index: int, partition: Partition, rank: int) -> None:
        self.cta, self.index, self.partition, self.rank = cta, index, partition, rank
        self.name = f"{partition.role} warpgroup {rank}"
        self.values: dict[str, Any] = {}
        self.elected = False
        self.in_partition = False
        self.first = THREADS * index
        self.everyone = slice(self.first, self.first + THREADS)
        self.one = slice(self.first, self.first + 1)
        self.loops: list[tuple[str, int]] = []
        self.recent: deque[tuple[Op, tuple[tuple[str, int], ...]]] = deque(maxlen=4)
        self.counts: Counter[str] = Counter()
        self.registers = cta.entry_registers
        self.wgmma = WgmmaPipe()
        self.open_stores = StoreGroup()
        self.store_groups: list[StoreGroup] = []
        self.blocked: Blocked | None = None
        self.done = False

    @property
    def actors(self) -> slice:
        """The threads that run the current op, as components of the clocks."""
        return self.one if self.elected else self.everyone

    def warp(self, i: int) -> slice:
        return slice(self.first + 2 * i, self.first + 2 * i + 2)

    def storing(self, i: int) -> slice:
        return slice(self.first + 2 * i, self.first + 2 * i + 1)

    def get(self, value: Value, op: Op) -> Any:
        held = self.values[value.name]
        if held is UNDEFINED:
            self.fail(op, f"{value} is read, but no wgmma has written it")
        return held

    def last_store(self, otherwise: Op) -> Op:
        groups = [self.open_stores, *(g for g in self.store_groups if not g.retired)]
        found = [s.accesses[0].op for group in groups for s in group.stores]
        return found[-1] if found else otherwise

    def note(self, op: Op) -> None:
        """Remember an op that others can see, for the trace."""
        self.recent.append((op, tuple(self.loops)))
        self.counts[type(op).__name__] += 1

    def where(self) -> str:
        return "".join(f", %{name} = {value}" for name, value in self.loops)

    def fail(
        self, op: Op, message: str, *, kind: str = "misuse", hint: str = "", extra: Op | None = None
    ) -> NoReturn:
        head = f"CTA {self.cta.index}, {self.name}{self.where()}: {message}"
        findings = [Finding(f"{head}\n  in {one_line(op)}", op.loc, hint)]
        if extra is not None:
            findings.append(Finding(f"the earlier access: {one_line(extra)}", extra.loc))
        raise SimulationError(kind, findings, self.cta.trace())

    def check(self, op: Op, told: str) -> None:
        """Fail if a barrier or a rule has answered with what is wrong."""
        if told:
            self.fail(op, told)

    def settle(self, op: Op, what: str, conflict: Conflict | None) -> None:
        if conflict is None:
            return
        if conflict.earlier is None:
            self.fail(op, f"{what}: {conflict.reason}", kind="race")
        earlier: Access = conflict.earlier
        message = (
            f"race: {what}, which {earlier.who} accessed by {op_word(earlier.op)}; "
            f"{conflict.reason}"
        )
        self.fail(op, message, kind="race", extra=earlier.op)

    def only_elected(self, op: Op) -> None:
        if not self.elected:
            self.fail(op, "must be run by one thread", hint="put it in an `elect`")

    def only_whole(self, op: Op) -> None:
        if self.elected:
            self.fail(op, "needs all threads of its warps", hint="take it out of the `elect`")

    def item(self, op: Op, shared: SharedItems, index: int, offset: int, size: int) -> int:
        """The address of `size` bytes in an item."""
        if not 0 <= index < shared.num:
            self.fail(op, f"item {index} of `{shared.label}`, which has {shared.num}")
        if offset < 0 or offset + size > shared.bytes:
            self.fail(
                op,
                f"bytes {offset} to {offset + size} of an item of `{shared.label}`, which has "
                f"{shared.bytes}",
            )
        return shared.offset + index * shared.bytes + offset

    def barrier(self, op: Op, barriers: Value, state: State) -> Barrier:
        held: list[Barrier] = self.values[barriers.name]
        if not 0 <= state.stage < len(held):
            self.fail(op, f"stage {state.stage} of `{held[0].label}`, which has {len(held)}")
        found = held[state.stage]
        self.check(op, found.unusable(self.actors))
        return found


def one_line(op: Op) -> str:
    return print_op(op).split("\n", 1)[0].removesuffix(" {")


def op_word(op: Op) -> str:
    return one_line(op).split(" = ")[-1].split("(", 1)[0]


def _line(op: Op, loops: tuple[tuple[str, int], ...]) -> str:
    line = f"{op.loc.line}: " if op.loc else ""
    return f"{line}{one_line(op)}" + "".join(f"  %{n}={v}" for n, v in loops)


def shape_of(value: Value) -> tuple[int, int] | None:
    """The shape of a fragment, None for a scalar."""
    if isinstance(value.type, Fragment):
        return value.type.rows, value.type.columns
    assert isinstance(value.type, Tile)
    return None
