"""What becomes of tensors that TMA can not take: threads access them, or they are copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wsdsl.ir.op import Kernel
from wsdsl.lowering.choice.padding import padded_operands
from wsdsl.runtime.arguments import Call
from wsdsl.runtime.copies import fits_in_memory
from wsdsl.runtime.padding import copied_singly, padded
from wsdsl.schedule import Schedule

MAX_KNOWN = 1024
Alignment = tuple[tuple[str, ...], tuple[str, ...]]
"""Tensors that threads access, and operands that are copied in front of the launch."""
Posed = Callable[[tuple[str, ...]], Kernel]
"""Gives the TILE kernel for a call in which threads access these tensors."""


class Alignments:
    """What was decided, by schedule, sizes and the rows of the arrays."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Alignment] = {}

    def of(
        self, call: Call, blocked: tuple[str, ...], schedule: Schedule | None, posed: Posed
    ) -> Alignment:
        """`blocked`: those that TMA can not take."""
        copies = {n: padded(call.views[n]) for n in blocked if n not in call.outputs}
        able = tuple(n for n, copy in copies.items() if copy is not None)
        singly = tuple(n for n in blocked if copied_singly(call.views[n]))
        asked = schedule, tuple(call.dims.items()), blocked, able, singly
        found = self._known.get(asked)
        if found is None:
            copied = padded_operands(posed(blocked), call.dims, able, singly)
            made = [copy for n in copied if (copy := copies[n]) is not None]
            if made and call.device != "cpu" and not fits_in_memory(made, call.device):
                copied = ()
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            found = tuple(n for n in blocked if n not in copied), copied
            self._known[asked] = found
        return found
