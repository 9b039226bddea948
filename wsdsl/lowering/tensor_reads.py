"""Sums that threads read in tensor memory: piece by piece, as stores ask for them. The slot is
given back to the thread that multiplies behind the last piece, not behind the stores.

    %x: acc<f32[64x64]> = tensor_load(sums=%sums, state=%s, column=64, half=1)
    %y: frag<f32[64x64]> = tensor_wait(loads=(%x,))
    tensor_fence()
    arrive_barrier(barriers=%empty, state=%s, each_warp=True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wsdsl.ir.barrier_ops import ArriveBarrier, NamedBarrierSync, WaitBarrier
from wsdsl.ir.fragment_ops import ZeroUnless
from wsdsl.ir.op import Op, Region, Value, regions
from wsdsl.ir.slot_ops import SumInTensor, SumToTensor
from wsdsl.ir.tensor_ops import TensorFence, TensorLoad, TensorWait
from wsdsl.ir.types import Accumulator, Fragment, Tile
from wsdsl.ir.walk import walk
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_tiles import RegisterTile


class TensorReads:
    """The sums in one slot, that of `state`."""

    def __init__(
        self, ops: Sequence[SumInTensor], release: ArriveBarrier | None, context: PartitionContext
    ) -> None:
        """`release`: what gives it back, unless something is stored there first."""
        self.release, self.context = release, context
        self.started: dict[Value, Value] = {}
        self.pieces = {op.result: self._pieces(op) for op in ops}
        self.unread = {
            (value, *place) for value, x in self.pieces.items() for place in x.shape.places()
        }

    @classmethod
    def of(cls, body: Region, context: PartitionContext) -> dict[Value, TensorReads]:
        """By the sums: in both regions of a branch they may lie in the same slot."""
        if not any(isinstance(op, SumInTensor) for op in walk(body)):
            return {}
        releases = {op.state: op for op in walk(body) if isinstance(op, ArriveBarrier)}
        changed = {op.state for op in walk(body) if isinstance(op, SumToTensor)}
        given_back = {state: op for state, op in releases.items() if state not in changed}
        found = dict[Value, TensorReads]()

        def within(region: Region) -> None:
            own: dict[Value, list[SumInTensor]] = {}
            for op in region:
                for inner in regions(op):
                    within(inner)
                if isinstance(op, SumInTensor):
                    own.setdefault(op.state, []).append(op)
            for state, ops in own.items():
                reads = cls(ops, given_back.get(state), context)
                found.update((op.result, reads) for op in ops)

        within(body)
        return found

    def begin(self, op: SumInTensor, scalar: Callable[[Value], Value]) -> RegisterTile:
        """The sum, whose pieces are read when they are asked for; `scalar`: what stands for one."""
        if op.started is not None:
            self.started[op.result] = scalar(op.started)
        return self.pieces[op.result]

    def _pieces(self, op: SumInTensor) -> RegisterTile:
        shape = self.context.shapes.of(op.result.as_tile.axes)
        return RegisterTile(shape, lambda i, j: self._read(op, i, j))

    def _read(self, op: SumInTensor, i: int, j: int) -> Value:
        b, shape = self.context.builder, self.pieces[op.result].shape
        kind = shape.piece(op.result.as_tile.dtype, j)
        assert isinstance(kind, Fragment) and not isinstance(kind, Tile)
        load = TensorLoad(
            result=b.value("cells", Accumulator(kind.dtype, kind.rows, kind.columns)),
            sums=op.sums,
            state=op.state,
            column=op.column + shape.first_column(j),
            half=i,
            apart=shape.width if self.context.num_warpgroups > 1 else 0,
            loc=op.loc,
        )
        if not _is_fenced(b.ops):
            b.add(TensorFence(after=True, loc=op.loc))
        b.add(load)
        sum = b.value("sum", kind)
        b.add(TensorWait(result=(sum,), loads=(load.result,), loc=op.loc))
        self.unread.discard((op.result, i, j))
        if self.release is not None and not self.unread:
            b.add(TensorFence(loc=op.loc))
            b.add(self.release)
        started = self.started.get(op.result)
        if started is None:
            return sum
        made = ZeroUnless(result=b.value("sum", kind), x=sum, cond=started, loc=op.loc)
        return b.add(made).result

    def finish(self) -> None:
        """What nobody asked for is read, too."""
        assert self.release is not None
        for pieces in self.pieces.values():
            pieces.all()


def _is_fenced(ops: Sequence[Op]) -> bool:
    """Whether a fence has followed what threads last waited for."""
    for op in reversed(ops):
        if isinstance(op, TensorFence):
            return op.after
        if regions(op) or isinstance(op, (WaitBarrier, NamedBarrierSync)):
            return False
    return False
