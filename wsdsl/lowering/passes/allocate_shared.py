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
from collections.abc import Mapping

from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.op import Kernel, Op, with_fields
from wsdsl.ir.ops import AllocateMbarriers, AllocateShared, Partition, Tcgen05Alloc
from wsdsl.ir.types import Barriers, Shared
from wsdsl.lowering.schedule_findings import smem_fault


def allocate_shared(kernel: Kernel) -> Kernel:
    offsets: dict[Op, int] = {}
    used = 0
    tiles = [op for op in kernel.body if isinstance(op, AllocateShared)]
    for op in sorted(tiles, key=_size, reverse=True):
        offsets[op] = -(-used // SMEM_ALIGN) * SMEM_ALIGN
        used = offsets[op] + _size(op)
    for op in kernel.body:
        if isinstance(op, AllocateMbarriers):
            offsets[op] = used
            used += 8 * op.result.type_as(Barriers).num
    for op in kernel.body:
        if isinstance(op, Tcgen05Alloc):
            offsets[op] = used
            used += 8
    if used > kernel.target.smem_bytes:
        room, hint = kernel.target.smem_bytes, "use fewer stages or smaller tiles"
        raise ScheduleError(smem_fault("the kernel needs", used, room, hint, kernel.loc))
    body = tuple(_placed(op, offsets) for op in kernel.body)
    return dataclasses.replace(kernel, level="scheduled", body=body)


def _placed(op: Op, offsets: Mapping[Op, int]) -> Op:
    if isinstance(op, (AllocateShared, AllocateMbarriers, Tcgen05Alloc)):
        return with_fields(op, offset=offsets[op])
    if isinstance(op, Partition):
        flags = ("in_order", "late_loads", "copies_ahead", "order_barriers")
        return with_fields(op, staging=1, asks_early=(), **dict.fromkeys(flags, False))
    return op


def _size(op: AllocateShared) -> int:
    kind = op.result.type_as(Shared)
    return kind.bytes * kind.num
