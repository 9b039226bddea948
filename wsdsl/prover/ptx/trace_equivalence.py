"""Programs whose letters are synchronizing events, and whether two of them mean the same.

A program's language, for threads that go the same ways, is every sequence of events along a path
from its start to its end. Its blocks, labels and loops do not matter: LLVM may
rotate, peel or copy them. Letters tell stages, parities and places as numbers, so that a state of a
program is a point in it and what its registers hold.

Pipelines advance independently: states are as many as the product of their lengths. So one
pipeline is looked at after the other, with all its positions; states that differ in others are one
state, and events on others tell their array alone. Registers share a pipeline if one is made of the
other, if one event tells both, or if events with both are the same one; those on which it depends
which way is gone are looked at with each pipeline. This leaves out which position of one
comes with which of another where the way is not known: each, by itself, is right on all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from typing import NamedTuple

from wsdsl.prover.ptx.sync_events import KINDS, PARITY, Alphabet, Letter, Origin, array

MOST = 1 << 14
"""States of a program that are looked at: one that counts without end has more."""


class EndlessError(Exception):
    """A program has too many states."""


Position = tuple[object, ...]
State = tuple[int, Position]
"""A point, and what the registers hold that matter from there on."""
States = frozenset[State]


@dataclass(frozen=True, eq=False)
class Told:
    """An event, where it comes from, and a register that tells something of it, if one does. A side
    makes one for all that are equal: many are looked up, and it is known by what it is.
    """

    letter: Letter
    origin: Origin
    told_by: int | None


Word = tuple[int, ...]
Accesses = frozenset[tuple[int, Origin]]
NONE: Accesses = frozenset()
Silent = list[tuple[State, Accesses]]
Read = tuple[int, Origin, int | None]
"""As `Told`, with the number of the event as far as a pipeline tells it."""


class Move(NamedTuple):
    """Events that follow each other in any case, and the state after them."""

    told: tuple[Told, ...]
    after: State


class Ways(NamedTuple):
    """From a state: the events that may come next, the states that come without one, and whether
    the path may end."""

    moves: list[Move]
    silent: list[State]
    ends: bool


class Paths(ABC):
    """The ways that some threads may go. The state (0, ()) is the start."""

    @abstractmethod
    def after(self, state: State) -> Ways: ...

    @abstractmethod
    def registers(self, point: int) -> Sequence[int]:
        """The registers whose values a state has there."""

    @abstractmethod
    def tied(self) -> Iterable[tuple[int, int]]:
        """Registers that are together."""

    def steering(self) -> Iterable[int]:
        """Registers that ways depend on, or events outside all pipelines."""
        return ()


@dataclass
class Moves:
    """With the same events: all ways to tell them, and the states that they lead to."""

    told: list[tuple[Read, ...]]
    after: States
    accesses: Accesses

    def origins(self, at: int) -> set[Origin]:
        return {told[at][1] for told in self.told}

    def told_by(self, at: int) -> set[int]:
        found = (told[at][2] for told in self.told)
        return {register for register in found if register is not None}


class ReadMove(NamedTuple):
    """As `Move`; accesses precede all events."""

    told: tuple[Read, ...]
    after: State
    accesses: Accesses = NONE


class ReadWays(NamedTuple):
    """As `Ways`."""

    moves: list[ReadMove]
    silent: Silent
    ends: bool


Next = tuple[dict[Word, Moves], bool, Accesses]
"""The moves that may come next, whether the path may end, and the accesses before that."""


class _Reader:
    """Reads many paths of a program at once, as far as the registers of one pipeline tell. A state
    within a move has a point less than 0."""

    def __init__(
        self, paths: Paths, side: int, rings: _Rings, ring: Register | None, alphabet: Alphabet
    ) -> None:
        self.paths, self.side, self.rings, self.ring = paths, side, rings, ring
        self.alphabet = alphabet
        self.within: list[ReadMove] = []
        self.points: dict[tuple[tuple[Read, ...], int], int] = {}
        self.kept: dict[int, list[int]] = {}
        self.first: dict[State, State] = {}
        self.read: dict[Told, Read] = {}
        self.kinds = set[int]()
        self.after, self.moves = cache(self._after), cache(self._read_moves)
        self.whole, self.cut = cache(self._whole), cache(self._cut)

    def _read(self, told: Told) -> Read:
        """Without facts of other pipelines."""
        found = self.read.get(told)
        if found is None:
            letter, name = told.letter, array(told.letter)
            letter = Letter(letter.kind) if letter.kind in KINDS else letter
            if name and self.rings.ring(name) != self.ring:
                detail = "" if letter.detail.startswith(PARITY) else letter.detail
                letter = letter._replace(detail=detail, barrier=name, to="")
            found = self.alphabet.number(letter), told.origin, told.told_by
            self.read[told] = found
            self.kinds |= {found[0]} if letter.kind in KINDS else set()
        return found

    def _one(self, state: State) -> State:
        """For all states that differ in other pipelines."""
        point, held = state
        kept = self.kept.get(point)
        if kept is None:
            kept = self.kept[point] = [
                i
                for i, register in enumerate(self.paths.registers(point))
                if self.rings.ring((self.side, register)) in (self.ring, self.rings.always)
            ]
        return self.first.setdefault((point, tuple([held[i] for i in kept])), state)

    def _after(self, state: State) -> ReadWays:
        if state[0] < 0:
            told, (point, _), _ = self.within[~state[0]]
            return self._parted([ReadMove(told, (point, state[1]))], [], False)
        moves, silent, ends = self.paths.after(state)
        read, one = self._read, self._one
        found = [ReadMove(tuple([read(x) for x in told]), one(after)) for told, after in moves]
        return self._parted(found, [(one(x), NONE) for x in silent], ends)

    def _parted(self, found: Iterable[ReadMove], silent: Silent, ends: bool) -> ReadWays:
        """Moves are cut before accesses that follow events."""
        moves = list[ReadMove]()
        for told, after, _ in found:
            own, first, last = NONE, 0, len(told)
            if not self.kinds.isdisjoint(numbers := [number for number, _, _ in told]):
                events = [number not in self.kinds for number in numbers]
                first = [*events, True].index(True)
                last = [*events, False].index(False, first)
                own = frozenset([(number, origin) for number, origin, _ in told[:first]])
            if first == len(told):
                silent.append((after, own))
            else:
                moves.append(ReadMove(told[first:last], self._within(told[last:], after), own))
        return ReadWays(moves, silent, ends)

    def _within(self, told: tuple[Read, ...], after: State) -> State:
        """The state with these events left."""
        if not told:
            return after
        key = told, after[0]
        if key not in self.points:
            self.points[key] = len(self.within)
            self.within.append(ReadMove(told, after))
        return ~self.points[key], after[1]

    def _read_moves(self, states: States) -> tuple[list[ReadMove], bool, Accesses]:
        todo, met = [*states], dict.fromkeys(states, NONE)
        while todo:
            if len(met) + len(self.first) > MOST:
                raise EndlessError
            state = todo.pop()
            for after, own in self.after(state).silent:
                before = met.get(after)
                if before is None or not met[state] | own <= before:
                    met[after] = met[state] | own | (before or NONE)
                    todo.append(after)
        ways = [(self.after(state), before) for state, before in met.items()]
        last = [before for way, before in ways if way.ends]
        found = [ReadMove(x, to, own | before) for way, before in ways for x, to, own in way.moves]
        return found, bool(last), NONE.union(*last)

    def _whole(self, states: States) -> Next | None:
        """By all events of each move; None where these begin alike, and are not the same."""
        found, ends, last = self.moves(states)
        made = _grouped(found)
        return (made, ends, last) if len({word[0] for word in made}) == len(made) else None

    def _cut(self, states: States, num: int) -> Next:
        """By at most this number of events of each move."""
        found, ends, last = self.moves(states)
        first = [ReadMove(told[:num], self._within(told[num:], x), own) for told, x, own in found]
        return _grouped(first), ends, last


def _grouped(moves: Iterable[ReadMove]) -> dict[Word, Moves]:
    found: dict[Word, list[ReadMove]] = {}
    for move in moves:
        found.setdefault(tuple([number for number, _, _ in move.told]), []).append(move)
    columns = {word: [*zip(*several, strict=True)] for word, several in found.items()}
    return {
        word: Moves([*told], frozenset(after), NONE.union(*accesses))
        for word, (told, after, accesses) in columns.items()
    }


@dataclass(frozen=True)
class Difference:
    """After the same events, one side may go on (or end) as the other cannot. `before` is what
    each side read last, and the maps are what may come next on each, with where it comes from.
    """

    before: tuple[set[Origin], set[Origin]]
    left: dict[Letter, set[Origin]]
    right: dict[Letter, set[Origin]]
    ends: tuple[bool, bool]


Met = tuple[Letter, frozenset[tuple[int, Origin]]]
"""An event as far as it was told, and where it comes from, each with its side."""
Register = tuple[int, int] | str
"""A side, and a register there; or an array of mbarriers."""


class _Rings:
    """Which registers are together."""

    always: Register = ""
    """With those that are looked at with each pipeline."""

    def __init__(self, sides: Sequence[Paths]) -> None:
        self.parents: dict[Register, Register] = {}
        for side, paths in enumerate(sides):
            for x, y in paths.tied():
                self.tie((side, x), (side, y))
            for x in paths.steering():
                self.tie((side, x), "")
        self.always = self.ring("")

    def ring(self, register: Register) -> Register:
        while register in self.parents:
            register = self.parents[register]
        return register

    def tie(self, x: Register, y: Register) -> None:
        one, other = self.ring(x), self.ring(y)
        if one != other:
            self.parents[one] = other


def difference(left: Paths, right: Paths, met: set[Met] | None = None) -> Difference | None:
    """None if both have one language, as far as each pipeline tells, else where their first events
    differ. All that were the same are added to `met`."""
    rings = _Rings((left, right))
    names = set[str]()
    found = _difference(left, right, rings, None, names, met)
    rings.always = rings.ring("")
    for ring in {rings.ring(name): None for name in sorted(names)}:
        found = found or _difference(left, right, rings, ring, names, met)
    return found


def _difference(
    left: Paths,
    right: Paths,
    rings: _Rings,
    ring: Register | None,
    names: set[str],
    met: set[Met] | None,
) -> Difference | None:
    """Hopcroft and Karp's test, on sets of states as discovered. Without a pipeline yet, finds
    out what is together, and the arrays' names."""
    alphabet = Alphabet()
    readers = [_Reader(x, side, rings, ring, alphabet) for side, x in enumerate((left, right))]
    start: States = frozenset({(0, ())})
    parents: dict[tuple[int, States], tuple[int, States]] = {}

    def root(node: tuple[int, States]) -> tuple[int, States]:
        while node in parents:
            node = parents[node]
        return node

    queue: deque[tuple[States, States, tuple[Moves, ...]]] = deque()
    queue.append((start, start, ()))
    while queue:
        a, b, before = queue.popleft()
        at, there = root((0, a)), root((1, b))
        if at == there:
            continue
        parents[at] = there
        come, came = [moves.origins(-1) for moves in before] or (set[Origin](),) * 2
        one, other = readers[0].whole(a), readers[1].whole(b)
        if one is not None and other is not None and _unlike(one, other):
            # Moves end where ways join, which may be elsewhere on each side.
            num = min([len(word) for word in (*one[0], *other[0])], default=1)
            one, other = readers[0].cut(a, num), readers[1].cut(b, num)
        if one is None or other is None or _unlike(one, other):
            one, other = readers[0].cut(a, 1), readers[1].cut(b, 1)
            if _unlike(one, other):
                shown, found = (
                    {alphabet.letter(word[0]): moves.origins(0) for word, moves in side[0].items()}
                    for side in (one, other)
                )
                return Difference((come, came), shown, found, (one[1], other[1]))
        accesses = [((), one[2], other[2])]
        accesses += [(x, one[0][x].accesses, moves.accesses) for x, moves in other[0].items()]
        for word, mine, yours in accesses:
            kinds = {kind for kind, _ in mine}
            if extra := {kind for kind, _ in yours if kind not in kinds}:
                found = {alphabet.letter(x): {at for kind, at in yours if kind == x} for x in extra}
                shown = {alphabet.letter(x): one[0][word].origins(0) for x in word[:1]}
                return Difference((come, came), shown, found, (not word, False))
        for word, mine in one[0].items():
            yours = other[0][word]
            if met is not None:
                for at, number in enumerate(word):
                    of_both = product((0,), mine.origins(at)), product((1,), yours.origins(at))
                    met.add((alphabet.letter(number), frozenset(chain(*of_both))))
            if ring is None:
                names |= _tie(rings, [alphabet.letter(x) for x in word], mine, yours)
            queue.append((mine.after, yours.after, (mine, yours)))
    return None


def _unlike(one: Next, other: Next) -> bool:
    if one[0].keys() != other[0].keys() or one[1] != other[1]:
        return True
    return any(word and min(word) < 0 for word in one[0])


def _tie(rings: _Rings, word: Sequence[Letter], mine: Moves, yours: Moves) -> set[str]:
    """The parts of an event are together, and belong to the array that it acts on."""
    found = set[str]()
    for at, letter in enumerate(word):
        tellers: list[Register] = [(0, of) for of in mine.told_by(at)]
        tellers += [(1, of) for of in yours.told_by(at)]
        if letter.barrier:
            found.add(letter.barrier)
        for teller in tellers:
            rings.tie(teller, letter.barrier)
    return found
