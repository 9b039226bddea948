"""Scalars as sums: proofs compare extents, and lines of entries.

Two values are equal if their sums are: of a number, and multiples of terms that are looked at no
further. Such a term is what is neither added, subtracted nor multiplied by a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Value, attributes_of, operands
from wsdsl.ir.types import Fragment, Tile
from wsdsl.prover.machine.symbolic_terms import COMMUTATIVE, FOLD
from wsdsl.record import record

I32 = range(-(2**31), 2**31)
FOLDED = ("floordiv", "mod", "min", "max", "lt", "le", "gt", "ge", "eq", "ne")
WARPGROUP = "warpgroup"
"""The term for the index of the warpgroup in its partition."""


@record
class Linear:
    """A number, and how often which terms."""

    number: int = 0
    terms: tuple[tuple[Any, int], ...] = ()

    def __add__(self, other: Linear) -> Linear:
        held = dict(self.terms)
        for term, times in other.terms:
            held[term] = held.get(term, 0) + times
        kept = sorted(((k, n) for k, n in held.items() if n), key=lambda x: repr(x[0]))
        return Linear(self.number + other.number, tuple(kept))

    def __sub__(self, other: Linear) -> Linear:
        return self + other.times(-1)

    def times(self, by: int) -> Linear:
        if by == 0:
            return Linear()
        return Linear(self.number * by, tuple((k, n * by) for k, n in self.terms))


@record
class Positive:
    """The test of a linear formula for more than 0."""

    of: Linear


Test = Positive | bool | tuple[Any, ...]
"""A test; ("not", x), ("and", x, y), ("or", x, y) of tests; or any other tuple, not understood."""


class Sums:
    """Finds the formulas of a kernel's scalars."""

    def __init__(self, kernel: Kernel) -> None:
        self.made = kernel.definers
        self.sizes = dict(kernel.sizes)
        self.numbers: dict[Any, int] = {}
        self.meanings: list[Any] = []
        """Of terms: ("size", dimension), ("value", value), (register,), or a function of sums."""
        self.known: dict[Value, Linear] = {}

    def of(self, value: Value) -> Linear:
        if value not in self.known:
            self.known[value] = self._find(value)
        return self.known[value]

    def size(self, dim: str) -> Linear:
        return Linear(self.sizes[dim]) if dim in self.sizes else self._term(("size", dim))

    def _find(self, value: Value) -> Linear:
        op = self.made.get(value)
        match op:
            case ops.Constant() if isinstance(op.value, int):
                return Linear(int(op.value))
            case ops.DimSize():
                return self.size(op.dim)
            case ops.SpecialRegister(within="partition"):
                return Linear(0, ((WARPGROUP, 1),))
            case ops.SpecialRegister():
                return self.special(type(op))
            case ops.Map() if _of_integers(op):
                return self.apply(op.fn, *map(self.of, op.args))
            case ops.Map() | ops.Cast() | ops.Bitcast():
                types = (str(v.type) for v in (op.result, *operands(op)))
                of = map(self.of, operands(op))
                return self._term((type(op).__name__, *types, *attributes_of(op), *of))
            case _:
                return self._term(("value", value))

    def special(self, op: type[ops.SpecialRegister]) -> Linear:
        """The result of an op without operands."""
        return self._term((op,))

    def number(self, x: int, /) -> Linear:
        return Linear(x)

    def apply(self, fn: str, /, *args: Linear) -> Linear:
        """A function of sums."""
        match fn, args:
            case "add", (x, y):
                return x + y
            case "sub", (x, y):
                return x - y
            case "mul", (x, y) if not (x.terms and y.terms):
                return x.times(y.number) if not y.terms else y.times(x.number)
            case "floordiv", (x, Linear(number=1, terms=())):
                return x
            case "where", (Linear(terms=()) as test, x, y):
                return x if test.number else y
            case _, (Linear(number=x, terms=()), Linear(number=y, terms=())) if fn in FOLDED:
                if x in I32 and y in I32 and (y or fn not in ("floordiv", "mod")):
                    return Linear(int(FOLD[fn](x, y)))
            case _:
                pass
        if fn in COMMUTATIVE:
            args = tuple(sorted(args, key=repr))
        return self._term((fn, *args))

    def _term(self, what: Any) -> Linear:
        """Numbered, so that terms of terms stay small."""
        number = self.numbers.setdefault(what, len(self.meanings))
        if number == len(self.meanings):
            self.meanings.append(what)
        return Linear(0, ((number, 1),))

    def meaning(self, sum: Linear) -> Any:
        """Of a formula of one term, and nothing but that."""
        match sum:
            case Linear(number=0, terms=((int(term), 1),)):
                return self.meanings[term]
            case _:
                return ()

    def test(self, value: Value) -> Test:
        op = self.made.get(value)
        match op:
            case ops.Constant():
                return bool(op.value)
            case ops.Map(fn="not" | "and" | "or", args=args):
                return (op.fn, *map(self.test, args))
            case ops.Map(fn="gt" | "le" | "lt" | "ge", args=(x, y)) if _of_integers(op):
                held, other = self.of(x), self.of(y)
                if not _apart(held, other):
                    return ("other", value.name)
                more = held - other
                test = Positive(more if op.fn in ("gt", "le") else more.times(-1))
                return test if op.fn in ("gt", "lt") else ("not", test)
            case _:
                return ("other", value.name)


def _of_integers(op: ops.Map) -> bool:
    """Floats are no sums: they round, and NaN is neither less nor not less."""
    kind = op.args[-1].type
    return isinstance(kind, Tile | Fragment) and not kind.dtype.is_float


def _apart(x: Linear, y: Linear) -> bool:
    """Whether nothing cancels in x - y: its parts would be numbers that i32 has no room for where
    the difference is none.
    """
    plain = all(not (side.number and side.terms) for side in (x, y))
    return plain and not dict(x.terms).keys() & dict(y.terms).keys()


def truth(test: Test, held: Mapping[Positive, bool]) -> bool | None:
    """Is it so, given what holds? None where that is open."""
    match test:
        case bool():
            return test
        case Positive():
            return (test.of.number > 0) if not test.of.terms else held.get(test)
        case ("not", x):
            inner = truth(x, held)
            return None if inner is None else not inner
        case ("and" | "or", x, y):
            both = truth(x, held), truth(y, held)
            wins = test[0] == "or"
            return wins if wins in both else None if None in both else not wins
        case _:
            return None
