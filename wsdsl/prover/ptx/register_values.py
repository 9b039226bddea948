"""The definitions of PTX registers, and what their instructions compute.

Unknown instructions make unknown values: a register that depends on one is
undecided, and the check says so.
"""

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from wsdsl.ir.integers import ON_INTEGERS
from wsdsl.ir.ops import COMPARISONS
from wsdsl.lazy import cached_property

BASE = 9 * 1024
"""The address of SMEM: no multiple of more than its alignment, and no place in it is as small."""
# All definitions: plain, under a predicate, in a vector, or with a second predicate.
DEFINITION = re.compile(
    r"^[ \t]*(@!?%?\w+[ \t]+)?([a-z][\w.:]*)[ \t]+"
    r"(%?[a-zA-Z_]\w*|\{[^}]*\})(?:\|%?\w+)?,[ \t]*([^;]*);",
    re.M,
)
SCOPE = re.compile(r"^[ \t]*\{", re.M)
SMEM = re.compile(r"\.extern \.shared [^;]*?(\w+)\[\]")
ADDRESS = re.compile(r"\[\s*([%\w]+)\s*(?:\+\s*(-?\d+))?\s*\]")
WORD = re.compile(r"[^\s,{}\[\]]+")
NO_RESULT = (
    *("st.", "stmatrix", "red.", "mbarrier", "cp.", "bar", "wgmma", "prefetch"),
    *("brx", "tcgen05.dealloc"),
)


@dataclass
class Definition:
    at: int
    op: str
    operands: str
    guard: str

    @cached_property
    def args(self) -> list[str]:
        """Split when asked for: few definitions are."""
        return WORD.findall(self.operands)


FOLDED: dict[str, Callable[..., int]] = {
    **ON_INTEGERS,
    "or": operator.or_,
    "shl": operator.lshift,
    "where": lambda cond, x, y: x if cond else y,
}
"""The functions of a kernel's scalars."""
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


class Values:
    """`starts`: where blocks begin in the text, in order. `entries`: by a block's place those from
    which threads come to it.
    """

    def __init__(self, text: str, starts: Sequence[int], entries: Mapping[int, list[int]]) -> None:
        found = SMEM.search(text)
        self.smem = found[1] if found else ""
        self.starts, self.entries = starts, entries
        self.definitions, self.operand = cache(self._definitions), cache(self._operand)
        self.scopes = [m.start() for m in SCOPE.finditer(text)]
        self.defined: dict[str, list[Definition]] = {}
        for m in DEFINITION.finditer(text):
            guard, op, result, args = m.groups()
            if op.startswith(NO_RESULT):
                continue
            if result[0] == "{":
                op = "vector"
            made = Definition(m.start(), op, args, guard.strip()[1:] if guard else "")
            for name in WORD.findall(result) if result[0] == "{" else (result,):
                self.defined.setdefault(self.name(name, made.at), []).append(made)

    def name(self, text: str, at: int) -> str:
        """Registers of inline PTX belong to their braces."""
        return text if text[0] == "%" else f"{text}/{bisect_right(self.scopes, at)}"

    def _operand(self, text: str, at: int) -> tuple[int | None, str, int | None]:
        """The number that a text is, else the register, and its value where nothing defines it."""
        name = self.name(text, at)
        # The predicate that `elect.sync` sets has no definition.
        elected = 1 if name[:2] == "%p" and name not in self.defined else None
        return self.constant(text), name, elected

    def constant(self, text: str) -> int | None:
        if text == self.smem:
            return BASE
        try:
            return int(text, 0) % (1 << 64)
        except ValueError:
            return None

    def constant_at(self, text: str, at: int) -> int | None:
        """The number that is read at a place: written there, or moved to the register before. LLVM
        counts on from a number that others read, too."""
        value = self.constant(text)
        if value is not None:
            return value
        made = self.definitions(text, at)
        plain = len(made) == 1 and made[0].op.startswith("mov.") and not made[0].guard
        return self.constant(made[0].operands.strip()) if plain else None

    def _definitions(self, text: str, at: int) -> list[Definition]:
        """The definitions that may reach a read of a register; none if it may be unset."""
        found = self.defined.get(self.name(text, at), [])
        todo, seen, made = [at] * bool(found), {at}, dict[int, Definition]()
        while todo:
            at = todo.pop()
            passed = bisect_right(self.starts, at)
            block = self.starts[passed - 1] if passed else 0
            before = [d for d in found if block <= d.at < at]
            if before:
                made[before[-1].at] = before[-1]
            elif block not in self.entries:
                return []
            else:
                todo += [place for place in self.entries[block] if place not in seen]
                seen.update(todo)
        return [*made.values()]


def _signed(x: int, bits: int) -> int:
    x %= 1 << bits
    return x - (1 << bits) if x >> bits - 1 else x


def _divided(x: int, y: int) -> int:
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


BINARY: dict[str, Callable[[int, int], int]] = {
    **{fn: getattr(operator, fn) for fn in ("add", "sub", "xor")},
    "and": operator.and_,
    "or": operator.or_,
    "min": min,
    "max": max,
    "div": _divided,
    "rem": lambda x, y: x - y * _divided(x, y),
    "shl": lambda x, y: x << min(y, 64),
    "shr": lambda x, y: x >> min(y, 64),
}
FORM = re.compile(r"([bus])(16|32|64)$")
Computed = Callable[[Sequence[int]], int]


@cache
def computed(op: str) -> Computed | None:
    """The function of an instruction on known operands; None of one that is not understood. All
    values are not negative, and less than two to the bits of their type."""
    kind, *form = op.split(".")
    types = [found for part in form if (found := FORM.match(part))]
    pred = form[-1:] == ["pred"]
    if kind in ("mov", "cvta"):
        return lambda x: x[0]
    if pred and kind in ("and", "or", "xor", "not"):
        return (lambda x: 1 - x[0]) if kind == "not" else (lambda x: BINARY[kind](x[0], x[1]))
    if not types:
        return None
    bits = int(types[-1][2])
    signed, size = types[-1][1] == "s", 1 << bits
    read: Callable[[int], int] = (lambda x: _signed(x, bits)) if signed else (lambda x: x % size)
    if kind == "cvt" and len(types) == 2:
        made = 1 << int(types[0][2])
        return lambda x: read(x[0]) % made
    if kind == "setp" and form[1:] == form[-1:]:
        fn = UNSIGNED.get(form[0], form[0])
        relation = ON_INTEGERS[fn] if fn in COMPARISONS else None
        return relation and (lambda x: int(relation(read(x[0]), read(x[1]))))
    if kind == "bfe" and not signed:
        return lambda x: x[0] >> x[1] & (1 << x[2]) - 1
    if kind in ("mul", "mad") and form[0] in ("lo", "wide"):
        whole = size if form[0] == "lo" else size * size
        return lambda x: (read(x[0]) * read(x[1]) + (x[2] if len(x) == 3 else 0)) % whole
    if kind == "mul" and form[0] == "hi":
        return lambda x: (read(x[0]) * read(x[1]) >> bits) % size
    if kind in ("neg", "not"):
        return (lambda x: -x[0] % size) if kind == "neg" else (lambda x: ~x[0] % size)
    if kind in ("shl", "shr"):
        shift = BINARY[kind]
        return lambda x: shift(read(x[0]), x[1]) % size
    if kind in BINARY and len(form) == 1:
        binary = BINARY[kind]
        return lambda x: binary(read(x[0]), read(x[1])) % size
    return None


# Registers of the threads that are followed together.
Value = int | tuple[int | None, ...] | None
"""The same in all members, or one for each."""
Held = list[Value]


class ApartError(Exception):
    """Members go different ways after all."""


@dataclass(frozen=True)
class Operand:
    """A stage, or without one a value; and the addend."""

    slot: int | None
    value: Value
    plus: int = 0

    def of(self, held: Held) -> Value:
        if self.slot is None:
            return self.value
        value = held[self.slot]
        if isinstance(value, tuple):
            return tuple([None if x is None else x + self.plus for x in value])
        return None if value is None else value + self.plus


def joined(values: Sequence[int | None]) -> Value:
    return values[0] if len({*values}) == 1 else tuple(values)


def scalar(value: Value) -> int | None:
    if isinstance(value, tuple):
        raise ApartError
    return value
