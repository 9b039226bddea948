"""CTAs of a cluster that have each summed a part of a contraction send each other their sums.

    %far = map(fn="where", args=(%is_part_1, %acc_0, %acc_1))     # the other's slice
    send_fragment(value=%far, shared=%sums, state=%s, barriers=%full, cta=%other)
    elect() { mbarrier_arrive_expect_tx(barriers=%full, state=%s, tx_bytes=16384) }
    mbarrier_wait(barriers=%full, state=%s)
    %got = receive_fragment(shared=%sums, state=%s)
    %own = map(fn="where", args=(%is_part_1, %acc_1, %acc_0))
    %sum = map(fn="add", args=(%own, %got))
    named_barrier_sync(barrier=8, num_warpgroups=2)
    mbarrier_arrive(barriers=%empty, state=%s, cta=%other)
    ... what is done with the sums of the slice ...
    mbarrier_wait(barriers=%empty, state=%s)

The last wait ends when the other CTAs have read what was sent: their stage is then free for the
next tile, and none of their arrivals is in flight when the CTA ends.
"""

from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.types import Shared, Value
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_tiles import RegisterTile, Shape, held
from wsdsl.record import record


@record
class Field:
    """A sum's place in what a CTA sends: `start` bytes in, warpgroup by warpgroup."""

    start: int
    sum: RegisterTile
    slice: Shape
    bytes: int

    @property
    def own_bytes(self) -> int:
        """A warpgroup's."""
        return self.slice.blocks * self.block_bytes

    @property
    def block_bytes(self) -> int:
        return 64 * sum(self.slice.widths) * self.bytes

    def offset(self, i: int, j: int) -> int:
        return self.start + i * self.block_bytes + 64 * self.slice.first_column(j) * self.bytes


class ClusterExchange:
    """Of one tile."""

    def __init__(self, op: ops.ClusterReduce, context: PartitionContext) -> None:
        self.op, self.context, self.builder = op, context, context.builder
        assert op.shared is not None and op.full is not None and op.empty is not None
        assert op.state is not None and isinstance(op.shared.type, Shared)
        self.shared, self.full, self.empty, self.state = op.shared, op.full, op.empty, op.state
        self.bytes = op.shared.type.bytes
        self.each = self.bytes // (op.sharing - 1)

    def add(self, sums: list[RegisterTile]) -> list[RegisterTile]:
        """The whole sums of this CTA's slice."""
        b, op = self.builder, self.op
        fields = self._fields(sums)
        others = range(1, op.sharing)
        rank = b.rank()
        first = b.map("sub", rank, op.part, wish="first")
        is_part = [b.map("eq", op.part, b.integer(p), wish="is_part") for p in others]
        ctas: list[Value] = []
        for away in others:
            there = b.map("mod", b.plus(op.part, away), b.integer(op.sharing), wish="there")
            ctas.append(b.map("add", first, there, wish="other"))
            for field in fields:
                for i, j in field.slice.places():
                    piece = self._slice(field, i, j, away, is_part)
                    place = self._place(field, i, j, away)
                    b.add(ops.SendFragment(value=piece, barriers=self.full, cta=ctas[-1], **place))
        with b.elected():
            b.expect(self.full, self.state, self.bytes)
        b.wait(self.full, self.state)
        made = [[self._whole(f, i, j, is_part) for i, j in f.slice.places()] for f in fields]
        b.sync_threads(op.barrier, self.context.num_warpgroups)
        for cta in ctas:
            b.arrive(self.empty, self.state, cta=cta)
        return [held(f.slice, tuple(v)) for f, v in zip(fields, made, strict=True)]

    def finish(self) -> None:
        """Wait, after the last use of the accumulators, until other CTAs have read theirs."""
        self.builder.wait(self.empty, self.state)

    def _fields(self, sums: list[RegisterTile]) -> list[Field]:
        found: list[Field] = []
        start = 0
        for sum, own in zip(sums, self.op.result, strict=True):
            slice = self.context.shapes.of(own.as_tile.axes)
            assert sum.shape.widths == slice.widths * self.op.sharing
            found.append(Field(start, sum, slice, own.as_tile.dtype.bytes))
            start += found[-1].own_bytes * self.context.num_warpgroups
        assert start == self.each
        return found

    def _slice(self, field: Field, i: int, j: int, away: int, is_part: list[Value]) -> Value:
        """Return a fragment of the slice of the CTA that is `away` from this one."""
        b, sharing = self.builder, self.op.sharing
        chunks = len(field.slice.widths)
        found = field.sum.get(i, away * chunks + j)
        for part, holds in enumerate(is_part, 1):
            other = field.sum.get(i, (part + away) % sharing * chunks + j)
            found = b.map("where", holds, other, found, type=found.type, wish="slice")
        return found

    def _place(self, field: Field, i: int, j: int, away: int) -> dict[str, Any]:
        """Return the buffer of a fragment that comes from, or goes to, the CTA that is `away`."""
        shift = None
        if self.context.num_warpgroups > 1:
            shift = self.builder.times(self.context.warpgroup, field.own_bytes, "shift")
        offset = (away - 1) * self.each + field.offset(i, j)
        return dict(shared=self.shared, offset=offset, shift=shift, state=self.state)

    def _whole(self, field: Field, i: int, j: int, is_part: list[Value]) -> Value:
        b = self.builder
        total = self._slice(field, i, j, 0, is_part)
        for away in range(1, self.op.sharing):
            got = b.value("got", total.as_fragment)
            b.add(ops.ReceiveFragment(result=got, **self._place(field, i, j, away)))
            total = b.map("add", total, got, wish="sum")
        return total
