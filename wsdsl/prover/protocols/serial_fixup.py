"""Accumulators that splits forward: the workspace entry belongs to one of them at a time.

A flag counts the elements of its tile's contraction whose partial lies in the entry. The split
[begin, end) has the entry from the moment the flag is `begin`, without a wait if it is 0, until it
adds to the flag: its length, or -begin if it is the last one. There are four kinds of splits: is it
continued (begin > 0), is it finished (end >= size)?
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from wsdsl.ir.effects import Access, Arrive, Wait
from wsdsl.ir.op import Op
from wsdsl.prover.machine.linear import Linear, Positive
from wsdsl.prover.protocols.work_iteration import AS_WRITTEN, MEET, RELAXED, Way, WorkIteration
from wsdsl.prover.protocols.workspace_slots import Place


class SerialReduction(WorkIteration):
    begin = end = Linear()
    continued = finished = False

    @property
    def whole(self) -> bool:
        return self.finished and not self.continued

    def find(self, used: list[Op]) -> None:
        """A wait is for a split's beginning; arrivals count up to its end."""
        waits: list[Any] = [op for op in used if isinstance(self.effect(op), Wait)]
        begins = {self.sums.of(op.count): op for op in waits}
        if len(begins) != 1:
            told = "the waits name no single value, so the start of splits is not known"
            raise self.fail((waits or used)[-1], told, "wait until the flag is `begin`")
        ((self.begin, waiting),) = begins.items()
        arrivals = [op for op in used if isinstance(self.effect(op), Arrive)]
        ends = {self.amount(op) + self.begin: op for op in arrivals}
        ends.pop(Linear(), None)
        if len(ends) != 1:
            told = "the length of a split is not added to the flag, so its end is not known"
            raise self.fail((arrivals or used)[-1], told, "add end - begin, or at last -begin")
        ((self.end, self.last),) = ends.items()
        if self.given.abreast:
            raise self.fail(self.last, "splits that traverse a tile together are unordered")
        if self.begin != self.given.begin:
            told = "this does not wait for the earlier splits of the tile scheduler"
            raise self.fail(waiting, told, AS_WRITTEN)
        if self.end != self.given.end:
            told = "this adds another amount than the length of the split of the tile scheduler"
            raise self.fail(self.last, told, AS_WRITTEN)

    def amount(self, op: Any) -> Linear:
        return Linear(op.amount) if op.by is None else self.sums.of(op.by)

    def kinds(self) -> Iterator[dict[Positive, bool]]:
        ((dim, _),) = self.grid.contraction
        left = self.sums.size(dim) - self.end
        for self.continued, self.finished in itertools.product((False, True), repeat=2):
            yield {Positive(self.begin): self.continued, Positive(left): not self.finished}

    def touch(self, op: Any, way: Way) -> Way:
        if way.arrived:
            raise self.fail(op, "this accesses the workspace after its release")
        if self.whole:
            raise self.fail(op, "a tile that is not split has no workspace")
        slot, place = self.place(op)
        self.same(op, slot)
        match self.effect(op):
            case Wait():
                return self.wait(op, way)
            case Arrive():
                return self.arrive(op, way)
            case Access(kind="read"):
                return self.load(op, way, place)
            case _:
                return self.store(op, way, place)

    def wait(self, op: Any, way: Way) -> Way:
        if not self.continued:
            raise self.fail(op, "the first split of a tile must not wait")
        return replace(way, has=self.sums.of(op.count), loose=True)

    def load(self, op: Op, way: Way, place: Place) -> Way:
        if way.has != self.begin:
            told = "this may read the workspace before the accumulator is stored"
            raise self.fail(op, told, "wait until the flag is `begin`")
        self.found.loaded[place] = op
        read = way.read if place.holder == "thread" else way.read | {place}
        return replace(way, loose=True, loads=way.loads | {place}, read=read)

    def store(self, op: Any, way: Way, place: Place) -> Way:
        self.plain(op, way, place)
        if self.continued and way.has != self.begin:
            told = "this may overwrite the accumulator of earlier splits"
            raise self.fail(op, told, "wait until the flag is `begin`")
        if op.accumulate:
            raise self.fail(op, "the prover does not support an addition to a workspace")
        return replace(way, loose=True, stores=way.stores | {place})

    def arrive(self, op: Any, way: Way) -> Way:
        if way.loose:
            raise self.fail(op, "the entry is released while threads may access it", MEET)
        if self.continued and way.has != self.begin:
            raise self.fail(op, "this may come before the arrival of earlier splits")
        wanted = Linear() - self.begin if self.finished else self.end - self.begin
        if not op.release and not self.finished:
            raise self.fail(op, RELAXED)
        first = not self.continued and self.amount(op) == self.end
        if op.wrap is not None or (not first and self.amount(op) != wanted):
            raise self.fail(op, "this adds another amount than the length, or at last -begin")
        return replace(way, arrived=1)

    def finish(self, way: Way) -> None:
        if self.whole:
            return
        if not way.arrived:
            told = "the workspace is not released, so other splits wait forever"
            raise self.fail(self.last, told, "arrive on the flag on every path")
        if not self.finished:
            self.found.left.append(way.stores)
