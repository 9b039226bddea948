"""Give everything in SMEM its address.

Before:
    %slots: shared<49152 x 4> = allocate_shared(label="slots")
    %full: mbarrier<4> = allocate_mbarriers(label="full", arrivals=1)
After:
    %slots: shared<49152 x 4> = allocate_shared(label="slots", offset=0)
    %full: mbarrier<4> = allocate_mbarriers(label="full", arrivals=1, offset=229376)

Tiles come first, at multiples of 1024 bytes, as swizzling wants, the largest in front: the ring of
the products' operands. mbarriers come last, and the word that says where tensor memory begins. The
kernel is then SCHEDULED: it says all that runs.

An H200's SMEM behaves like two memories, of some 113 KB each: stores that are staged in one slow
down products and loads whose slots lie in the same. 8192 x 8192 x 256 by 128 x 128 in ping-pong,
with 4 slots (128 KB), in us, by the first byte of the slots and with stores staged behind or in
front:

    slots from     0    16    32    48    64    72    80    94 KB
    behind      57.9  59.2  65.9  75.3  74.4
    in front                74.9  70.2  67.7  64.3  62.5  60.5

Why here: nothing is allocated any more.
"""

import dataclasses
from typing import Any

from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.op import Kernel, with_fields
from wsdsl.ir.ops import with_partitions
from wsdsl.ir.plan import placed
from wsdsl.lowering.schedule_findings import smem_fault

FOR_PASSES = dict[str, Any](staging=1, asks_early=()) | dict.fromkeys(
    ("in_order", "late_loads", "copies_ahead", "order_barriers"), False
)


def allocate_shared(kernel: Kernel) -> Kernel:
    ops = [op for op, _ in kernel.allocations]
    places = placed([(op.smem_align, op.smem_bytes) for op in ops])
    moved = {op: with_fields(op, offset=at.start) for op, at in zip(ops, places, strict=True)}
    used = max((place.stop for place in places), default=0)
    if used > kernel.target.smem_bytes:
        room, hint = kernel.target.smem_bytes, "use fewer stages or smaller tiles"
        raise ScheduleError(smem_fault("the kernel needs", used, room, hint, kernel.loc))
    kernel = kernel.with_body(tuple(moved.get(op, op) for op in kernel.body))
    made = with_partitions(kernel, lambda op: with_fields(op, **FOR_PASSES))
    return dataclasses.replace(made, level="scheduled")
