"""Scalars as terms: known integers are Python's, everything else stays symbolic.

A term is an int, a bool, or a tuple: ("dim", name), ("index", iteration), ("load", tensor, ...),
("group", CTAs of each), ("unknown", n), or (fn, a, b) of terms. Equal terms are equal numbers, so
that two partitions that compute the same bound are known to agree.
"""

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from wsdsl.ir.integers import ON_INTEGERS

Term = Any

FOLD: dict[str, Callable[[Any, Any], Any]] = {
    **ON_INTEGERS,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "xor": operator.xor,
    "and": lambda a, b: a and b if isinstance(a, bool) else a & b,
    "or": lambda a, b: a or b if isinstance(a, bool) else a | b,
    "shl": operator.lshift,
    "shr": operator.rshift,
}
SHIFTS = 32
TESTS = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"))
DATA = "data"
COMMUTATIVE = frozenset(("add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"))


def known(term: Term) -> bool:
    return isinstance(term, int)


def apply(fn: str, args: tuple[Term, ...]) -> Term:
    """The term `fn(args)`, as simple as it can cheaply be made."""
    if fn == "where" and isinstance(args[0], int):
        return args[1] if args[0] else args[2]
    if len(args) == 1:
        (x,) = args
        if isinstance(x, int) and fn in ("not", "neg", "abs"):
            return {"not": not x, "neg": -x, "abs": abs(x)}[fn]
        return (fn, x)
    if len(args) != 2:
        return (fn, *args)
    a, b = args
    numbers = isinstance(a, int) and isinstance(b, int) and fn in FOLD
    if numbers and (fn not in ("shl", "shr") or 0 <= b < SHIFTS):
        return FOLD[fn](a, b)
    simple = _simplify(fn, a, b)
    if simple is not None:
        return simple
    if fn in COMMUTATIVE and isinstance(a, int):
        a, b = b, a
    return (fn, a, b)


def _simplify(fn: str, a: Term, b: Term) -> Term | None:
    if fn in ("and", "or"):
        for x, y in ((a, b), (b, a)):
            if isinstance(x, bool):
                return y if x == (fn == "and") else x
    if (fn in ("add", "sub") and b == 0) or (fn in ("mul", "floordiv") and b == 1):
        return a
    if (fn == "add" and a == 0) or (fn == "mul" and a == 1):
        return b
    if (fn == "mul" and 0 in (a, b)) or (fn == "sub" and a == b):
        return 0
    # `group * c + r`, as CTAs of a group are numbered. Of no other numbers is it known that
    # `q * c + r` does not wrap.
    if fn in ("floordiv", "mod") and isinstance(b, int) and b > 0:
        match a:
            case ("add", ("mul", ("group", int(n)), int(c)), int(r)) if (
                c % b == 0 and 0 < c <= n and 0 <= r < n
            ):
                if fn == "mod":
                    return r % b
                return apply("add", (apply("mul", (("group", n), c // b)), r // b))
            case ("mul", ("group", int(n)), int(c)) if c % b == 0 and 0 < c <= n:
                return 0 if fn == "mod" else apply("mul", (("group", n), c // b))
            case _:
                pass
    if fn == "add" and isinstance(b, int):
        match a:
            case ("add", x, int(c)):
                return apply("add", (x, b + c))
            case _:
                pass
    return None


def test_of(atom: Term) -> Term:
    """The test, the same in each iteration."""
    return atom[2] if atom[0] == "in" else atom


def is_test(term: Term) -> bool:
    return type(term) is tuple and term[0] in TESTS


def varies(term: Term) -> bool:
    """Does the term speak of an iteration?"""
    found: set[int] = set()
    iterations_in(term, found)
    return bool(found)


def iterations_in(term: Term, found: set[int]) -> None:
    """Add the iterations that a term speaks of."""
    if isinstance(term, tuple):
        parts: tuple[Any, ...] = term  # pyright: ignore[reportUnknownVariableType]
        if parts[0] == "index":
            found.add(parts[1])
        else:
            for x in parts[1:]:
                iterations_in(x, found)


@lru_cache(maxsize=1 << 14)
def of_data(term: Term) -> bool:
    """Does the term depend on an argument or what is read, and on no iteration?"""
    if not isinstance(term, tuple) or varies(term):
        return False
    parts: tuple[Any, ...] = term  # pyright: ignore[reportUnknownVariableType]
    held = parts[0] in ("load", "parameter") or parts[-1] == DATA
    return held or any(map(of_data, parts[1:]))


@lru_cache(maxsize=1 << 14)
def of_any_iteration(term: Term) -> Term:
    """The term with no iteration named."""
    if not isinstance(term, tuple):
        return term
    parts: tuple[Any, ...] = term  # pyright: ignore[reportUnknownVariableType]
    if len(parts) == 2 and parts[0] in ("index", "next"):
        return (parts[0], 0)
    return tuple([of_any_iteration(x) for x in parts])
