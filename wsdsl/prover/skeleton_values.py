"""Which constants a PTX register may hold: enough to tell which barrier an address points to.

A register is a sum of others that LLVM did not define as sums (loop-carried ones, selects), each
times a number: `24568 * stage + (8 * stage + smem)` is known to be one multiple of the stage. Those
others have sets of constants, grown until nothing changes; a select on a comparison takes only what
satisfies it, which is what keeps a stage below the number of stages.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

BASE = 1 << 40
"""The address of SMEM, far from every other constant. It is aligned to ALIGNMENT."""
ALIGNMENT = 1024
MOST = 64
"""A set with more constants is taken for unknown."""
MOST_COMBINATIONS = 4096

# Whatever is defined: plain, under a predicate, in a vector, or with a predicate beside it.
DEFINITION = re.compile(
    r"^[ \t]*(@!?%?\w+[ \t]+)?([a-z][\w.:]*)[ \t]+"
    r"(%?[a-zA-Z_]\w*|\{[^}]*\})(?:\|%?\w+)?,[ \t]*([^;]*);",
    re.M,
)
CLUSTER = re.compile(r"\.reqnctapercluster (\d+)")
SCOPE = re.compile(r"^[ \t]*\{", re.M)
SMEM = re.compile(r"\.extern \.shared [^;]*?(\w+)\[\]")
ADDRESS = re.compile(r"\[\s*([%\w]+)\s*(?:\+\s*(-?\d+))?\s*\]")
WORD = re.compile(r"[^\s,{}\[\]]+")
NO_RESULT = ("st.", "stmatrix", "red.", "mbarrier", "cp.", "bar", "wgmma", "prefetch")

Atom = tuple[str, int]
"""A register, and the place of the definition that is read, or less than 0 for any of them: what it
holds where a block starts (-1 - the block's place)."""
Known = frozenset[int] | None


@dataclass(frozen=True)
class Sum:
    const: int
    terms: tuple[tuple[Atom, int], ...] = ()

    def plus(self, other: Sum, times: int = 1) -> Sum:
        terms = dict(self.terms)
        for atom, count in other.terms:
            terms[atom] = terms.get(atom, 0) + count * times
        kept = tuple((atom, count) for atom, count in terms.items() if count)
        return Sum(self.const + other.const * times, kept)

    def value(self, held: dict[Atom, int]) -> int:
        return self.const + sum(held[atom] * count for atom, count in self.terms)


@dataclass
class Definition:
    at: int
    op: str
    operands: str
    guarded: bool

    @cached_property
    def args(self) -> list[str]:
        """Split when asked for: few definitions are."""
        return WORD.findall(self.operands)


COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
BITWISE: dict[str, Callable[[int, int], int]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shr": operator.rshift,
    "min": min,
    "max": max,
}
COPIES = {"mov": 1, "cvt": 1, "cvta": 1, "mapa": 2}
"""Instructions that keep an offset (`mapa`: in another CTA), and their operands' number."""
SUMS = {"add": 2, "sub": 2, "shl": 2, "mul": 2, "mad": 3}
EXACT = {"b32", "u32", "s32", "b64", "u64", "s64", "lo", "wide", "to", "shared"} | {
    "shared::cta",
    "shared::cluster",
}


class Values:
    """`starts`: where blocks begin in the text, in order. `entries`: by a block's place the only
    one from which threads come to it, where that is so.
    """

    def __init__(self, text: str, starts: Sequence[int], entries: Mapping[int, int]) -> None:
        found = SMEM.search(text)
        self.smem = found[1] if found else ""
        cluster = CLUSTER.search(text)
        self.ranks = frozenset(range(int(cluster[1]) if cluster else 1))
        self.starts, self.entries = starts, entries
        self.scopes = [m.start() for m in SCOPE.finditer(text)]
        self.defined: dict[str, list[Definition]] = {}
        self.sums: dict[Atom, Sum] = {}
        self.sets: dict[Atom, Known] = {}
        self.settled = 0
        for m in DEFINITION.finditer(text):
            guard, op, result, args = m.groups()
            if op.startswith(NO_RESULT):
                continue
            if result[0] == "{":
                op = "vector"
            made = Definition(m.start(), op, args, guard is not None)
            for name in WORD.findall(result) if result[0] == "{" else (result,):
                self.defined.setdefault(self._name(name, made.at), []).append(made)

    def offsets(self, address: str, at: int) -> Known:
        """The offsets in SMEM that an operand `[register+constant]` at a place may have."""
        found = ADDRESS.search(address)
        if found is None:
            return None
        total = self._operand(found[1], at).plus(Sum(int(found[2] or 0)))
        values = self._solve(total)
        if not values or any(not BASE <= v < BASE + (1 << 20) for v in values):
            return None
        return frozenset(v - BASE for v in values)

    # Sums ----------------------------------------------------------------------------------------

    def _name(self, text: str, at: int) -> str:
        """Registers of inline PTX belong to their braces."""
        return text if text[0] == "%" else f"{text}/{bisect_right(self.scopes, at)}"

    def _operand(self, text: str, at: int) -> Sum:
        if text == self.smem:
            return Sum(BASE)
        try:
            return Sum(int(text, 0))
        except ValueError:
            return self._read(self._name(text, at), at)

    def _read(self, name: str, at: int) -> Sum:
        found = self._reached(name, at)
        if isinstance(found, Definition):
            return self._defined_by(name, found)
        return Sum(0, (((name, -found - 1), 1),))

    def definitions(self, text: str, at: int) -> list[Definition]:
        """What may have made the register that is read at a place."""
        name = self._name(text, at)
        found = self._reached(name, at)
        return [found] if isinstance(found, Definition) else self.defined.get(name, [])

    def _reached(self, name: str, at: int) -> Definition | int:
        """The definition that comes to a place, or the block where several meet."""
        found = self.defined.get(name, [])
        if len(found) == 1:
            return found[0]
        seen = set[int]()
        while True:
            passed = bisect_right(self.starts, at)
            block = self.starts[passed - 1] if passed else 0
            before = [d for d in found if block <= d.at < at]
            if before:
                return before[-1]
            # What it holds here it held at the only way to here; unless that goes in circles.
            if block not in self.entries or block in seen:
                return block
            seen.add(block)
            at = self.entries[block]

    def _defined_by(self, name: str, d: Definition) -> Sum:
        key = name, d.at
        if key not in self.sums:
            atom = Sum(0, ((key, 1),))
            self.sums[key] = atom  # met again only in a program that reads what it did not write
            self.sums[key] = (None if d.guarded else self._sum(d)) or atom
        return self.sums[key]

    def _sum(self, d: Definition) -> Sum | None:
        """None if the register is no sum of others."""
        kind, *form = d.op.split(".")
        if not set(form) <= EXACT:
            return None
        if kind in COPIES and len(d.args) == COPIES[kind]:
            return self._operand(d.args[0], d.at)
        if len(d.args) != SUMS.get(kind):
            return None
        x, y, *z = (self._operand(arg, d.at) for arg in d.args)
        if kind in ("add", "sub"):
            return x.plus(y, 1 if kind == "add" else -1)
        if x.terms and y.terms:
            return None
        if kind == "shl":
            return Sum(0).plus(x, 1 << y.const) if not y.terms and 0 <= y.const < 32 else None
        times, of = (y.const, x) if not y.terms else (x.const, y)
        return Sum(0).plus(of, times).plus(z[0] if z else Sum(0))

    # Sets ----------------------------------------------------------------------------------------

    def _solve(self, total: Sum) -> Known:
        for atom, _ in total.terms:
            self._set(atom)
        changed = True
        while changed:
            before, changed = len(self.sets), False
            # What has settled depends on nothing that came later.
            for atom in list(self.sets)[self.settled :]:
                new = self._held(atom)
                changed = changed or new != self.sets[atom]
                self.sets[atom] = new
            changed = changed or len(self.sets) > before
        self.settled = len(self.sets)
        return self._values(total)

    def _set(self, atom: Atom) -> Known:
        name, at = atom
        return self.sets.setdefault((name, max(at, -1)), frozenset())

    def _held(self, atom: Atom) -> Known:
        name, at = atom
        if name == "%cluster_ctarank":
            return self.ranks
        held = set[int]()
        found = [d for d in self.defined.get(name, ()) if at in (-1, d.at)]
        for d in found:
            # What a guarded definition leaves is any other one's.
            values = None if d.guarded and at >= 0 else self._result(d)
            if values is None:
                return None
            held |= values
        return frozenset(held) if found and len(held) <= MOST else None

    def _result(self, d: Definition) -> Known:
        total = self._sum(d)
        if total is not None:
            return self._values(total)
        kind = d.op.split(".")[0]
        if kind == "selp":
            return self._select(d)
        if kind in BITWISE and len(d.args) == 2:
            pairs = self._together([self._operand(arg, d.at) for arg in d.args])
            if pairs is None:
                return None
            made: set[int] = set()
            for x, y in pairs:
                low, high = min(x, y), max(x, y)
                added = kind == "or" and low < ALIGNMENT and not x & y
                if low < 0 or (high >= BASE // 2 and not added):
                    return None
                made.add(BITWISE[kind](x, y))
            return frozenset(made)
        return None

    def _select(self, d: Definition) -> Known:
        one, other = (self._operand(arg, d.at) for arg in d.args[:2])
        compared = self._comparison(d.args[2], d.at)
        if compared is not None:
            holds, x, y = compared
            found = self._together([one, other, x, y])
            if found is not None:
                return frozenset(a if holds(p, q) else b for a, b, p, q in found)
        first, second = self._values(one), self._values(other)
        return None if first is None or second is None else first | second

    def _comparison(self, name: str, at: int) -> tuple[Callable[[int, int], bool], Sum, Sum] | None:
        found = self.defined.get(self._name(name, at), [])
        if len(found) != 1 or found[0].guarded or not found[0].op.startswith("setp."):
            return None
        _, relation, *form = found[0].op.split(".")
        if relation not in COMPARED or form not in (["b32"], ["s32"]):
            return None
        x, y = (self._operand(arg, found[0].at) for arg in found[0].args[:2])
        return COMPARED[relation], x, y

    def _values(self, total: Sum) -> Known:
        found = self._together([total])
        return None if found is None else frozenset(value for (value,) in found)

    def _together(self, sums: Sequence[Sum]) -> Iterator[tuple[int, ...]] | None:
        """The values that these sums have at once."""
        atoms = list(dict.fromkeys(atom for held in sums for atom, _ in held.terms))
        sets: list[frozenset[int]] = []
        for atom in atoms:
            held = self._set(atom)
            if held is None:
                return None
            sets.append(held)
        if prod(map(len, sets)) > MOST_COMBINATIONS:
            return None
        choices = (dict(zip(atoms, values, strict=True)) for values in product(*sets))
        return (tuple(held.value(choice) for held in sums) for choice in choices)
