"""Keep one group of wgmmas in flight: wait for the last iteration's, not for this one's.

Before:
    %acc3, %s3 = for_range(index=%k, start=%zero, ..., init=(%acc0, %s0), args=(%acc1, %s1)) {
      wait_barrier(barriers=%full, state=%s1)
      ...
      wgmma_commit()
      wgmma_wait(pending=0)
      arrive_barrier(barriers=%empty, state=%s1)
      ...
      yield(values=(%acc2, %s2))
    }
    %sum = wgmma_wait(pending=0, accumulators=(%acc3,))
After:
    %acc3, %s3, %last = for_range(..., init=(..., %s0), args=(..., %before: state)) {
      wait_barrier(barriers=%full, state=%s1)
      ...
      wgmma_commit()
      wgmma_wait(pending=1)
      %more: bool = map(fn="gt", args=(%k, %zero))
      arrive_barrier(barriers=%empty, state=%before, pred=%more)
      ...
      yield(values=(%acc2, %s2, %s1))
    }
    %sum = wgmma_wait(pending=0, accumulators=(%acc3,))
    %any: bool = map(fn="gt", args=(%stop, %zero))
    arrive_barrier(barriers=%empty, state=%last, pred=%any)

The tensor cores then have the next products before the last ones are done, and a slot is given
back an iteration later, when nothing reads it any more. A ring that is too short to hold the slots
of two iterations keeps its waits. In ping-pong the next one's products queue up
behind this one's last.

Of several products in a group, rows in blocks of 64, the second half is started behind the wait:

    %acc3 = wgmma(acc=%acc1, a=%a0, b=%b, ...)
    wgmma_commit()
    wgmma_wait(pending=1)
    arrive_barrier(barriers=%empty, state=%before, pred=%more)
    %acc4 = wgmma(acc=%acc2, a=%a1, b=%b, ...)
    wgmma_commit()

A warpgroup can not run far ahead of the tensor cores: it would come to the wait when most of what
it has started is done, and the slot would be given back late.

Why here: needs the waits that `lower_tiles` places; a wait that returns no fragments says that
nothing in the body reads the sums.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from wsdsl.ir.barrier_ops import ArriveBarrier, ForRange, NamedBarrierArrive
from wsdsl.ir.fragment_ops import Wgmma, WgmmaCommit, WgmmaWait
from wsdsl.ir.op import Kernel, Op, Region, results_of
from wsdsl.ir.tile_ops import Constant, Map, Yield
from wsdsl.ir.types import Barriers, State
from wsdsl.ir.walk import Namer, walk, with_regions
from wsdsl.lowering.builder import Builder


def overlap_products(kernel: Kernel) -> Kernel:
    builder = Builder(Namer.of(kernel))
    return dataclasses.replace(kernel, body=_region(kernel.body, builder))


def _region(region: Region, builder: Builder) -> Region:
    with builder.region() as made:
        releases: list[Op] = []
        for i, op in enumerate(region):
            op = with_regions(op, lambda inner: _region(inner, builder))
            if isinstance(op, ForRange) and _waits(region[i + 1 :]) and _overlaps(op):
                op, releases = _overlap(op, builder)
                builder.add(op)
                continue
            if isinstance(op, NamedBarrierArrive):
                _hand_over(op, builder.ops)
                continue
            builder.add(op)
            if releases and isinstance(op, WgmmaWait) and op.pending == 0:
                builder.ops += releases
                releases = []
        assert not releases, "a loop that leaves products in flight is followed by a wait"
    return tuple(made)


def _hand_over(op: NamedBarrierArrive, ops: list[Op]) -> None:
    """Who is next may start when the last products of a loop are started: they need not be over."""
    at = len(ops)
    while at and isinstance(ops[at - 1], (WgmmaWait, Map, Constant, ArriveBarrier)):
        at -= 1
    ops.insert(at if at and isinstance(ops[at - 1], ForRange) else len(ops), op)


def _at(body: Region) -> int | None:
    """Where a body waits for products that nothing in it reads, and gives back the slots next."""
    for i, op in enumerate(body):
        if isinstance(op, WgmmaWait) and op.pending == 0 and not op.accumulators:
            rest = [o for o in body[i + 1 :] if isinstance(o, (ArriveBarrier, WgmmaWait))]
            if rest and all(isinstance(o, ArriveBarrier) and o.pred is None for o in rest):
                return i if _deep_enough(rest) else None
    return None


def _waits(behind: Region) -> bool:
    return any(isinstance(op, WgmmaWait) and op.pending == 0 for op in behind)


def _overlaps(op: ForRange) -> bool:
    return _at(op.body) is not None and _one_slot(op)


def _one_slot(op: ForRange) -> bool:
    """Whether an iteration gives back the slot that it began with: where it takes a second one, the
    state of that before the loop is not at hand."""
    inside = {v for inner in walk(op.body) for v in results_of(inner)}
    arrives = (o for o in op.body if isinstance(o, ArriveBarrier))
    return not any(o.state in inside for o in arrives)


def _early(body: Region, at: int) -> int | None:
    """Where the second half of the products begins for which `at` waits; None if it is but one."""
    products: list[int] = []
    for i, op in enumerate(body[: at - 1]):
        if isinstance(op, (WgmmaCommit, WgmmaWait)):
            products.clear()
        elif isinstance(op, Wgmma):
            products.append(i)
    return products[len(products) // 2] if len(products) > 1 else None


def _deep_enough(releases: Sequence[Op]) -> bool:
    """A body waits for its own slots while it holds the last one's: both must fit the ring."""
    held = Counter(o.barriers for o in releases if isinstance(o, ArriveBarrier))
    return all(
        isinstance(barriers.type, Barriers) and barriers.type.num >= 2 * count
        for barriers, count in held.items()
    )


def _overlap(op: ForRange, b: Builder) -> tuple[ForRange, list[Op]]:
    """The loop with its releases an iteration late, and what is left to release behind it."""
    at = _at(op.body)
    assert at is not None
    b.loc = op.loc
    late = [
        (arrive, b.value("before", State()), b.value("last", State()))
        for arrive in op.body[at + 1 :]
        if isinstance(arrive, ArriveBarrier)
    ]
    early = _early(op.body, at)
    with b.region() as body:
        for i, inner in enumerate(op.body[:-1]):
            if i == (at if early is None else early):
                if early is not None:
                    b.add(WgmmaCommit(loc=inner.loc))
                b.add(WgmmaWait(pending=1, loc=op.body[at].loc))
                more = b.map("gt", op.index, op.start, wish="more")
                for arrive, before, _ in late:
                    b.add(dataclasses.replace(arrive, state=before, pred=more))
            if i != at and not (i > at and isinstance(inner, ArriveBarrier)):
                b.add(inner)
        ended = op.body[-1]
        assert isinstance(ended, Yield)
        states = tuple(arrive.state for arrive, _, _ in late)
        b.add(dataclasses.replace(ended, values=(*ended.values, *states)))
    first = tuple(op.init[op.args.index(s)] if s in op.args else s for s in states)
    changed = dataclasses.replace(
        op,
        result=(*op.result, *(last for _, _, last in late)),
        init=(*op.init, *first),
        args=(*op.args, *(before for _, before, _ in late)),
        body=tuple(body),
    )
    with b.region() as releases:
        some = b.map("gt", op.stop, op.start, wish="any")
        for arrive, _, last in late:
            b.add(dataclasses.replace(arrive, state=last, pred=some))
    return changed, list(releases)
