"""What a register of PTX text holds for one thread of one CTA, step by step, where it depends on
nothing else. For what reaches into other CTAs: which one, and where there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from wsdsl.prover.skeleton_guards import BINARY
from wsdsl.prover.skeleton_values import ADDRESS, BASE, COMPARED, Definition, Values

FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    **BINARY,
    "rem": operator.mod,
    "div": operator.floordiv,
    "min": min,
    "max": max,
}
COPIES = ("mov", "cvt", "cvta", "mapa", "shfl")
NOWHERE = -1
DEEP = 64
"""Steps that are followed at the most."""


class Exact:
    """Thread `tid` of the CTA with the rank `rank`."""

    def __init__(self, values: Values, rank: int, tid: int = 0) -> None:
        self.values = values
        self.given = {"%cluster_ctarank": rank, "%tid.x": tid}

    def offset(self, address: str, at: int) -> int | None:
        """In SMEM, of an operand `[register+constant]`."""
        found = ADDRESS.search(address)
        base = self.number(found[1], at) if found else None
        return None if found is None or base is None else base + int(found[2] or 0) - BASE

    def target(self, address: str, at: int) -> int | None:
        """The rank of the CTA that such an operand lies in; its own, if no `mapa` says another."""
        found = ADDRESS.search(address)
        made = self.values.definitions(found[1], at) if found else []
        if not made:
            return NOWHERE
        if len(made) > 1:
            return None
        if not made[0].op.startswith("mapa."):
            return self.given["%cluster_ctarank"]
        return self.number(made[0].args[1], made[0].at)

    def number(self, text: str, at: int, depth: int = 0) -> int | None:
        if text in self.given:
            return self.given[text]
        if text == self.values.smem:
            return BASE
        try:
            return int(text, 0)
        except ValueError:
            made = self.values.definitions(text, at)
        if depth > DEEP or any(d.guarded for d in made):
            return None
        # Where several come together they must say the same.
        found = {self._made(d, depth + 1) for d in made}
        return found.pop() if len(found) == 1 else None

    def _made(self, d: Definition, depth: int) -> int | None:
        kind = d.op.split(".")[0]
        if kind in COPIES:
            return self.number(d.args[0], d.at, depth)
        if kind == "selp":
            held = self._holds(d.args[2], d.at, depth)
            return None if held is None else self.number(d.args[1 - held], d.at, depth)
        args = [self.number(arg, d.at, depth) for arg in d.args]
        known = [x for x in args if x is not None]
        if len(known) < len(args):
            return None
        if kind == "mad" and len(known) == 3:
            return known[0] * known[1] + known[2]
        if kind == "bfe" and len(known) == 3:
            return known[0] >> known[1] & (1 << known[2]) - 1
        if kind in ("rem", "div") and (known[1] <= 0 or known[0] < 0):
            return None
        return FUNCTIONS[kind](*known) if kind in FUNCTIONS and len(known) == 2 else None

    def _holds(self, text: str, at: int, depth: int) -> bool | None:
        made, *others = self.values.definitions(text, at) or [None]
        if made is None or others or made.guarded or not made.op.startswith("setp."):
            return None
        x, y = (self.number(arg, made.at, depth) for arg in made.args[:2])
        relation = made.op.split(".")[1]
        if x is None or y is None or relation not in COMPARED:
            return None
        return COMPARED[relation](x, y)
