"""Which threads a PTX predicate holds for, as far as it depends on nothing but the thread.

A predicate is worked out for all threads at once: codegen sends warpgroups to partitions, and lets
one thread act for others, by comparisons of %tid.x alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from wsdsl.prover.skeleton_language import EVERYBODY
from wsdsl.prover.skeleton_values import COMPARED, Definition, Values

Vector = Sequence[int | None]
"""One value for each thread; None where it depends on more."""

BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
WORD = 1 << 32


class Guards:
    def __init__(self, values: Values, num_threads: int) -> None:
        self.values, self.num = values, num_threads
        self.vectors: dict[str, Vector | None] = {}
        self.found: dict[str, tuple[int, int]] = {"": (EVERYBODY, EVERYBODY)}

    def threads(self, guard: str) -> tuple[int, int]:
        """For which threads `%p` or `!%p` may hold, and for which it does."""
        if guard not in self.found:
            vector = self._register(guard.removeprefix("!"))
            holds = guard[0] != "!"
            may, must = EVERYBODY, 0
            if vector is not None:
                may = sum(1 << t for t, v in enumerate(vector) if v is None or bool(v) == holds)
                must = sum(
                    1 << t for t, v in enumerate(vector) if v is not None and bool(v) == holds
                )
                may, must = (
                    EVERYBODY if held.bit_count() == self.num else held for held in (may, must)
                )
            self.found[guard] = may, must
        return self.found[guard]

    def _register(self, name: str) -> Vector | None:
        if name[0] != "%":
            return None
        if name == "%tid.x":
            return range(self.num)
        if name not in self.vectors:
            self.vectors[name] = None
            found = self.values.defined.get(name, [])
            if len(found) == 1 and not found[0].guarded:
                self.vectors[name] = self._result(found[0])
        return self.vectors[name]

    def _operand(self, text: str) -> Vector | None:
        try:
            return [int(text, 0)] * self.num
        except ValueError:
            return self._register(text)

    def _result(self, d: Definition) -> Vector | None:
        kind, *form = d.op.split(".")
        held = [self._operand(arg) for arg in d.args]
        if "pred" in form and kind in ("and", "or") and len(held) == 2:
            # One side may decide, whatever the other depends on.
            decides = int(kind == "or")
            x, y = (v or [None] * self.num for v in held)
            return [_join(a, b, decides) for a, b in zip(x, y, strict=True)]
        known = [v for v in held if v is not None]
        if len(known) < len(held) or not held or any(x is None for v in known for x in v):
            return None
        columns: list[list[int]] = [[x for x in v if x is not None] for v in known]
        return _apply(kind, form, columns)


def _join(a: int | None, b: int | None, decides: int) -> int | None:
    if decides in (a, b):
        return decides
    return None if a is None or b is None else 1 - decides


def _apply(kind: str, form: list[str], held: list[list[int]]) -> list[int] | None:
    """An instruction on all threads."""
    first = held[0]
    if kind == "setp" and len(held) == 2:
        relation = UNSIGNED.get(form[0], form[0])
        signed = "s32" in form
        if relation not in COMPARED or form[-1] not in ("b32", "u32", "s32"):
            return None
        holds = COMPARED[relation]
        return [int(holds(_word(a, signed), _word(b, signed))) for a, b in zip(*held, strict=True)]
    if kind == "not" and "pred" in form:
        return [1 - a for a in first]
    if kind == "xor" and "pred" in form:
        return [a ^ b for a, b in zip(*held, strict=True)]
    if kind == "selp" and len(held) == 3:
        return [a if p else b for a, b, p in zip(*held, strict=True)]
    if kind == "mov" and len(held) == 1:
        return first
    if kind == "shfl" and form[:2] == ["sync", "idx"] and len(held) == 4:
        return [first[t - t % 32 + held[1][t]] for t in range(len(first))]
    if kind == "bfe" and "u32" in form and len(held) == 3:
        return [_word(a) >> start & (1 << num) - 1 for a, start, num in zip(*held, strict=True)]
    if kind in BINARY and len(held) == 2 and form[-1] in ("b32", "u32", "s32") and "hi" not in form:
        of = BINARY[kind]
        if kind in ("shl", "shr") and not (
            "s32" not in form and all(0 <= by < 32 for by in held[1])
        ):
            return None
        return [_word(of(_word(a), b)) for a, b in zip(*held, strict=True)]
    return None


def _word(x: int, signed: bool = False) -> int:
    x %= WORD
    return x - WORD if signed and x >= WORD // 2 else x
