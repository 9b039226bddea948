"""The abstract machine: the facts of a kernel at one moment, for all sizes.

Time is not modelled, knowledge is. Everything that must be over before something else begins is an
*event*, one bit. Each class of threads, and each barrier's phase, has a mask of events: those that
surely happened before what it does next. An arrival hands its mask to the phase, a wait takes what
the phase was handed. An access is free of races if the events it depends on are in the mask of who
makes it, in every order of the run: so one order represents all
(docs/prover.md has the argument).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cache, reduce
from operator import attrgetter, or_
from typing import Any, Protocol, Self

from wsdsl.ir.op import Op
from wsdsl.prover.failure import Failure, Party, Undecided
from wsdsl.prover.machine.instructions import BLOCKED, SEEN, Instruction
from wsdsl.prover.machine.model import Model
from wsdsl.prover.machine.symbolic_terms import Term, is_test, of_any_iteration, of_data
from wsdsl.prover.machine.visited import Visited

WARPS = ((0, 1), (2, 3), (4, 5), (6, 7))
"""Classes of threads in a warpgroup: of each warp its first thread, and the others. All go the same
way, but each warp has other bytes, and sees its own."""
CLASSES = 2 * len(WARPS)
ELECTED, ALL = (0,), tuple(range(CLASSES))
FIRST_LANES = tuple(first for first, _ in WARPS)
NOTHING_STORED = (0,) * len(WARPS)
"""The thread of each warp that starts TMA stores, and that arrives for the warp."""


@dataclass(frozen=True, slots=True)
class StageParity:
    """A pipeline state."""

    stage: int
    parity: int


@dataclass(frozen=True, slots=True)
class Registers:
    """An accumulator's registers, by number; SSA values that share them are equal."""

    number: int


@cache
def _fields_of(cls: type[Any]) -> Callable[[object], tuple[Any, ...]]:
    return attrgetter(*[f.name for f in fields(cls)])


class Copied:
    """Base of dataclasses whose copies share what their fields hold."""

    __slots__ = ()

    def copy(self) -> Self:
        return type(self)(*_fields_of(type(self))(self))


@dataclass(slots=True)
class Group(Copied):
    """wgmmas of one commit group: events that are published when it retires, and what it uses. Or
    stores to tensor memory, which may still be `open` during loads.
    """

    events: int = 0
    registers: tuple[int, ...] = ()
    fragments: tuple[tuple[str, Op], ...] = ()
    passed: int = 0
    op: Op | None = None
    open: bool = False


@dataclass(slots=True)
class Agent:
    """A warpgroup: where it is, what it holds and what its classes of threads know.

    `did` are events that are complete when all of its threads have come this far: no class sees
    them by itself, but a thread that hears from all does; `met` are those that were when the
    threads of each warp last met, which a thread that hears from all warps sees. `next` is where it
    goes once the instruction at `pc` has run: a jump sets it, whether or not it jumps to
    itself.
    """

    index: int
    cta: int
    rank: int
    partition: int
    registers: int
    pc: int = 0
    next: int = 0
    slots: list[Any] = field(default_factory=list[Any])
    frames: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    counts: dict[Any, int] = field(default_factory=dict[Any, int])
    know: list[int] = field(default_factory=lambda: [0] * CLASSES)
    did: int = 0
    met: int = 0
    open: Group = field(default_factory=Group)
    groups: list[Group] = field(default_factory=list[Group])
    unfenced: frozenset[int] = frozenset()
    unwritten: frozenset[int] = frozenset()
    stores: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    open_stores: tuple[int, ...] = NOTHING_STORED
    began_stores: bool = False
    named: int = -1
    at: tuple[int, int] = (0, 0)
    ended: bool = False
    stale: int = 0
    """Whether it has waited since its last fence of TMEM: see `STALE`."""

    def copy(self) -> Agent:
        made = Agent(*_fields_of(Agent)(self))
        made.slots, made.frames = self.slots.copy(), self.frames.copy()
        made.counts, made.know = self.counts.copy(), self.know.copy()
        made.open, made.groups = self.open.copy(), [g.copy() for g in self.groups]
        made.stores = self.stores.copy()
        return made

    def fail(
        self, kind: str, op: Op, message: str, earlier: Party | None = None, hint: str = ""
    ) -> Failure:
        return Failure(kind, message, Party(self.index, op), earlier, hint)


def union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def known_to_some(agent: Agent) -> int:
    """Events that at least one of its threads has seen."""
    a, b, c, d, e, f, g, h = agent.know
    return a | b | c | d | e | f | g | h


def known_to_all(agent: Agent) -> int:
    a, b, c, d, e, f, g, h = agent.know
    return a & b & c & d & e & f & g & h


@dataclass(slots=True)
class Barrier(Copied):
    """An mbarrier, a named barrier, or the barrier of a CTA or cluster.

    `gathered` is what the arrivals of this phase knew, `completed` what those of earlier ones did.
    `done` and `before` are the events of the last completion and the one before it. `passed` are
    the waits since the last completion: the next one must come after them. `remote` are arrivals of
    other CTAs and of products, which must be over before its own one ends. `there` are the agents,
    as bits, that have come to a round of whole warpgroups.
    """

    arrivals: int
    phase: int = 0
    pending: int = 0
    tx: int = 0
    gathered: int = 0
    completed: int = 0
    done: int = 0
    before: int = 0
    passed: int = 0
    waiters: tuple[Party, ...] = ()
    initialised: int = 0
    fenced: int = 0
    remote: int = 0
    there: int = 0


@dataclass(slots=True)
class Span:
    """Bytes [start, end) of an item: the last write and the reads since.

    `write` is who must have finished, `shown` the proxy fences that must have followed. Spans are
    never changed, but replaced.
    """

    start: int
    end: int
    write: int = 0
    shown: int = 0
    writer: Party | None = None
    reads: tuple[tuple[Any, int, Party], ...] = ()
    written: bool = False

    def with_reads(self, reads: tuple[tuple[Any, int, Party], ...]) -> Span:
        return Span(self.start, self.end, self.write, self.shown, self.writer, reads, self.written)

    def part(self, start: int, end: int) -> Span:
        return Span(start, end, self.write, self.shown, self.writer, self.reads, self.written)


@dataclass(frozen=True, slots=True)
class Iterations:
    """One run of a loop: which, its bounds, and whether this is its first iteration (None:
    forgotten)."""

    signature: Any
    start: Term
    stop: Term
    step: Term
    first: bool | None


MADE, HELD = "made", "held"
ENDED = 0
"""The successor of the last iteration of a loop."""
NOBODY = 0
"""The iteration that loops are in which are in no other."""


class Tracer(Protocol):
    """Runs the instructions of a machine in its stead, and remembers."""

    def step(self, m: Machine, a: Agent, i: Instruction) -> int: ...


Chosen = Callable[["Machine", Mapping[Term, Sequence[Agent]]], Term]
"""Which of the open questions, by who asks, is decided first."""


class Machine:
    """All agents, barriers and memory of one cluster (or group of CTAs), and what was decided."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.agents: list[Agent] = []
        self.barriers: list[Barrier] = []
        self.named: dict[tuple[int, int], Barrier] = {}
        self.memory: dict[tuple[int, int, int], tuple[Span, ...]] = {}
        self.pool: list[int] = []
        self.iterations: dict[int, Iterations] = {}
        self.following: dict[int, int] = {}
        self.loops: dict[Any, int] = {}
        self.entered: dict[Any, int] = {}
        self.facts: dict[Term, bool] = {}
        self.each_iteration = False
        """Is what no iteration is named in decided for each iteration anew?"""
        self.looks = ""
        """Is it only looked whether something is decided, where a test is MADE or HELD?"""
        self.next_event = 1
        self.next_iteration = 1
        self.next_registers = 0
        self.waits = 0
        self.phases = 0
        self.unshown: list[tuple[int, int, int]] = []
        self.steps = 0
        self.trace: Tracer | None = None
        self.running: Agent | None = None
        self.visited = Visited()
        """Of all ways together: copies share it."""

    def copy(self) -> Machine:
        made = copy(self)
        made.running, made.looks = None, ""
        made.agents = [a.copy() for a in self.agents]
        made.barriers = [b.copy() for b in self.barriers]
        made.named = {k: b.copy() for k, b in self.named.items()}
        made.memory = self.memory.copy()
        made.pool = self.pool.copy()
        made.iterations, made.following = self.iterations.copy(), self.following.copy()
        made.loops, made.entered = self.loops.copy(), self.entered.copy()
        made.facts, made.unshown = self.facts.copy(), self.unshown.copy()
        return made

    # Events ---------------------------------------------------------------------------------------

    def event(self) -> int:
        """A new event, that no agent has seen yet."""
        made = self.next_event
        self.next_event = made << 1
        return made

    def happened(self, agent: Agent, classes: tuple[int, ...]) -> tuple[int, ...]:
        """An event for each class, that the class has seen from now on."""
        made: list[int] = []
        for c in classes:
            event = self.event()
            agent.know[c] |= event
            made.append(event)
        return tuple(made)

    def everything(self, agent: Agent) -> int:
        """Events seen by a thread that hears from all threads of the warpgroup."""
        return known_to_some(agent) | agent.did

    def decide(self, atom: Term) -> bool:
        """Does the atom hold? Where that is open, both ways are followed."""
        agent = self.running
        if agent is not None:
            self._asked(atom, agent)
        held = self.facts.get(atom)
        if held is None and agent is not None and self.each_iteration and of_data(atom):
            test, self.model.decided_anew = atom, True
            for frame in agent.frames:
                if frame[0] == "open" and held is None:
                    atom = ("in", ("index", frame[1]), test)
                    held = self.facts.get(atom)
        if held is None:
            raise Undecided(atom)
        return held

    def _asked(self, test: Term, agent: Agent) -> None:
        """Not of a loop that begins: loops that others have begun are recorded."""
        model, place, test = self.model, (agent.partition, agent.pc), of_any_iteration(test)
        code = model.codes[agent.partition]
        i = code.instructions[agent.pc]
        if self.looks == MADE:
            model.made_at[test].add(place)
        elif not self.looks and i.signature < 0:
            model.asked_at[test].add(place)
            held = ((slot, agent.slots[slot]) for slot in i.uses)
            if any(type(x) is tuple and (at in code.constant or not is_test(x)) for at, x in held):
                model.made_at[test].add(place)

    def turn(self, agent: Agent) -> float:
        """Of the work loop, in which an agent is that hands sums on: later ones have larger
        numbers.
        """
        first, last, _ = self.model.work.get(agent.partition, (0, 0, 0))
        if agent.ended or agent.pc >= last:
            return math.inf
        return agent.frames[0][1] if agent.pc > first else -math.inf

    def place(self, agent: Agent) -> tuple[float, bool]:
        """The iteration, and whether the agent has arrived in it."""
        _, _, arrived = self.model.work.get(agent.partition, (0, 0, 0))
        return self.turn(agent), agent.pc >= arrived

    # Running --------------------------------------------------------------------------------------

    def run(self, chosen: Chosen) -> bool:
        """Run to the end; False if no agent can go on. Raises Undecided, of what is `chosen` among
        all that is asked, where the way forks.

        Everybody goes as far as is decided before anything is: the partitions are then close
        together, and there are few states to tell apart.
        """
        codes, visited = self.model.codes, self.visited
        order = self.agents[::-1]
        while True:
            undecided: dict[Term, list[Agent]] = {}
            for agent in order:
                if agent.ended:
                    continue
                instructions = codes[agent.partition].instructions
                seen, self.running = False, agent
                while not agent.ended:
                    i = instructions[agent.pc]
                    agent.next = agent.pc + 1
                    try:
                        outcome = (
                            i.run(self, agent, i)
                            if self.trace is None
                            else self.trace.step(self, agent, i)
                        )
                    except Undecided as open_:
                        visited.ask(i, agent.slots)
                        undecided.setdefault(open_.atom, []).append(agent)
                        break
                    if outcome == BLOCKED:
                        break
                    self.steps += 1
                    visited.ran.add(i)
                    if i.target >= 0:
                        visited.went.setdefault(i, set()).add(agent.next)
                    agent.pc = agent.next
                    seen |= outcome == SEEN
                if seen or agent.ended:
                    break
            else:
                if undecided:
                    raise Undecided(chosen(self, undecided))
                return all(a.ended for a in self.agents)
