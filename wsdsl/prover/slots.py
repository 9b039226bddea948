"""Where in a lent tensor an op works: in which slot, and on which of its lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from wsdsl.ir import fragment_ops as f
from wsdsl.ir import memory_ops as m
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.types import Fragment, Tensor
from wsdsl.ir.walk import walk
from wsdsl.prover.linear import WARPGROUP, Linear, Sums


class NotUnderstood(Exception):  # noqa: N818 - nothing is wrong with the prover
    """What is told instead of a proof."""


@dataclass(frozen=True)
class Place:
    """Elements of a slot of `tensor`: (first, how many) along each dimension. Those along the first
    one begin `stride` further in each next warpgroup. `alone`: one thread has each of them.
    """

    tensor: str
    stride: int
    spans: tuple[tuple[int, int], ...]
    alone: bool

    def meets(self, other: Place) -> bool:
        return self.tensor == other.tensor and all(
            first < start + count and start < first + num
            for (first, num), (start, count) in zip(self.spans, other.spans, strict=True)
        )


class Slots:
    """The tensors that a kernel is lent, cut into slots: one for each CTA of a cluster."""

    def __init__(self, kernel: Kernel, cluster: int, sums: Sums) -> None:
        self.sums = sums
        lent = [op for op in walk(kernel.body) if isinstance(op, m.AllocateGlobal)]
        self.each = {op.result.name: op.each // cluster for op in lent}
        self.zeroed = {op.result.name for op in lent if op.zeroed}

    def place(self, op: Any, warpgroups: int) -> tuple[Linear, Place]:
        """(the slot's number, where in it)."""
        tensor: Value = op.tensor
        assert isinstance(tensor.type, Tensor)
        first, *rest = (self._span(v) for v in op.index)
        each = self.each[tensor.name]
        slot, stride, line = self._cut(first[0], each)
        num = first[1]
        if warpgroups > 1 and not line + num <= stride:
            raise NotUnderstood("warpgroups do not have lines of their own in the slot")
        if stride * (warpgroups - 1) + line + num > each:
            raise NotUnderstood(f"this reaches out of the slot's {each} lines")
        spans = [(line, num)]
        for (start, count), size in zip(rest, tensor.type.dims[1:], strict=True):
            if start.terms or not isinstance(size, int):
                raise NotUnderstood("where in the slot's lines this works")
            if start.number < 0 or start.number + count > size:
                raise NotUnderstood(f"this reaches out of the slot's {size} columns")
            spans.append((start.number, count))
        held = getattr(op, "value", None) or getattr(op, "result", None)
        alone = False
        if isinstance(held, Value):
            kind = held.type
            shape = (kind.rows, kind.columns) if isinstance(kind, Fragment) else (1, 1)
            alone = 1 not in shape
            if math.prod(shape) != math.prod(count for _, count in spans):
                raise NotUnderstood("which threads have the same element")
        return slot, Place(tensor.name, stride, tuple(spans), alone)

    def _cut(self, line: Linear, each: int) -> tuple[Linear, int, int]:
        """(slot, lines from one warpgroup to the next, line in the slot)."""
        stride = dict(line.terms).get(WARPGROUP, 0)
        others = [(term, times) for term, times in line.terms if term != WARPGROUP]
        if stride < 0 or any(times % each for _, times in others):
            raise NotUnderstood(f"which slot of {each} lines this is in")
        terms = tuple((term, times // each) for term, times in others)
        return Linear(line.number // each, terms), stride, line.number % each

    def _span(self, index: Value) -> tuple[Linear, int]:
        if not isinstance(index.type, Fragment):
            return self.sums.of(index), 1
        op = self.sums.made.get(index)
        if not isinstance(op, f.Iota):
            raise NotUnderstood("where in the slot this works")
        return self.sums.of(op.start), index.type.rows * index.type.columns
