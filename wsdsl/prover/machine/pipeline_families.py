"""Pipelines that may be rotated: the arrays and stages that one pipeline state traverses.

A pipeline looks the same from each of its stages. States of the machine that differ by a rotation
are one state: that is the induction, a state after one more stage is the same state.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.effects import accesses
from wsdsl.ir.op import Op, Value, bound, operands, results_of
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.ir.types import MatrixDescriptor, State
from wsdsl.ir.verify.synchronization import reaches_others
from wsdsl.prover.machine.machine import StageParity
from wsdsl.prover.machine.model import Array, Family, Model


class _Sets:
    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def find(self, x: str) -> str:
        self.parent.setdefault(x, x)
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def join(self, x: str, y: str) -> None:
        self.parent[self.find(x)] = self.find(y)


def ring_families(model: Model) -> tuple[list[Family], dict[str, int], dict[str, int]]:
    """The ring_families; which one an array is in, by name; and a state value, by name."""
    sets = _Sets()
    picked: set[str] = set()
    reached: set[str] = set()
    states: list[Value] = []
    for op in walk(model.kernel.body):
        states += [v for v in (*results_of(op), *bound(op)) if isinstance(v.type, State)]
        for value, other in _equal_states(op):
            sets.join(value.name, other.name)
        described = any(isinstance(v.type, MatrixDescriptor) for v in results_of(op))
        if reaches_others(op) or (model.pairs and described):
            reached |= {v.name for v in operands(op)}
        for array, state in _walked(op):
            if array.name in model.arrays:
                sets.join(f"array {array.name}", state.name)
        for access in accesses(op.effects(model.kernel.definers), "smem"):
            is_index = access.item is not None and not isinstance(access.item.type, State)
            picked |= {access.of.name} if is_index and access.of is not None else set()
    made: list[Family] = []
    number: dict[str, int] = {}
    of_array: dict[str, int] = {}
    for array in model.arrays.values():
        root = sets.find(f"array {array.name}")
        if root not in number:
            number[root] = len(made)
            made.append(Family())
        family = made[number[root]]
        of_array[array.name] = number[root]
        family.num = family.num or array.num
        family.turns &= family.num == array.num and array.name not in picked
        family.remote |= array.name in reached
        family.arrays.append(array)
    of_state = {v.name: number.get(sets.find(v.name), -1) for v in states}
    for op in model.kernel.of(ops.Advance):
        place = number.get(sets.find(op.result.name))
        if place is not None:
            made[place].turns &= op.num == made[place].num
    return made, of_array, of_state


def _equal_states(op: Op) -> Iterator[tuple[Value, Value]]:
    """The values of a pipeline state that control joins, or that follow one another."""
    joined: Iterable[tuple[Value, ...]] = ()
    match op:
        case ops.Advance():
            joined = [(op.result, op.state)]
        case ops.Loop():
            joined = zip(op.init, op.args, op.result, yielded(op.body), strict=True)
        case ops.If():
            joined = zip(op.result, yielded(op.then), yielded(op.orelse), strict=True)
        case _:
            pass
    for value, *others in joined:
        if isinstance(value.type, State):
            yield from ((value, other) for other in others)


def _walked(op: Op) -> Iterator[tuple[Value, Value]]:
    """The operands, each with its state: `x_state` of `x`, which may be several, or `state`."""
    held: dict[str, Any] = {f.name: getattr(op, f.name) for f in fields(op)}
    for name, value in held.items():
        own = held.get(f"{name}_state") or held.get(f"{name.removesuffix('s')}_state")
        state = own or held.get("state")
        if isinstance(state, Value):
            values = value if isinstance(value, tuple) else (value,)
            yield from ((v, state) for v in values if isinstance(v, Value))


def turned(state: StageParity, turn: tuple[int, int, int]) -> tuple[int, int]:
    """The state as seen from the start of the rotation (stage, parity, number of stages)."""
    stage, parity, num = turn
    return (state.stage - stage) % num, state.parity ^ parity ^ (state.stage < stage)


def order(array: Array, turn: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Stages of an array in rotated order, each with the change of its phases' parity."""
    stage, parity, _ = turn
    return [
        ((stage + i) % array.num, parity ^ ((stage + i) % array.num < stage))
        for i in range(array.num)
    ]
