"""Automata whose letters are synchronising events, and whether two of them mean the same.

A graph's language, for one thread, is every sequence of events along a path from its start to its
end. Which blocks, labels and loops stand for it is no matter: LLVM may rotate, peel or copy them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from wsdsl.ir.op import Op

UNKNOWN = "?"
"""An attribute that could not be decided."""


class Letter(NamedTuple):
    """One event: the instruction, its immediates, and where in SMEM it acts."""

    kind: str
    detail: str = ""
    barrier: str = ""
    to: str = ""

    def __str__(self) -> str:
        shown = f"{self.kind} {self.detail}".rstrip()
        shown += f" on {self.barrier}" if self.barrier else ""
        return shown + (f" to {self.to}" if self.to else "")


Origin = Op | int | None
"""Where an event comes from: an op, or a line of the PTX."""


EVERYBODY = -1
EVERYWHERE = "everywhere"
"""Threads are bits of an int."""


@dataclass
class Graph:
    """Nodes, some of which read a letter; node 0 is the start, those in `ends` end a path. A path
    of a thread has only nodes that are for it.
    """

    letters: list[Letter | None] = field(default_factory=lambda: [None])
    origins: list[Origin] = field(default_factory=lambda: [None])
    threads: list[int] = field(default_factory=lambda: [EVERYBODY])
    successors: list[list[int]] = field(default_factory=lambda: [[]])
    ends: set[int] = field(default_factory=set[int])

    def add(
        self, letter: Letter | None = None, origin: Origin = None, threads: int = EVERYBODY
    ) -> int:
        self.letters.append(letter)
        self.origins.append(origin)
        self.threads.append(threads)
        self.successors.append([])
        return len(self.letters) - 1

    def join(self, before: int, after: int) -> None:
        self.successors[before].append(after)

    def named(self) -> Iterable[Letter]:
        return (letter for letter in self.letters if letter is not None)

    def without(self, unknown: set[tuple[str, str]]) -> Graph:
        """The same graph without these attributes, (kind of event, name of the field)."""
        letters = [
            letter
            and letter._replace(**{name: "" for kind, name in unknown if kind == letter.kind})
            for letter in self.letters
        ]
        return Graph(letters, self.origins, self.threads, self.successors, self.ends)


States = frozenset[int]


class Reader:
    """Reads a graph as one thread does, many paths at once."""

    def __init__(self, graph: Graph, thread: int) -> None:
        self.graph, self.bit = graph, 1 << thread
        self._after: dict[int, tuple[tuple[int, ...], bool]] = {}
        self._moves: dict[States, tuple[dict[Letter, States], bool]] = {}

    def _reach(self, node: int) -> tuple[tuple[int, ...], bool]:
        """The events that may come next after a node, and whether the path may end."""
        if node not in self._after:
            letters, ends, threads = self.graph.letters, self.graph.ends, self.graph.threads
            seen, todo, found, end = set[int](), [node], list[int](), node in ends
            while todo:
                for after in self.graph.successors[todo.pop()]:
                    if after not in seen and threads[after] & self.bit:
                        seen.add(after)
                        if letters[after] is not None:
                            found.append(after)
                        else:
                            todo.append(after)
                            end = end or after in ends
            self._after[node] = tuple(found), end
        return self._after[node]

    def moves(self, states: States) -> tuple[dict[Letter, States], bool]:
        if states not in self._moves:
            found: dict[Letter, set[int]] = {}
            ends = False
            for state in states:
                following, end = self._reach(state)
                ends = ends or end
                for node in following:
                    letter = self.graph.letters[node]
                    assert letter is not None
                    found.setdefault(letter, set()).add(node)
            self._moves[states] = {a: frozenset(nodes) for a, nodes in found.items()}, ends
        return self._moves[states]


@dataclass(frozen=True)
class Difference:
    """After the same events, one side may go on (or end) as the other can not. `before` is what
    each side read last, and the maps are what may come next on each.
    """

    thread: int
    before: tuple[States, States]
    left: dict[Letter, States]
    right: dict[Letter, States]
    ends: tuple[bool, bool]


def difference(left: Graph, right: Graph, num_threads: int) -> Difference | None:
    """None if both have one language for every thread, else where their first events differ."""
    masks = {*left.threads, *right.threads} - {EVERYBODY}
    # Threads for which the same nodes are have the same languages.
    kinds: dict[tuple[int, ...], int] = {}
    for thread in range(num_threads):
        kinds.setdefault(tuple(mask >> thread & 1 for mask in masks), thread)
    for thread in kinds.values():
        found = _difference(left, right, thread)
        if found is not None:
            return found
    return None


def _difference(left: Graph, right: Graph, thread: int) -> Difference | None:
    """Hopcroft and Karp's test, on sets of states as they are met."""
    readers = Reader(left, thread), Reader(right, thread)
    start: States = frozenset((0,))
    parents: dict[tuple[int, States], tuple[int, States]] = {}

    def root(node: tuple[int, States]) -> tuple[int, States]:
        while node in parents:
            node = parents[node]
        return node

    queue: deque[tuple[States, States]] = deque([(start, start)])
    while queue:
        a, b = queue.popleft()
        one, other = root((0, a)), root((1, b))
        if one == other:
            continue
        parents[one] = other
        (moves_a, end_a), (moves_b, end_b) = readers[0].moves(a), readers[1].moves(b)
        if moves_a.keys() != moves_b.keys() or end_a != end_b:
            return Difference(thread, (a, b), moves_a, moves_b, (end_a, end_b))
        queue.extend((after, moves_b[letter]) for letter, after in moves_a.items())
    return None
