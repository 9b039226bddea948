"""The columns of circular buffers in tensor memory, and of scales that are copied there."""

from itertools import accumulate
from typing import Any

from wsdsl.diagnostics import Loc
from wsdsl.ir import ops
from wsdsl.ir.hardware.tcgen05_shapes import allocated
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.types import Columns, SharedTile, TensorMemory, Tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.tmem_accumulators import sum_columns
from wsdsl.lowering.tmem_operands import operand_width
from wsdsl.lowering.tmem_scales import columns_of_scales


def awaited(b: Builder, of_all: bool, barriers: Value, state: Value, fenced: bool = True) -> None:
    """Wait in one thread (`of_all` of a warpgroup); `fenced` before accesses of TMEM."""
    with b.elected(of_all):
        b.wait(barriers, state)
        if fenced:
            b.fence_tmem(after=True)


def stored(b: Builder, barriers: Value, state: Value, cta: Value | None = None) -> None:
    """Let each warp arrive when its stores to TMEM are complete."""
    b.add(ops.Tcgen05WaitSt(loc=b.loc))
    b.fence_tmem()
    b.arrive(barriers, state, cta=cta, each_warp=True)


def in_tensor_memory(op: Op) -> bool:
    return isinstance(op, ops.Pipeline) and op.space == "TMEM"


def _stored(kernel: Kernel) -> frozenset[Value]:
    """Return the pipelines of operands that threads store."""
    slots = {op.slot for op in kernel.of(ops.StoreToSlot)}
    return frozenset(op.ring for op in kernel.of(ops.ProducerAcquire) if op.result in slots)


class TensorRings:
    """All of a kernel: their columns are allocated at once, for as long as the kernel runs."""

    def __init__(self, kernel: Kernel, builder: Builder, sizes: dict[str, int]) -> None:
        self.kernel, self.builder, self.sizes = kernel, builder, sizes
        self.declarations: list[Op] = []
        # Sums come first: wide ones begin at multiples of what their columns are.
        rings = [op for op in kernel.of(ops.Pipeline) if in_tensor_memory(op)]
        self.first: dict[Value, int] = {}
        used, self.operands = 0, _stored(kernel)
        for op in sorted(rings, key=lambda op: (op.block, op.result in self.operands)):
            self.first[op.result] = used
            used += op.depth * self._slot(op)[0]
        self.copied: dict[Value, int] = {}
        """By scales that are copied, where they begin."""
        columns = 0
        for op in kernel.of(ops.CopyScales):
            self.copied[op.result] = columns
            columns += columns_of_scales(op.value.type_as(SharedTile), op.block, sizes)
        if rings:
            self.memory = builder.value("tensor_memory", TensorMemory(allocated(used + columns)))
            self.declarations.append(ops.Tcgen05Alloc(result=self.memory))
        if columns:
            self.scales = self.columns("scales", Columns(columns, 1), used)

    def _slot(self, op: ops.Pipeline) -> tuple[int, tuple[tuple[int, ...], ...]]:
        """Its columns, and where the fields of each layout begin."""
        ends = [(0, *accumulate(self._width(op, tile) for tile in own)) for own in op.layouts]
        return max(end for *_, end in ends), tuple(tuple(fields) for *fields, _ in ends)

    def _width(self, op: ops.Pipeline, tile: Tile) -> int:
        if op.block:
            return columns_of_scales(tile, op.block, self.sizes)
        if op.result in self.operands:
            return operand_width(tile, self.sizes)
        return sum_columns(self.kernel, tile, self.sizes)

    def place(self, op: ops.Pipeline) -> tuple[Value, tuple[tuple[int, ...], ...]]:
        """Its items, and where each field of one begins, by layout."""
        columns, fields = self._slot(op)
        name, kind = op.result.name.replace("_ring", "s"), Columns(columns, op.depth)
        return self.columns(name, kind, self.first[op.result], op.loc), fields

    def columns(self, name: str, kind: Columns, first: int, loc: Loc | None = None) -> Value:
        made = self.builder.value(name, kind)
        where = dict[str, Any](label=made.name, memory=self.memory, first=first, loc=loc)
        self.declarations.append(ops.TmemColumns(result=made, **where))
        return made
