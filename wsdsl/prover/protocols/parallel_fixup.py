"""Accumulators that all splits of a tile store at once, each in lines of its own, for all to read.

A flag counts the splits that have stored theirs, then those that are done with them: it goes
round, `wrap` being twice their number - 1. No split writes once it has counted all, and none that
waits for that misses it, since he has not been counted as done.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from wsdsl.ir.effects import Access, Arrive, Wait
from wsdsl.ir.op import Op
from wsdsl.prover.machine.linear import Linear, Positive
from wsdsl.prover.protocols.work_iteration import AS_WRITTEN, MEET, RELAXED, Way, WorkIteration
from wsdsl.prover.protocols.workspace_slots import NotUnderstood


class ParallelReduction(WorkIteration):
    pieces = Linear()

    def find(self, used: list[Op]) -> None:
        """Wait for the number of splits of a tile."""
        waits: list[Any] = [op for op in used if isinstance(self.effect(op), Wait)]
        counts = {self.sums.of(op.count): op for op in waits}
        if len(counts) != 1:
            told = "the waits name no single value, so the number of splits is not known"
            raise self.fail((waits or used)[-1], told, "wait for the number of splits")
        ((self.pieces, self.last),) = counts.items()
        if not self.grid.together:
            raise self.fail(self.last, "all splits of a tile must run at the same time: together")
        if self.given.part is None or self.pieces != self.given.pieces:
            told = "this waits for another number than the splits of the tile scheduler"
            raise self.fail(self.last, told, AS_WRITTEN)
        self.own = self.slot.times(self.slots.pieces) + self.given.part

    def kinds(self) -> Iterator[dict[Positive, bool]]:
        yield {}

    def touch(self, op: Any, way: Way) -> Way:
        if way.arrived == 2:
            raise self.fail(op, "this accesses the workspace after its release")
        effect = self.effect(op)
        if isinstance(effect, Access) and effect.kind == "read":
            return self.load(op, way)
        slot, place = self.place(op)
        match effect:
            case Wait():
                self.same(op, slot)
                if not way.arrived:
                    raise self.fail(op, "this waits for its own arrival", "arrive first")
                return replace(way, has=self.pieces, loose=True)
            case Arrive():
                self.same(op, slot)
                return self.arrive(op, way)
            case _:
                self.plain(op, way, place)
                if way.arrived or op.accumulate:
                    raise self.fail(op, "this may overwrite other splits", "store before arrival")
                if self.own != slot:
                    raise self.fail(op, "these rows belong to another split", AS_WRITTEN)
                return replace(way, loose=True, stores=way.stores | {place})

    def load(self, op: Op, way: Way) -> Way:
        if way.has is None:
            raise self.fail(op, "this may read before all stores", "wait for all splits")
        try:
            self.slots.piece(op, self.partition.num_warpgroups, self.slot, self.pieces)
        except NotUnderstood as told:
            raise self.fail(op, str(told)) from None
        return replace(way, loose=True)

    def arrive(self, op: Any, way: Way) -> Way:
        if way.loose:
            raise self.fail(op, "this arrives while threads may access the entry", MEET)
        if way.arrived and way.has is None:
            raise self.fail(op, "this arrives as complete before its wait for all splits")
        if op.wrap is None or self.sums.of(op.wrap) != self.pieces.times(2) + Linear(-1):
            raise self.fail(op, "the flag wraps at another count than wrap = 2 * splits - 1")
        if not op.release and not way.arrived:
            raise self.fail(op, RELAXED)
        return replace(way, arrived=way.arrived + 1)

    def finish(self, way: Way) -> None:
        if way.arrived != 2:
            raise self.fail(
                self.last, "each iteration must arrive twice: with its accumulator, and at its end"
            )
        if not way.stores:
            raise self.fail(self.last, "this iteration stores no accumulator")
