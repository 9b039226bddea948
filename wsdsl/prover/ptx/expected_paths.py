"""The graph of a SCHEDULED kernel's events, and all ways through it that threads may go, with the
stages and parities as they have them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from wsdsl.ir.op import Op, Value
from wsdsl.lazy import cached_property
from wsdsl.prover.ptx.sync_events import EVERYBODY, PARITY, UNKNOWN, Letter, threads_told
from wsdsl.prover.ptx.trace_equivalence import Move, Paths, Position, State, Told, Ways

NOWHERE = -(1 << 20), 0
"""The position of a state that no op set."""
TMEM = 1 << 24
"""Where tensor memory begins: behind SMEM, and no lane's address carries into it."""
HALVES = 1 << 40
"""Where low halves of descriptors begin: after all of memory."""
LINE = 8
"""Bytes of an mbarrier."""

Member = tuple[int, int]
"""A thread, and the rank of its CTA."""
ByThread = Callable[[int, int], int | None]
"""A number, if it is known, of a thread in a CTA."""
Env = dict[Value, tuple[int, tuple[int, ...]]]
"""The terms of a pipeline state: the number of one that is held, or less than 0 for the parity
that it begins with; and the steps from there, in pipelines of this number of stages."""


@dataclass(frozen=True)
class Items:
    """`num` mbarriers, the first one at `start` in SMEM."""

    name: str
    start: int
    num: int


@dataclass
class Places:
    """Where SMEM has mbarriers, and who uses it."""

    num_threads: int = 0
    ranks: int = 1
    barriers: dict[Value, Items] = field(default_factory=dict[Value, Items])
    words: set[int] = field(default_factory=set[int])  # of addresses of tensor memory
    operands: dict[int, str] = field(default_factory=dict[int, str])  # by the descriptor's place

    def names(self) -> dict[int, str]:
        return self.operands | {
            items.start + LINE * i: f"{items.name}[{i}]"
            for items in self.barriers.values()
            for i in range(items.num)
        }


def parity_of(parity: int) -> str:
    return f"{PARITY}{parity}"


def place_at(offset: int) -> str:
    if offset >= HALVES:
        return f"the descriptor {offset - HALVES:#x}"
    if offset >= TMEM:
        return f"TMEM at lane {offset - TMEM >> 16}, column {offset & 0xFFFF}"
    return f"SMEM at {offset}"


def each(told: Sequence[str]) -> str:
    """Facts about several threads."""
    return told[0] if len(set(told)) == 1 else " / ".join(told)


def of_warps(held: Sequence[int | None]) -> ByThread:
    return lambda tid, _: held[tid // 32]


@dataclass(frozen=True)
class Fill:
    """The operands of an event, by the states at its time. `further`: bytes that each
    thread adds to a place. `cta`: in whose SMEM it acts, or the mask of these CTAs. `number`: the
    named barrier.
    """

    barriers: Items | None = None
    state: Value | None = None
    parity: bool = False
    start: int | None = None
    stride: int = 0
    further: ByThread = lambda _tid, _rank: 0
    cta: ByThread | None = None
    number: ByThread | None = None

    def fill(self, letter: Letter, position: tuple[int, int], members: Sequence[Member]) -> Letter:
        stage, parity = position
        if self.barriers is not None:
            # States of other pipelines than the barriers' name places that those do not have.
            letter = letter._replace(barrier=f"{self.barriers.name}[{stage}]")
        if self.parity:
            letter = letter._replace(detail=parity_of(parity))
        if self.start is not None:
            place = self.start + self.stride * stage
            letter = letter._replace(to=_told(self.further, members, lambda x: place_at(place + x)))
        if self.cta:
            letter = letter._replace(cta=_told(self.cta, members, str))
        if self.number:
            letter = letter._replace(number=_told(self.number, members, str))
        return letter


def _told(of: ByThread, members: Sequence[Member], shown: Callable[[int], str]) -> str:
    return each([UNKNOWN if (x := of(*member)) is None else shown(x) for member in members])


@dataclass(frozen=True)
class Change:
    """Of states: (what is set, what it becomes, number of stages), all at once."""

    moves: tuple[tuple[Value, Value | int, int], ...] = ()

    def apply(self, env: Env) -> Env:
        made: Env = {}
        for into, of, num in self.moves:
            if isinstance(of, int):
                made[into] = -1 - of, ()
            elif of in env:  # else it is not read again
                source, nums = env[of]
                made[into] = source, (*nums, num) if num else nums
        return env | made


@cache
def moved(position: tuple[int, int], nums: tuple[int, ...]) -> tuple[int, int]:
    """A stage and a parity after steps in pipelines of this number of stages."""
    stage, parity = position
    for num in nums:
        stage, parity = (0, 1 - parity) if stage + 1 == num else (stage + 1, parity)
    return stage, parity


@dataclass
class Skeleton:
    """Nodes for some threads (bits of an int) alone, whose letters lack stages and parities. Node 0
    is the start, that in `end` ends a path."""

    letters: list[Letter | None] = field(default_factory=lambda: [None])
    origins: list[Op | None] = field(default_factory=lambda: [None])
    successors: list[list[int]] = field(default_factory=lambda: [[]])
    threads: list[int] = field(default_factory=lambda: [EVERYBODY])
    fills: dict[int, Fill] = field(default_factory=dict[int, Fill])
    changes: dict[int, Change] = field(default_factory=dict[int, Change])
    end: int = -1

    def node(
        self, letter: Letter | None = None, origin: Op | None = None, threads: int = EVERYBODY
    ) -> int:
        self.letters.append(letter)
        self.origins.append(origin)
        self.successors.append([])
        self.threads.append(threads)
        return len(self.letters) - 1

    def join(self, before: int, after: int) -> None:
        self.successors[before].append(after)

    @cached_property
    def ways(self) -> set[int]:
        """The threads that go some way."""
        return {threads for node, threads in enumerate(self.threads) if self.is_way(node)}

    def is_way(self, node: int) -> bool:
        """Whether threads outside a node's set cannot pass it."""
        letter = self.letters[node]
        return letter is None or letter.kind == "elect.sync"

    @cached_property
    def joins(self) -> list[bool]:
        """Where ways join without an event."""
        count = Counter(after for several in self.successors for after in several)
        return [letter is None and count[i] > 1 for i, letter in enumerate(self.letters)]

    @cached_property
    def index(self) -> dict[Value, int]:
        """All states."""
        found = dict[Value, None]()
        for change in self.changes.values():
            for into, of, _ in change.moves:
                found |= {x: None for x in (into, of) if isinstance(x, Value)}
        for fill in self.fills.values():
            found |= {} if fill.state is None else {fill.state: None}
        return {value: i for i, value in enumerate(found)}

    @cached_property
    def asked(self) -> list[list[Value]]:
        """The states that are asked for after a node."""
        found: list[set[Value]] = [set() for _ in self.letters]
        changed = True
        while changed:
            changed = False
            for node in range(len(found) - 1, -1, -1):
                held = set[Value]()
                for after in self.successors[node]:
                    change, fill = self.changes.get(after, Change()), self.fills.get(after)
                    made = {into: of for into, of, _ in change.moves}
                    before = (made.get(value, value) for value in found[after])
                    held |= {value for value in before if isinstance(value, Value)}
                    if fill is not None and fill.state is not None:
                        held.add(fill.state)
                changed = changed or held != found[node]
                found[node] = held
        return [sorted(held, key=self.index.__getitem__) for held in found]


Source = tuple[int, tuple[int, ...]]
"""As in `Env`."""


@dataclass(frozen=True)
class Exit:
    """A way from a node: events (a node each, and the position that fills its letter) up to where
    ways part or join."""

    node: int
    events: tuple[tuple[int, Letter, Source | None], ...]
    held: tuple[Source, ...]


class KernelPaths(Paths):
    """Of threads (`everybody`, as bits) that run the same nodes."""

    def __init__(self, skeleton: Skeleton, everybody: int, members: Sequence[Member]) -> None:
        self.skeleton, self.everybody, self.members = skeleton, everybody, members
        self.exits: dict[int, tuple[list[Exit], bool]] = {}
        self.filled: dict[tuple[int, tuple[int, int]], Told] = {}

    def registers(self, point: int) -> Sequence[int]:
        return [self.skeleton.index[value] for value in self.skeleton.asked[point]]

    def tied(self) -> Iterable[tuple[int, int]]:
        for change in self.skeleton.changes.values():
            for into, of, _ in change.moves:
                if isinstance(of, Value):
                    yield self.skeleton.index[into], self.skeleton.index[of]

    def after(self, state: State) -> Ways:
        node, positions = state
        if node == 0:
            positions = (NOWHERE,) * len(self.skeleton.asked[0])
        if node not in self.exits:
            self.exits[node] = self._find_exits(node)
        exits, ends = self.exits[node]
        moves, silent = list[Move](), list[State]()
        for way in exits:
            after = way.node, tuple([_at(positions, *of) for of in way.held])
            if way.events:
                moves.append(Move(tuple([self._told(positions, *x) for x in way.events]), after))
            else:
                silent.append(after)
        return Ways(moves, silent, ends)

    def _told(self, positions: Position, node: int, letter: Letter, source: Source | None) -> Told:
        position = (0, 0) if source is None else _at(positions, *source)
        key = node, position
        if key not in self.filled:
            told_by = None
            if (fill := self.skeleton.fills.get(node)) is not None:
                letter = fill.fill(letter, position, self._who(node))
                told_by = None if fill.state is None else self.skeleton.index[fill.state]
            self.filled[key] = Told(letter, node, told_by)
        return self.filled[key]

    def _who(self, node: int) -> list[Member]:
        threads = self.skeleton.threads[node]
        return [member for member in self.members if threads >> member[0] & 1]

    def _find_exits(self, node: int) -> tuple[list[Exit], bool]:
        of, found = self.skeleton, list[Exit]()
        start: Env = {value: (i, ()) for i, value in enumerate(of.asked[node])}
        todo = [(node, start, tuple[tuple[int, Letter, Source | None], ...]())]
        ends, begins = False, True
        while todo:
            now, env, events = todo.pop()
            after = of.successors[now]
            following = [x for x in after if of.threads[x] & self.everybody or not of.is_way(x)]
            parts = len(following) != 1 or now == of.end
            if not begins and (of.joins[now] or (events and parts)):
                held = tuple([env[value] for value in of.asked[now]])
                found.append(Exit(now, events, held))
                continue
            ends, begins = ends or now == of.end, False
            for after in following:
                there = of.changes.get(after, Change()).apply(env)
                letter, some = of.letters[after], of.threads[after] & self.everybody
                more = events
                if letter is not None and some:
                    letter = letter._replace(threads=threads_told(some, self.everybody))
                    fill = of.fills.get(after)
                    source = None if fill is None or fill.state is None else there[fill.state]
                    more = *events, (after, letter, source)
                todo.append((after, there, more))
        return found, ends


def _at(positions: Position, source: int, nums: tuple[int, ...]) -> tuple[int, int]:
    at = (0, -1 - source) if source < 0 else positions[source]
    return moved(at, nums)  # type: ignore[arg-type]
