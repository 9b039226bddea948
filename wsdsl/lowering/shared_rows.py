"""Reductions of rows that several warps share, by way of SMEM:

    store_partials(fn="add", x=%squares, shared=%partials)
    named_barrier_sync(barrier=8, num_warpgroups=1)
    %sum = reduce_partials(fn="add", shared=%partials, parts=4)

Reductions alternate between two buffers: a warp writes a buffer again only after a barrier that
follows the reads of all warps. At the end of a region all warps synchronize, so that it may be run
again.

Where CTAs of a cluster share rows, each warp sends its part to all of them, and each CTA waits for
the bytes of all parts. The two buffers are a pipeline whose state loops carry:

    elect() { mbarrier_arrive_expect_tx(barriers=%full, state=%s, tx_bytes=128) }
    sync_warp()
    store_partials(fn="add", x=%squares, shared=%partials, part=%part, ctas=8, barriers=%full, ...)
    mbarrier_wait(barriers=%full, state=%s)
    %sum = reduce_partials(fn="add", shared=%partials, parts=32, state=%s)
    %s1: state = advance(state=%s, num=2)

No barrier says that a buffer is free: a sender already has every warp's part of the reduction
before, which threads sent after their reads of this buffer. Several values of a row, each reduced
by a CTA alone, are sent together (`exchange`), consecutive in a buffer: all warps send them, and
threads read those of one.

While a row waits, registers have it as it was loaded: conversions are repeated after the wait.

Rows that are reduced themselves, to a value for each column, all warps share, of all consumers that
divide them.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from wsdsl.diagnostics import Loc
from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.op import Op, Region, Value, walk
from wsdsl.ir.types import Fragment, Lanes, Shared, Tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.register_tiles import RegisterTile

BUFFERS, WORD, WARPS = 2, 4, 4


class SharedRows:
    def __init__(
        self,
        builder: Builder,
        sync: Callable[[Loc | None], None],
        height: int,
        groups: int,
        apart: int,
        together: int,
    ) -> None:
        """`height`: rows of a fragment; `groups`: warpgroups that share columns, and those that
        have rows `apart`; `together`: values of a row that CTAs send each other, at the most.
        """
        self.together = together
        self.builder, self.sync = builder, sync
        self.height, self.groups, self.apart = height, groups, apart
        self.buffers: dict[int, list[Value]] = {}
        """By words."""
        self.turn = 0
        """The buffer of the next reduction."""
        self.unsettled = False
        """Whether a warp may still read what another one wrote."""
        self.sent: tuple[Value, Value] | None = None
        """Buffers and barriers by which CTAs share rows, ..."""
        self.state: Value | None = None
        """... and which is next."""
        self.loaded: list[RegisterTile] = []
        self.converted: list[RegisterTile] = []
        """In the region that is being made."""

    @contextmanager
    def region(self) -> Generator[None]:
        """Leave loads before a region as they are."""
        before, self.loaded, self.converted = (self.loaded, self.converted), [], []
        yield
        self.loaded, self.converted = before

    def are_shared(self, lanes: Lanes, ctas: int) -> bool:
        return lanes.warps * self.groups * ctas > 1

    def _part(self, ctas: int, loc: Loc | None) -> Value | None:
        """Which warpgroup this is of those that share rows."""
        b, found = self.builder, None
        if ctas > 1:
            found = b.times(b.rank(), self.groups, "part")
        if self.groups > 1:
            own = b.warpgroup()
            found = own if found is None else b.plus(found, own, "part")
        return found

    def remember(self, op: Op, made: RegisterTile, find: Callable[[Value], RegisterTile]) -> None:
        """Record a load, which stays in registers, or a conversion of one to more bits, which does
        not.
        """
        if isinstance(op, ops.Load):
            self.loaded.append(made)
        elif isinstance(op, ops.Cast) and find(op.x) in self.loaded:
            self.converted.append(made)

    def _again(self, loc: Loc | None) -> None:
        """Convert rows again from here on, from copies that CSE does not identify."""
        renewed: dict[Value, Value] = {}
        for tile in (tile for held in self.loaded for tile in (held, held.least)):
            for place, old in tile.made.items():
                if isinstance(old.type, Fragment) and old.type.dtype.bits < WORD * 8:
                    if old not in renewed:
                        new = self.builder.value(old.name, old.type)
                        renewed[old] = self.builder.add(
                            ops.Bitcast(result=new, x=old, loc=loc)
                        ).result
                    tile.made[place] = renewed[old]
        for tile in (tile for held in self.converted for tile in (held, held.least)):
            tile.made.clear()

    def reduce(self, fn: str, x: Value, ctas: int, result: Value, loc: Loc | None) -> Value:
        """Reduce across all warps that share rows, of `ctas` CTAs."""
        made = self._sent(fn, x, ctas, result, loc) if ctas > 1 else self._met(fn, x, result, loc)
        self._again(loc)
        return made

    def _met(self, fn: str, x: Value, result: Value, loc: Loc | None) -> Value:
        b, parts = self.builder, x.as_fragment.lanes.warps * self.groups
        shared = self._next_buffer(self._words(parts))
        where = dict[str, Any](fn=fn, shared=shared, each=self._each(parts), loc=loc)
        b.add(ops.StorePartials(x=x, part=self._part(1, loc), **where))
        self.sync(loc)
        self.unsettled = True
        return b.add(ops.ReducePartials(result=result, parts=parts, **where)).result

    def _each(self, parts: int) -> int:
        """Parts of a warpgroup's rows, where others have other rows."""
        return parts if self.apart > 1 else 0

    def next_state(self, loc: Loc | None) -> Value:
        """Of the buffer that CTAs write next; at first that of the first one."""
        if self.state is None:
            self.state = self.builder.first_state()
        return self.state

    def _sent(self, fn: str, x: Value, ctas: int, result: Value, loc: Loc | None) -> Value:
        b, parts = self.builder, x.as_fragment.lanes.warps * self.groups * ctas
        with self._exchanged([(fn, x)], ctas, loc) as where:
            return b.add(ops.ReducePartials(result=result, fn=fn, parts=parts, **where)).result

    @contextmanager
    def _exchanged(
        self, sent: Sequence[tuple[str, Value]], ctas: int, loc: Loc | None
    ) -> Generator[dict[str, Any]]:
        """Send the values of each warp; yield the fields of the ops that read them."""
        b, kind = self.builder, sent[0][1].as_fragment
        parts = kind.lanes.warps * self.groups * ctas
        state, size = self.next_state(loc), WORD * kind.rows * parts * self.apart
        if self.sent is None:
            shared = self._buffer(self.together * self._words(parts), BUFFERS)
            self.sent = shared, b.barriers("full", BUFFERS, 1, label="full")
        shared, full = self.sent
        part = self._part(ctas, loc)
        with b.elected():
            b.expect(full, state, size * len(sent))
        b.sync_threads(None)
        where = dict[str, Any](shared=shared, each=self._each(parts), state=state, loc=loc)
        for n, (fn, x) in enumerate(sent):
            to = dict[str, Any](part=part, ctas=ctas, barriers=full, offset=n * size)
            b.add(ops.StorePartials(fn=fn, x=x, **to, **where))
        b.wait(full, state)
        yield where
        self.state = b.next_state(state, BUFFERS)

    def exchanged(
        self, op: ops.ClusterAllgather, find: Callable[[Value], RegisterTile]
    ) -> dict[Value, RegisterTile]:
        """By result. All of them are there once one is asked for."""
        shape = find(op.x[0]).shape
        known: dict[int, list[list[Value]]] = {}

        def of_block(i: int) -> list[list[Value]]:
            if i not in known:
                own = [find(x).get(i, 0) for x in op.x]
                known[i] = self._exchange(own, shape.lanes, op.ctas, op.loc)
            return known[i]

        def tile(n: int, rank: int) -> RegisterTile:
            return RegisterTile(shape, lambda i, j: of_block(i)[n][rank])

        places = ((n, rank) for n in range(len(op.x)) for rank in range(op.ctas))
        return {v: tile(*place) for v, place in zip(op.result, places, strict=True)}

    def _exchange(
        self, values: Sequence[Value], lanes: Lanes, ctas: int, loc: Loc | None
    ) -> list[list[Value]]:
        """Return each of the values, one per row, of each CTA."""
        b, sent, made = self.builder, list[tuple[str, Value]](), list[list[Value]]()
        for x in values:
            if isinstance(x.type, Tile):
                spread = b.value(x.name, Fragment(x.type.dtype, 1, 1, lanes=lanes))
                x = b.add(ops.Full(result=spread, value=x, loc=loc)).result
            sent.append(("max", x))
        own, rows = lanes.warps * self.groups, sent[0][1].as_fragment.rows
        size = WORD * rows * own * ctas * self.apart
        with self._exchanged(sent, ctas, loc) as where:
            for n, x in enumerate(values):
                made.append([])
                for cta in range(ctas):
                    at = n * size + cta * own * WORD * rows
                    one = dict[str, Any](fn="max", parts=1, offset=at)
                    made[-1].append(b.make(ops.ReducePartials, x.name, x.type, **one, **where))
        self._again(loc)
        return made

    def reduce_rows(self, fn: str, x: Value, result: Value, loc: Loc | None) -> None:
        """Of all threads, whose warpgroups have rows of their own."""
        b, parts = self.builder, WARPS * self.apart
        shared = self._next_buffer(x.as_fragment.columns * parts)
        part = b.warpgroup() if self.apart > 1 else None
        where = dict[str, Any](fn=fn, shared=shared, over_rows=True, loc=loc)
        b.add(ops.StorePartials(x=x, part=part, **where))
        self.sync(loc)
        self.unsettled = True
        b.add(ops.ReducePartials(result=result, parts=parts, **where))

    def _words(self, parts: int) -> int:
        """Count the words of all rows, in `parts` parts."""
        return self.height * parts * self.apart

    def _next_buffer(self, words: int) -> Value:
        if words not in self.buffers:
            self.buffers[words] = [self._buffer(words, 1) for _ in range(BUFFERS)]
        turn, self.turn = self.turn, (self.turn + 1) % BUFFERS
        return self.buffers[words][turn]

    def _buffer(self, words: int, num: int) -> Value:
        size = WORD * words
        size = size if num == 1 else -(-size // SMEM_ALIGN) * SMEM_ALIGN
        return self.builder.shared("partials", Shared(size, num), label="partials")

    def settle(self, loc: Loc | None) -> None:
        """Synchronize before a region, and at its end."""
        if self.unsettled:
            self.sync(loc)
            self.unsettled = False


def exchanges(region: Region) -> bool:
    """Whether CTAs share rows in it."""
    return any(
        isinstance(op, ops.Reduce | ops.ClusterAllgather) and op.ctas > 1 for op in walk(region)
    )
