"""Fragments that wgmma reads from registers: written before a fence, unchanged until complete."""

from collections.abc import Sequence
from typing import Any

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
        elif any(result.name in found for result in results_of(op)):
            found.update(part.name for part in ops.parts_of(op))
    return frozenset(found)


class RegisterOperands:
    """When a warpgroup has written such registers: how many wgmma fences it had run by then."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self._written: dict[str, int] = {}

    def note(self, op: Op, fences: int) -> None:
        for result in results_of(op):
            if result.name in self.names:
                # Of an op without code registers have been written before.
                parts = [self._written.get(part.name, fences) for part in ops.parts_of(op)]
                self._written[result.name] = max(parts, default=fences)

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
