"""The columns of circular buffers in tensor memory."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.pipeline_ops import CircularBuffer
from wsdsl.ir.tcgen05 import allocated
from wsdsl.ir.tensor_ops import AllocateTensorMemory, TensorColumns
from wsdsl.ir.types import Columns, TensorMemory
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.tensor_scales import columns_of_scales
from wsdsl.lowering.tensor_sums import sum_columns


def in_tensor_memory(op: Op) -> bool:
    return isinstance(op, CircularBuffer) and op.space == "TMEM"


class TensorRings:
    """All of a kernel: their columns are allocated at once, for as long as the kernel runs."""

    def __init__(self, kernel: Kernel, builder: Builder, sizes: dict[str, int]) -> None:
        self.kernel, self.builder, self.sizes = kernel, builder, sizes
        self.taken = 0
        self.declarations: list[Op] = []
        rings = [op for op in kernel.of(CircularBuffer) if in_tensor_memory(op)]
        if rings:
            columns = sum(op.depth * self._slot(op)[-1] for op in rings)
            self.memory = builder.value("tensor_memory", TensorMemory(allocated(columns)))
            self.declarations.append(AllocateTensorMemory(result=self.memory))

    def _slot(self, op: CircularBuffer) -> tuple[int, ...]:
        """Where the fields of a slot begin, and where it ends."""
        (layout,) = op.layouts
        if op.block:
            widths = [columns_of_scales(tile, op.block, self.sizes) for tile in layout]
        else:
            widths = [sum_columns(self.kernel, tile, self.sizes) for tile in layout]
        return (0, *accumulate(widths))

    def place(self, op: CircularBuffer) -> tuple[Value, tuple[int, ...]]:
        """Its items, and where each field of one begins."""
        *fields, columns = self._slot(op)
        name = op.result.name.replace("_ring", "s")
        made = self.builder.value(name, Columns(columns, op.depth))
        where = dict[str, Any](label=made.name, memory=self.memory, first=self.taken, loc=op.loc)
        self.declarations.append(TensorColumns(result=made, **where))
        self.taken += columns * op.depth
        return made, tuple(fields)
