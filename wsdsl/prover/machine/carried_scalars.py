"""Scalars that loops carry: a number that each iteration makes of the last one's may never come
again, and so no state would. It is then called by how it is made and the iteration it is made for:
the same in all partitions that make it alike.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Any, Literal

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import is_load
from wsdsl.ir.op import Makers, Op, Value, operands
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import Tile
from wsdsl.prover.machine.machine import Agent
from wsdsl.prover.machine.scalars import named
from wsdsl.prover.machine.symbolic_terms import apply

SMALL = 3
"""Numbers up to this are followed as they are: whose tile it is in ping-pong, for instance."""
Stack = tuple[Value, ...]
Scope = Literal["cta", "cluster", "grid"]


class Formulas:
    """How values are made of what is the same in all partitions and CTAs, as numbers: equal ones
    are made alike. None where they depend on anything else."""

    def __init__(self, made: Makers, changes: Set[str], scope: Scope) -> None:
        """`changes`: tensors that do not stay as they are; `scope`: those that make the values."""
        self.made, self.changes, self.scope = made, changes, scope
        self.numbers: dict[Any, int] = {}
        self.around: list[ops.Loop] = []
        """The loops around, with the one whose values are looked at."""
        self.followed: Sequence[ops.Loop] = ()
        """The loops whose carried values have formulas."""
        self.known: dict[tuple[Value, Stack], int | None] = {}

    def carried(self, loop: ops.Loop, around: list[ops.Loop]) -> list[tuple[int, int]]:
        """Which of the scalars that the loop carries (their places) are made how."""
        self.around, self.followed, self.known = [*around, loop], (loop,), {}
        found = [(n, self._of(v, ())) for n, v in enumerate(loop.args) if isinstance(v.type, Tile)]
        return [(n, number) for n, number in found if number is not None]

    def within(self, loops: Sequence[ops.Loop], values: Iterable[Value]) -> list[int | None]:
        """How these values in nested loops are made, also of what the loops carry."""
        self.around, self.followed, self.known = [*loops], loops, {}
        return [self._of(value, ()) for value in values]

    def _of(self, value: Value, stack: Stack) -> int | None:
        """`stack`: arguments of the loop in whose formulas this one stands."""
        key = value, stack
        if key not in self.known:
            self.known[key] = None
            told = self._told(value, stack)
            if told is not None:
                self.known[key] = self.numbers.setdefault(told, len(self.numbers))
        return self.known[key]

    def _told(self, value: Value, stack: Stack) -> Any:
        op = self.made.get(value)
        match op:
            case ops.Loop() if value == op.index:
                return "index", self.around.index(op)
            case ops.Loop() if value in stack:
                return "argument", stack.index(value)
            case ops.Loop() if op in self.followed and value in op.result:
                held = op.args[op.result.index(value)], *op.bounds
                made_of = [self._of(v, stack) for v in held]
            case ops.Loop() if op in self.followed and value in op.args:
                n = op.args.index(value)
                made_of = [
                    self._of(op.init[n], stack),
                    self._of(yielded(op.body)[n], (*stack, value)),
                ]
            case ops.If():
                n = op.result.index(value)
                held = op.cond, yielded(op.then)[n], yielded(op.orelse)[n]
                made_of = [self._of(v, stack) for v in held]
            case None if value.name not in self.changes:
                return "parameter", value
            case Op(repeatable=True) if not self._differs(op):
                made_of = [self._of(v, stack) for v in operands(op)]
            case _:
                return None
        if None in made_of:
            return None
        return (*(named(op) if op.repeatable else (type(op), str(value.type))), *made_of)

    def _differs(self, op: Op) -> bool:
        """Whether others in the scope may find another value: CTAs of a cluster have the same
        `cluster_index`.
        """
        if not isinstance(op, ops.SpecialRegister) or op.within is None:
            return False
        scopes = ("cta", "cluster") if op.of_cluster else ("cta",)
        return op.within != "grid" or self.scope not in scopes


class Ahead:
    """The loads that a loop carries, each made of its iteration's index in the one before."""

    def __init__(self, loop: ops.Loop, made: Makers) -> None:
        self.loop, self.made = loop, made
        self.ops = dict[int, list[Op]]()
        """By their places, the ops that make them of `next`, the next iteration's index."""
        self.next = frozenset(
            op.result
            for op in loop.body
            if isinstance(op, ops.Map) and (op.fn, op.args) == ("add", (loop.index, loop.bounds[2]))
        )
        for n, (init, handed) in enumerate(zip(loop.init, yielded(loop.body), strict=True)):
            if is_load(made.get(handed)) and self._alike(init, handed):
                self.ops[n] = self._between(handed)

    def _alike(self, first: Value, later: Value) -> bool:
        """Is `first` before the loop what `later` is for the iterations that follow?"""
        one, other = self.made.get(first), self.made.get(later)
        if first == later or (first == self.loop.bounds[0] and later in self.next):
            return True
        match one, other:
            case ops.Constant(), _:
                return self._number(later) == one.value
            case Op(repeatable=True), Op() if type(one) is type(other) and (
                is_load(one) or named(one) == named(other)
            ):
                return all(map(self._alike, operands(one), operands(other)))
            case _:
                return False

    def _number(self, value: Value) -> Any:
        """Its value in the first iteration, if that is a number."""
        op = self.made.get(self.loop.bounds[0] if value in self.next else value)
        if isinstance(op, ops.Map):
            args = tuple([self._number(x) for x in op.args])
            return None if None in args else apply(op.fn, args)
        return op.value if isinstance(op, ops.Constant) else None

    def _between(self, value: Value) -> list[Op]:
        op = self.made.get(value)
        if op is None or value in self.next or op not in self.loop.body:
            return []
        return [*(x for v in operands(op) for x in self._between(v)), op]


def name_carried(a: Agent, carried: tuple[tuple[int, int], ...], when: str, iteration: int) -> None:
    """Name the values of these registers, by formula, by the iteration that they are made `in` or
    `behind`. Not in counted loops: an iteration may be another partition's in another one of these.
    """
    if any(frame[0] == "counted" for frame in a.frames):
        return
    for slot, number in carried:
        held = a.slots[slot]
        if isinstance(held, tuple) or (isinstance(held, int) and abs(held) > SMALL):
            a.slots[slot] = ("carried", number, when, ("index", iteration))
