"""Fragments that wgmma reads from registers: written before a fence, unchanged until complete."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Value, results_of, walk
from wsdsl.ir.types import Fragment
from wsdsl.simulator.reference.arithmetic import Array


def register_operands(kernel: Kernel) -> frozenset[str]:
    """The fragments that a wgmma reads, and those that lie in the same registers."""
    found: set[str] = set()
    for op in reversed(list(walk(kernel.body))):
        if isinstance(op, ops.WgmmaMmaAsync) and isinstance(op.a.type, Fragment):
            found.add(op.a.name)
        elif _is_part(op) and op.result.name in found:
            found.add(op.x.name)
        elif isinstance(op, ops.JoinColumns) and op.result.name in found:
            found.update(part.name for part in op.parts)
    return frozenset(found)


def _is_part(op: Op) -> TypeGuard[ops.SliceColumns | ops.ConvertLayout]:
    """Whether its result lies in the registers of `x`."""
    return isinstance(op, ops.SliceColumns) or (
        isinstance(op, ops.ConvertLayout) and ops.is_same_registers(op)
    )


class RegisterOperands:
    """When a warpgroup has written such registers: how many wgmma fences it had run by then."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self._written: dict[str, int] = {}

    def note(self, op: Op, fences: int) -> None:
        for result in results_of(op):
            if result.name in self.names:
                # These run no code: their registers have been written before.
                if _is_part(op):
                    fences = self._written.get(op.x.name, fences)
                elif isinstance(op, ops.JoinColumns):
                    fences = max(self._written.get(p.name, fences) for p in op.parts)
                self._written[result.name] = fences

    def carried(self, results: Sequence[Value], fences: int) -> None:
        """Values that a loop or a branch yields may move to other registers there."""
        for result in results:
            if result.name in self.names:
                self._written[result.name] = fences

    def fenced(self, value: Value, fences: int) -> bool:
        return self._written.get(value.name, fences) < fences


def keeps(kept: Sequence[Any], fragment: Array) -> bool:
    """Is the fragment, or one that it is a slice of, among those kept?"""
    return any(isinstance(k, np.ndarray) and np.may_share_memory(k, fragment) for k in kept)
