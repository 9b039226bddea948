"""Reductions of rows that several warps share, by way of SMEM:

    store_partials(fn="add", x=%squares, shared=%partials)
    named_barrier_sync(barrier=8, num_warpgroups=1)
    %sum = reduce_partials(fn="add", shared=%partials, parts=4)

There are two buffers, which reductions take in turn: who writes one again has met the others behind
what they read in it. At the end of a region all meet, so that it may be run again. Where CTAs of a
cluster share rows, each writes its part to all of them, and the cluster meets. Outside of loops,
where nothing is written again, each CTA waits for the words that others send it instead:

    %s: state = initial_state(parity=0)
    elect() { arrive_expect_tx(barriers=%full, state=%s, tx_bytes=128) }
    store_partials(fn="add", x=%squares, shared=%partials, part=%part, ctas=8, barriers=%full, ...)
    wait_barrier(barriers=%full, state=%s)
    %sum = reduce_partials(fn="add", shared=%partials, parts=32)

While a row waits, it is held as it was loaded: what it was converted to is made again behind that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wsdsl.diagnostics import Loc
from wsdsl.ir.barrier_ops import (
    AllocateBarriers,
    ArriveExpectTx,
    CtaRank,
    Elect,
    InitialState,
    NamedBarrierSync,
    SyncCluster,
    WaitBarrier,
    WarpgroupIndex,
)
from wsdsl.ir.memory_ops import AllocateShared, ReducePartials, StorePartials
from wsdsl.ir.op import Op, Value
from wsdsl.ir.tile_ops import Bitcast, Cast, Load
from wsdsl.ir.types import Barriers, Fragment, Lanes, Shared, State
from wsdsl.lowering.builder import INT, Builder
from wsdsl.lowering.register_tiles import RegisterTile

BUFFERS, WORD = 2, 4


class SharedRows:
    def __init__(
        self,
        builder: Builder,
        declarations: list[Op],
        meet: Callable[[Loc | None], NamedBarrierSync],
        height: int,
        groups: int,
    ) -> None:
        """`height`: rows of a piece; `groups`: warpgroups that share columns."""
        self.builder, self.declarations, self.meet = builder, declarations, meet
        self.height, self.groups = height, groups
        self.buffers: list[Value] = []
        self.turn = 0
        """The buffer of the next reduction."""
        self.unsettled = 0
        """Of how many CTAs a warp may still read what another one wrote."""
        self.runs_once = True
        """Whether what is made now is in no loop or branch."""
        self.loaded: list[RegisterTile] = []
        self.converted: list[RegisterTile] = []

    def are_shared(self, lanes: Lanes, ctas: int) -> bool:
        return lanes.warps * self.groups * ctas > 1

    def _part(self, ctas: int, loc: Loc | None) -> Value | None:
        """Which warpgroup this is of those that share rows."""
        b, found = self.builder, None
        if ctas > 1:
            found = b.times(b.add(CtaRank(result=b.value("rank", INT))).result, self.groups, "part")
        if self.groups > 1:
            own = b.add(WarpgroupIndex(result=b.value("wg", INT), loc=loc)).result
            found = own if found is None else b.plus(found, own, "part")
        return found

    def remember(self, op: Op, made: RegisterTile, find: Callable[[Value], RegisterTile]) -> None:
        """What is loaded stays in registers; what is converted from that to more bits need not."""
        if isinstance(op, Load):
            self.loaded.append(made)
        elif isinstance(op, Cast) and find(op.x) in self.loaded:
            self.converted.append(made)

    def _again(self, loc: Loc | None) -> None:
        """From here on it is converted anew, and from what nobody knows to be the same."""
        renewed: dict[Value, Value] = {}
        for tile in (tile for held in self.loaded for tile in (held, held.least)):
            for place, old in tile.made.items():
                if isinstance(old.type, Fragment) and old.type.dtype.bits < WORD * 8:
                    if old not in renewed:
                        new = self.builder.value(old.name, old.type)
                        renewed[old] = self.builder.add(Bitcast(result=new, x=old, loc=loc)).result
                    tile.made[place] = renewed[old]
        for tile in (tile for held in self.converted for tile in (held, held.least)):
            tile.made.clear()

    def reduce(self, fn: str, x: Value, ctas: int, result: Value, loc: Loc | None) -> Value:
        """Of all warps that share rows, of so many CTAs."""
        made = self._reduce(fn, x, ctas, result, loc)
        if self.runs_once:
            self._again(loc)
        return made

    def _reduce(self, fn: str, x: Value, ctas: int, result: Value, loc: Loc | None) -> Value:
        b, kind = self.builder, x.as_fragment
        parts = kind.lanes.warps * self.groups * ctas
        if ctas > 1 and self.runs_once:
            return self._sent(fn, x, ctas, result, loc)
        if not self.buffers:
            self.buffers = [self._buffer(parts) for _ in range(BUFFERS)]
        shared, self.turn = self.buffers[self.turn], (self.turn + 1) % BUFFERS
        part = self._part(ctas, loc)
        b.add(StorePartials(fn=fn, x=x, shared=shared, part=part, ctas=ctas, loc=loc))
        self.unsettled = ctas
        self._meet(loc)
        made = ReducePartials(result=result, fn=fn, shared=shared, parts=parts, loc=loc)
        return b.add(made).result

    def _sent(self, fn: str, x: Value, ctas: int, result: Value, loc: Loc | None) -> Value:
        b, kind = self.builder, x.as_fragment
        parts = kind.lanes.warps * self.groups * ctas
        shared, full = self._buffer(parts), b.value("full", Barriers(1))
        self.declarations.append(AllocateBarriers(result=full, label="full", arrivals=1))
        state = b.add(InitialState(result=b.value("s", State()), parity=0, loc=loc)).result
        part = self._part(ctas, loc)
        expect = ArriveExpectTx(barriers=full, state=state, tx_bytes=WORD * kind.rows * parts)
        b.add(Elect(body=(expect,), loc=loc))
        where = dict[str, Any](shared=shared, part=part, ctas=ctas, barriers=full, state=state)
        b.add(StorePartials(fn=fn, x=x, **where, loc=loc))
        b.add(WaitBarrier(barriers=full, state=state, loc=loc))
        made = ReducePartials(result=result, fn=fn, shared=shared, parts=parts, loc=loc)
        return b.add(made).result

    def _buffer(self, parts: int) -> Value:
        made = self.builder.value("partials", Shared(WORD * self.height * parts, 1))
        self.declarations.append(AllocateShared(result=made, label="partials"))
        return made

    def settle(self, loc: Loc | None) -> None:
        """In front of a region, and at the end of one."""
        if self.unsettled:
            self._meet(loc)
            self.unsettled = 0

    def _meet(self, loc: Loc | None) -> None:
        self.builder.add(SyncCluster(loc=loc) if self.unsettled > 1 else self.meet(loc))
