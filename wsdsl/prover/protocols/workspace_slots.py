"""Where in a workspace tensor an op works: in which entry, and on which of its lines."""

from __future__ import annotations

import math
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.types import Fragment, Tensor
from wsdsl.prover.machine.linear import WARPGROUP, Linear, Sums
from wsdsl.record import record

LINES, COLUMNS = 64, 8
BLOCKS = "fragments are stored in blocks of 64 rows by 8 columns"


class NotUnderstood(Exception):  # noqa: N818 - nothing is wrong with the prover
    """The reason for a missing proof."""


@record
class Place:
    """Elements of an entry of `tensor`: (first, how many) along each dimension. The first
    one begin `stride` further in each next warpgroup. Each is held by one `holder`: "thread", or by
    several of a "warp" or a "warpgroup".
    """

    tensor: str
    stride: int
    spans: tuple[tuple[int, int], ...]
    holder: str

    def meets(self, other: Place) -> bool:
        return self.tensor == other.tensor and all(
            first < start + count and start < first + num
            for (first, num), (start, count) in zip(self.spans, other.spans, strict=True)
        )


class WorkspaceSlots:
    """The workspace tensors of a kernel, in entries: one for each CTA of a cluster; and those
    of sums into `pieces` each.
    """

    def __init__(self, kernel: Kernel, cluster: int, pieces: int, sums: Sums) -> None:
        self.sums, self.pieces = sums, pieces
        lent = kernel.of(ops.AllocateGlobal)
        self.zeroed = {op.result.name for op in lent if op.zeroed}
        self.fragments = {op.result.name for op in lent if op.fragments}
        self.each = {
            op.result.name: op.each // cluster // (1 if op.zeroed else pieces) for op in lent
        }

    def place(self, op: Any, warpgroups: int) -> tuple[Linear, Place]:
        """(the entry's number, where in it)."""
        assert isinstance(op.tensor.type, Tensor)
        starts = [self.span(v) for v in op.index]
        for v, along in zip(op.index, ("columns", "rows")):
            if isinstance(v.type, Fragment) and getattr(v.type, along) != 1:
                raise NotUnderstood("rows of a workspace must run along the rows of a fragment")
        self.blocks(op, *starts[1:])
        slot, stride, lines = self.lines(op, starts[0], warpgroups)
        spans = [lines]
        for (start, count), size in zip(starts[1:], op.tensor.type.dims[1:], strict=True):
            if start.terms or not isinstance(size, int):
                raise NotUnderstood("the rows of the workspace entry are not known")
            if start.number < 0 or start.number + count > size:
                raise NotUnderstood(f"this exceeds the {size} columns of the workspace entry")
            spans.append((start.number, count))
        held = getattr(op, "value", None) or getattr(op, "result", None)
        holder = "warpgroup"
        if isinstance(held, Value):
            kind = held.type
            shape = (kind.rows, kind.columns) if isinstance(kind, Fragment) else (1, 1)
            holder = "thread" if 1 not in shape else "warp" if shape[0] > 1 else "warpgroup"
            if math.prod(shape) != math.prod(count for _, count in spans):
                raise NotUnderstood("the threads of an element are not known")
        return slot, Place(op.tensor.name, stride, tuple(spans), holder)

    def lines(
        self, op: Any, start: tuple[Linear, int], warpgroups: int
    ) -> tuple[Linear, int, tuple[int, int]]:
        """(the entry, lines from one warpgroup to the next, the lines of the first one)."""
        each, (line, num) = self.each[op.tensor.name], start
        stride = dict(line.terms).get(WARPGROUP, 0)
        others = [(term, times) for term, times in line.terms if term != WARPGROUP]
        if stride < 0 or not each or any(times % each for _, times in others):
            raise NotUnderstood(f"the workspace entry of {each} rows is not known")
        first = line.number % each
        if op.tensor.name in self.fragments and (stride % LINES or first % LINES or each % LINES):
            raise NotUnderstood(f"{BLOCKS}: these rows are not")
        shared = not stride and (op.repeatable or self.by_one(op, warpgroups))
        if warpgroups > 1 and first + num > stride and not shared:
            raise NotUnderstood("warpgroups share rows of the workspace entry")
        if stride * (warpgroups - 1) + first + num > each:
            raise NotUnderstood(f"this exceeds the {each} rows of the workspace entry")
        terms = tuple((term, times // each) for term, times in others)
        return Linear(line.number // each, terms), stride, (first, num)

    def by_one(self, op: Any, warpgroups: int) -> bool:
        """Whether one of the warpgroups alone stores this."""
        pred = getattr(op, "pred", None)
        test = pred and self.sums.made.get(pred)
        if not (isinstance(test, ops.Map) and test.fn == "eq"):
            return False
        which = Linear(0, ((WARPGROUP, 1),))
        numbers = [x.number for x in map(self.sums.of, test.args) if not x.terms]
        alike = which in map(self.sums.of, test.args)
        return alike and len(numbers) == 1 and 0 <= numbers[0] < warpgroups

    def blocks(self, op: Any, *columns: tuple[Linear, int]) -> None:
        """Raises unless a tensor of fragments is accessed from a block's first column on."""
        if op.tensor.name in self.fragments:
            for start, _ in columns:
                if any(n % COLUMNS for n in (start.number, *(times for _, times in start.terms))):
                    raise NotUnderstood(f"{BLOCKS}: these columns are not")

    def span(self, index: Value) -> tuple[Linear, int]:
        """Where it begins, and how many there are."""
        if not isinstance(index.type, Fragment):
            return self.sums.of(index), 1
        op = self.sums.made.get(index)
        if not isinstance(op, ops.Iota):
            raise NotUnderstood("the position in the workspace entry is not known")
        return self.sums.of(op.start), index.type.rows * index.type.columns

    def piece(self, op: Any, warpgroups: int, slot: Linear, pieces: Linear) -> None:
        """Raises unless this is in one of the entry's parts, or outside of the tensor."""
        gathered = isinstance(self.sums.made.get(op.index[0]), ops.Map)
        line, num = (self.sums.of(op.index[0]), 1) if gathered else self.span(op.index[0])
        self.blocks(op, *map(self.span, op.index[1:]))
        assert isinstance(op.tensor.type, Tensor)
        outside = self.sums.size(str(op.tensor.type.dims[0]))
        below = None
        for term, times in line.terms:
            match self.sums.meanings[term] if isinstance(term, int) else ():
                case ("where", test, inside, last) if times == 1 and last == outside:
                    line = line - Linear(0, ((term, 1),)) + inside
                    below = self.sums.meaning(test)
                case _:
                    pass
        at, _, _ = self.lines(op, (line, num), warpgroups)
        number = at - slot.times(self.pieces)
        if not number.terms and 0 <= number.number < self.pieces:
            return
        if below != ("lt", number, pieces) or not self._not_negative(number):
            raise NotUnderstood("the split of the workspace entry is not known")

    def _not_negative(self, sum: Linear) -> bool:
        """Counters and a number, added."""
        return sum.number >= 0 and all(times >= 0 and self._counts(k) for k, times in sum.terms)

    def _counts(self, term: Any) -> bool:
        if term == WARPGROUP:
            return True
        match self.sums.meanings[term] if isinstance(term, int) else ():
            case ("value", value):
                op = self.sums.made.get(value)
                if not isinstance(op, ops.Iota) and not (
                    isinstance(op, ops.ForRange) and value == op.index
                ):
                    return False
                return self._not_negative(self.sums.of(op.start))
            case _:
                return False
