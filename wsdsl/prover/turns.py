"""Does a kernel walk over the work as its tile scheduler says? Exactly evaluated, at samples.

The loop over the work, and in each of its turns the waits and arrivals on the flags of slots: whose
turn they are in, for which slot, at which count. Every piece but a whole tile is handed on once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import fragment_ops as f
from wsdsl.ir import memory_ops as m
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Kernel, Op, Region, Value, bound, regions, results_of
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.walk import walk, yielded
from wsdsl.prover.samples import FUNCTIONS, Array, Samples, samples

LOOKED_AT = (b.WaitFlag, b.ArriveFlag, m.StoreGlobal)
Conditions = tuple[tuple[Value, bool], ...]


def check_turns(kernel: Kernel, sliced: bool) -> tuple[Op, str] | None:
    """Where the kernel differs, and how; None if it does not. `sliced`: each piece arrives twice,
    with its sum, and when it is done.
    """
    grid = next(op for op in kernel.body if isinstance(op, b.LaunchGrid))
    lent = {op.result: op for op in kernel.body if isinstance(op, m.AllocateGlobal)}
    given = samples(kernel, grid)
    walks = [
        _Walk(kernel, work, given, lent, sliced)
        for op in kernel.body
        if isinstance(op, Partition)
        for work in op.body
        if isinstance(work, b.ForRange) and _flags(work.body, lent)
    ]
    try:
        for w in walks:
            w.bounds()
        for turn in range(int(_turns(given).max(initial=0))):
            handed = sum(w.turn(turn) for w in walks)
            for w in walks:
                wanted = 2 if sliced else w.cut
                w.expect(w.work, (handed == wanted) | ~w.active, "a piece is not handed on once")
    except _Differs as told:
        return told.op, told.message
    return None


def _flags(body: Region, lent: dict[Value, Any]) -> bool:
    flags = (op for op in walk(body) if isinstance(op, (b.WaitFlag, b.ArriveFlag)))
    return any(op.tensor in lent for op in flags)


def _turns(given: Samples) -> Array:
    start, stop, step = (given.walk.start, given.walk.stop, given.walk.step)
    return np.maximum(0, -((start - stop) // step))


class _Differs(Exception):  # noqa: N818 - of the kernel
    def __init__(self, op: Op, message: str) -> None:
        super().__init__(message)
        self.op, self.message = op, message


class _Walk:
    """One partition's loop over the work."""

    def __init__(
        self,
        kernel: Kernel,
        work: b.ForRange,
        given: Samples,
        lent: dict[Value, m.AllocateGlobal],
        sliced: bool,
    ) -> None:
        self.work, self.given, self.lent, self.sliced = work, given, lent, sliced
        self.made = kernel.definers
        self.inside = {v for op in walk(work.body) for v in (*results_of(op), *bound(op))}
        self.inside |= {work.index, *work.args}
        self.always: dict[Value, Array] = {}
        self.now: dict[Value, Array] = {}
        self.ops = list(self._conditional(work.body, ()))
        self.carried = self._carried()

    def _conditional(self, region: Region, when: Conditions) -> Iterator[tuple[Op, Conditions]]:
        """Waits and arrivals, and the tests on which they depend."""
        for op in region:
            if isinstance(op, t.If):
                yield from self._conditional(op.then, (*when, (op.cond, True)))
                yield from self._conditional(op.orelse, (*when, (op.cond, False)))
            elif isinstance(op, LOOKED_AT) and op.tensor in self.lent:
                yield op, when
            else:
                for inner in regions(op):
                    yield from self._conditional(inner, when)

    def _carried(self) -> list[int]:
        """Which of the loop's arguments are asked for."""
        asked: set[Value] = set()
        ahead = [v for op, when in self.ops for v in (*self.asked(op), *(cond for cond, _ in when))]
        while ahead:
            value = ahead.pop()
            if value in asked or value not in self.inside:
                continue
            asked.add(value)
            if value in self.work.args:
                ahead.append(yielded(self.work.body)[self.work.args.index(value)])
            elif value != self.work.index:
                ahead += self._of(value)
        return [i for i, arg in enumerate(self.work.args) if arg in asked]

    def _of(self, value: Value) -> list[Value]:
        op = self.made[value]
        match op:
            case t.Map():
                return list(op.args)
            case t.If():
                place = op.result.index(value)
                return [op.cond, yielded(op.then)[place], yielded(op.orelse)[place]]
            case _:
                return []

    # Values --------------------------------------------------------------------------------------

    def value(self, value: Value) -> Array:
        held = self.now if value in self.inside else self.always
        if value not in held:
            held[value] = self._find(value)
        return held[value]

    def _find(self, value: Value) -> Array:
        given, op = self.given, self.made.get(value)
        match op:
            case t.Constant():
                return np.int64(op.value) if not isinstance(op.value, bool) else op.value
            case t.DimSize() if op.dim in given.sizes:
                return given.sizes[op.dim]
            case t.Map() if op.fn in FUNCTIONS:
                return FUNCTIONS[op.fn](*map(self.value, op.args))
            case t.If():
                cond, then, orelse = map(self.value, self._of(value))
                return np.where(cond, then, orelse)
            case b.CtaIndex():
                return given.worker * given.cluster + given.rank
            case b.NumCtas():
                return given.workers * given.cluster
            case b.ClusterIndex():
                return given.worker
            case b.NumClusters():
                return given.workers
            case b.CtaRank():
                return given.rank
            case b.WarpgroupIndex():
                return np.int64(0)
            case _:
                raise _Differs(op or self.work, f"on which {value} depends is not understood")

    # Turns ---------------------------------------------------------------------------------------

    def expect(self, op: Op, right: Array, message: str) -> None:
        wrong = np.flatnonzero(~np.broadcast_to(right, self.given.worker.shape))
        if len(wrong):
            raise _Differs(op, f"{message} ({self.given.told(int(wrong[0]))})")

    def bounds(self) -> None:
        wanted = self.given.walk
        for name in ("start", "stop", "step"):
            own = self.value(getattr(self.work, name))
            self.expect(
                self.work, own == getattr(wanted, name), f"`{name}` of the loop over the work"
            )

    def turn(self, number: int) -> Array:
        """Look at one turn of all workers; how often each hands a sum on."""
        work, walked = self.work, self.given.walk
        at = walked.start + number * walked.step
        before, self.now = self.now, {}
        for i in self.carried:
            last = yielded(work.body)[i]
            if number:
                after, self.now = self.now, before
                last = self.value(last)
                self.now = after
            self.now[work.args[i]] = last if number else self.value(work.init[i])
        self.now[work.index] = at
        self.active = at < walked.stop
        self.piece = self.given.elements(at)
        self.cut = (self.piece.begin > 0) | (self.piece.end < self.given.length)
        handed = np.zeros(self.given.worker.shape, np.int64)
        for op, when in self.ops:
            runs = self.active
            for cond, wanted in when:
                runs = runs & (self.value(cond) == wanted)
            if isinstance(op, b.WaitFlag):
                self.wait(op, ~runs)
            elif isinstance(op, b.ArriveFlag):
                self.arrive(op, ~runs)
                handed += runs
            elif isinstance(op, m.StoreGlobal):
                self.slot(op, ~runs)
        return handed

    def slot(self, op: Any, idle: Array) -> None:
        lent, slot = self.lent[op.tensor], self.piece.tile * self.given.cluster + self.given.rank
        each = lent.each // self.given.cluster
        if self.sliced and not lent.zeroed:
            each, slot = each // self.given.splits, slot * self.given.splits + self.piece.part
        right = self.value(self.asked(op)[0]) // each == slot
        self.expect(op, idle | right, "this is not its tile's slot")

    def wait(self, op: b.WaitFlag, idle: Array) -> None:
        count = self.value(op.count)
        right = (count == self.piece.begin) | (count == 1)
        if self.sliced:
            right = count == self.given.pieces
        self.slot(op, idle)
        self.expect(op, idle | right, "this does not wait for the pieces in front")

    def arrive(self, op: b.ArriveFlag, idle: Array) -> None:
        self.slot(op, idle)
        if op.wrap is not None:
            right = self.value(op.wrap) == 2 * self.given.pieces - 1
            self.expect(op, idle | right, "this counts to another number than twice the pieces")
            return
        by = np.int64(op.amount) if op.by is None else self.value(op.by)
        begin, end = self.piece.begin, self.piece.end
        right = by == np.where(end < self.given.length, end - begin, -begin)
        self.expect(op, idle | right, "this adds another amount than the piece's")

    def asked(self, op: Any) -> tuple[Value, ...]:
        """Where it works, and what it says."""
        first = self.made.get(op.index[0])
        at = first.start if isinstance(first, f.Iota) else op.index[0]
        rest = (getattr(op, name, None) for name in ("count", "by", "wrap"))
        return (at, *(v for v in rest if v is not None))
