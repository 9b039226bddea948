"""Rules of counters in SMEM: their accesses, and one layout for all ops on them."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.analysis.tensor_accesses import touches
from wsdsl.ir.op import Kernel, Problem, Value, operands, walk
from wsdsl.ir.ops import Bins, Partition


def bins_have_one_layout(kernel: Kernel) -> Iterator[Problem]:
    ops = [op for op in kernel.ops if isinstance(op, Bins)]
    if not ops:
        return
    of_item = dict[Value, tuple[object, ...]]()
    for op in ops:
        layout = op.tensor, op.extents, op.copies
        if of_item.setdefault(op.shared, layout) != layout:
            yield op, "other ops use these counters with another tensor, extents or copies"
    for op in (op for op in kernel.ops if not isinstance(op, Bins)):
        if of_item.keys() & {*operands(op)}:
            yield op, "only ops of counters can access counters"
    counted = {op.tensor.name for op in ops}
    for op, touch in touches(kernel):
        if touch.tensor in counted and not touch.adds:
            yield op, f"{touch.tensor} is counted in SMEM: until the CTA ends, only adds are legal"
    for partition in kernel.of(Partition):
        for op in walk(partition.body):
            by = getattr(op, "by", None) if isinstance(op, Bins) else None
            if by not in (None, partition.num_warpgroups):
                yield op, f"by={by}: the partition has {partition.num_warpgroups} warpgroups"
