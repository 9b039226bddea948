"""Scalars that loops carry: a number that each iteration makes of the last one's may never come
again, and so no state would. It is then called by how it is made and the iteration it is made for:
the same in all partitions that make it alike.
"""

from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Makers, Op, Value, attributes_of, operands
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import Tile
from wsdsl.prover.machine.machine import Agent
from wsdsl.prover.machine.model import Model
from wsdsl.prover.machine.symbolic_terms import apply

SMALL = 3
"""Numbers up to this are followed as they are: whose tile it is in ping-pong, for instance."""
MADE_OF_OPERANDS = (
    ops.Map,
    ops.Cast,
    ops.Bitcast,
    ops.DimSize,
    ops.Constant,
    ops.NumCtas,
    ops.NumClusters,
)
"""Ops whose results are the same wherever their operands are."""
Stack = tuple[Value, ...]


class Formulas:
    """How values are made of what is the same in all partitions and CTAs, as numbers: equal ones
    are made alike. None where they depend on anything else."""

    def __init__(self, model: Model) -> None:
        self.made = model.kernel.definers
        self.changes = model.written | model.effects.lent
        self.numbers: dict[Any, int] = {}
        self.around: list[ops.ForRange] = []
        """The loops around, with the one whose values are looked at."""
        self.known: dict[tuple[Value, Stack], int | None] = {}

    def carried(self, loop: ops.ForRange, around: list[ops.ForRange]) -> list[tuple[int, int]]:
        """Which of the scalars that the loop carries (their places) are made how."""
        self.around, self.known = [*around, loop], {}
        found = [(n, self._of(v, ())) for n, v in enumerate(loop.args) if isinstance(v.type, Tile)]
        return [(n, number) for n, number in found if number is not None]

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
            case ops.ForRange() if value == op.index:
                return "index", self.around.index(op)
            case ops.ForRange() if value in stack:
                return "argument", stack.index(value)
            case ops.ForRange() if value in op.args and op is self.around[-1]:
                n = op.args.index(value)
                made_of = [self._of(op.init[n], ()), self._of(yielded(op.body)[n], (*stack, value))]
            case ops.If():
                n = op.result.index(value)
                held = op.cond, yielded(op.then)[n], yielded(op.orelse)[n]
                made_of = [self._of(v, stack) for v in held]
            case ops.LoadGlobal() if op.tensor.name not in self.changes:
                made_of = [self._of(v, stack) for v in op.index]
            case _ if isinstance(op, MADE_OF_OPERANDS):
                made_of = [self._of(v, stack) for v in operands(op)]
            case _:
                return None
        return None if None in made_of else (*_attributes(value, op), *made_of)


class Ahead:
    """The loads that a loop carries, each made of its iteration's index in the one before."""

    def __init__(self, loop: ops.ForRange, made: Makers) -> None:
        self.loop, self.made = loop, made
        self.ops = dict[int, list[Op]]()
        """By their places, the ops that make them of `next`, the next iteration's index."""
        self.next = frozenset(
            op.result
            for op in loop.body
            if isinstance(op, ops.Map) and (op.fn, op.args) == ("add", (loop.index, loop.step))
        )
        for n, (init, handed) in enumerate(zip(loop.init, yielded(loop.body), strict=True)):
            if isinstance(made.get(handed), ops.LoadGlobal) and self._alike(init, handed):
                self.ops[n] = self._between(handed)

    def _alike(self, first: Value, later: Value) -> bool:
        """Is `first` before the loop what `later` is for the iterations that follow?"""
        one, other = self.made.get(first), self.made.get(later)
        if first == later or (first == self.loop.start and later in self.next):
            return True
        match one, other:
            case ops.Constant(), _:
                return self._number(later) == one.value
            case (ops.LoadGlobal(), ops.LoadGlobal()) if one.tensor == other.tensor:
                return all(map(self._alike, one.index, other.index))
            case (ops.Map(), ops.Map()) if _attributes(first, one) == _attributes(later, other):
                return all(map(self._alike, one.args, other.args))
            case _:
                return False

    def _number(self, value: Value) -> Any:
        """Its value in the first iteration, if that is a number."""
        op = self.made.get(self.loop.start if value in self.next else value)
        if isinstance(op, ops.Map):
            args = tuple([self._number(x) for x in op.args])
            return None if None in args else apply(op.fn, args)
        return op.value if isinstance(op, ops.Constant) else None

    def _between(self, value: Value) -> list[Op]:
        op = self.made.get(value)
        if op is None or value in self.next or op not in self.loop.body:
            return []
        return [*(x for v in operands(op) for x in self._between(v)), op]


def _attributes(value: Value, op: Op) -> tuple[Any, ...]:
    tensor = op.tensor.name if isinstance(op, ops.LoadGlobal) else ""
    if isinstance(op, ops.ForRange | ops.If):
        return type(op).__name__, str(value.type)
    types = (str(v.type) for v in operands(op))
    return type(op).__name__, str(value.type), *types, tensor, *map(repr, attributes_of(op))


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
