"""Accesses to global memory and their order, element by element.

Only tensors that the kernel writes are followed. CTAs that do not run together are never ordered.
Between an access by threads and one by TMA there must be a proxy fence of these threads; that of
TMA comes with its completion.
Of a grid whose items overlap, what is written again must have the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wsdsl.ir.analysis.tensor_accesses import touches
from wsdsl.ir.effects import Access as Stated
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import grid_of
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.reference.bound_arrays import GlobalTensor
from wsdsl.simulator.state.smem_races import Access, Conflict, ThreadAccess
from wsdsl.simulator.state.vector_clocks import Clocks

At = tuple[Any, ...]
"""Elements: a slice a dimension, or an array of indices a dimension."""


@dataclass(frozen=True)
class Actor:
    """The threads of an access, as components of the clocks of those that run together."""

    cta: int
    clocks: Clocks
    threads: slice

    def same_warp(self, other: Actor) -> bool:
        """Within a warp, the program's order is taken to be enough."""
        warps = {
            (id(a.clocks), end // 2)
            for a in (self, other)
            for end in (a.threads.start, a.threads.stop - 1)
        }
        return len(warps) == 1


@dataclass(frozen=True, eq=False)
class _Recorded:
    access: Access
    actor: Actor

    def open_to(self, actor: Actor) -> str:
        if self.actor.clocks is not actor.clocks:
            return f"nothing orders CTA {self.actor.cta} and CTA {actor.cta}"
        return self.access.open_to(actor.clocks, actor.threads)


class _Record:
    """For each element of a tensor, which accesses were the last ones; 0 for none.

    Of reads, and of atomic additions, since the last write the first and the last are kept: if
    anyone else than the next writer is among them, mostly one of the two is someone else's.
    """

    def __init__(self, shape: tuple[int, ...], is_read: bool, is_added: bool) -> None:
        self.only_written = not is_read and not is_added
        self.writes: Array = np.zeros(shape, np.int32)
        self.reads = [np.zeros(shape, np.int32) for _ in range(2 * is_read)]
        self.adds = [np.zeros(shape, np.int32) for _ in range(2 * is_added)]


class GlobalAccesses:
    """All tensors that need it. An access is recorded when it starts, and over later."""

    def __init__(self, kernel: Kernel, tensors: dict[str, GlobalTensor]) -> None:
        found = [touch for _, touch in touches(kernel)]
        self.flags = frozenset(x.tensor for x in found if x.flag)
        read = {x.tensor for x in found if x.reads}
        added = {x.tensor for x in found if x.adds}
        written = {x.tensor for x in found if x.writes and not x.adds}
        overlapping = getattr(grid_of(kernel), "overlapping", False)
        self._recorded: list[_Recorded] = []
        self._records: dict[str, _Record] = {}
        self._written: dict[str, Array] = {}
        """By tensor that items write which overlap: of each element, whether it was written."""
        for name in (written | added) - self.flags:
            is_read = name in read
            if is_read or name in written:
                shape = tensors[name].array.shape
                self._records[name] = _Record(shape, is_read, name in added)
                if overlapping and self._records[name].only_written:
                    self._written[name] = np.zeros(shape, np.bool_)

    def follows(self, kind: str, name: str) -> bool:
        """Return whether accesses of that kind to the tensor may race."""
        record = self._records.get(name)
        return record is not None and not (kind == "read" and record.only_written)

    def begin(
        self, stated: Stated, name: str, at: At, access: Access, actor: Actor
    ) -> Conflict | None:
        """Check an access that effects state; atomic additions ("add") are in any order."""
        kind = stated.kind
        if not self.follows(kind, name) or (kind == "write" and name in self._written):
            return None
        record = self._records[name]
        others = {"read": record.adds, "add": record.reads}
        before = others.get(kind, [*record.reads, *record.adds])
        found = self._clash(name, at, stated.asynchronous, actor, (record.writes, *before))
        number = self._number(access, actor)
        if kind != "write":
            _keep(record.reads if kind == "read" else record.adds, at, number)
            return found
        record.writes[at] = number
        for held in before:
            held[at] = 0
        return found

    def repeats(self, name: str, at: At, before: Array, after: Array) -> str:
        """The fault of a write that has changed the elements from `before` to `after`, or ""."""
        if name not in self._written:
            return ""
        written = self._written[name]
        # NumPy gives NaN any sign, the GPU one.
        same = (_bits(before) == _bits(after)) | (_is_nan(before) & _is_nan(after))
        wrong = written[at] & ~same
        written[at] = True
        if not wrong.any():
            return ""
        return f"an earlier store wrote other bits to {_element(name, _first(at, wrong))}"

    def _number(self, access: Access, actor: Actor) -> int:
        self._recorded.append(_Recorded(access, actor))
        return len(self._recorded)

    def _earlier(
        self, at: At, held: Iterable[Array]
    ) -> Iterator[tuple[_Recorded, tuple[int, ...]]]:
        """The accesses that are the last ones of some elements, and the first such element."""
        for numbers in held:
            part = numbers[at]
            if part.any():
                for number in np.unique(part[part > 0]).tolist():
                    yield self._recorded[number - 1], _first(at, part == number)

    def _clash(
        self, name: str, at: At, by_tma: bool, actor: Actor, held: Iterable[Array]
    ) -> Conflict | None:
        for earlier, where in self._earlier(at, held):
            reason = ""
            if not (earlier.actor.same_warp(actor) and earlier.access.over_in_order):
                reason = earlier.open_to(actor)
            if not reason and by_tma and isinstance(earlier.access, ThreadAccess):
                reason = earlier.access.unfenced_in_global(actor.clocks, actor.threads)
            if reason:
                return Conflict(reason, earlier.access, _element(name, where))
        return None


def _is_nan(values: Array) -> Array:
    # NumPy warns of some types' NaN.
    with np.errstate(invalid="ignore"):
        return values != values


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.itemsize}")


def _keep(first_and_last: list[Array], at: At, number: int) -> None:
    first, last = first_and_last
    part = first[at]
    first[at] = np.where(part == 0, number, part)
    last[at] = number


def _element(name: str, where: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, where))}]"


def _first(at: At, mask: Array) -> tuple[int, ...]:
    """The first element of `at` where the mask holds."""
    if at and not isinstance(at[0], slice):
        place = int(np.argmax(mask))
        return tuple(int(i[place]) for i in at)
    first = np.unravel_index(int(np.argmax(mask)), mask.shape)
    return tuple(s.start + int(i) for s, i in zip(at, first, strict=True))
