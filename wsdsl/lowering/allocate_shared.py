"""Give everything in SMEM its address.

Before:
    %slots: shared<49152 x 4> = allocate_shared(label="slots")
    %full: mbarrier<4> = allocate_barriers(label="full", arrivals=1)
After:
    %slots: shared<49152 x 4> = allocate_shared(label="slots", offset=0)
    %full: mbarrier<4> = allocate_barriers(label="full", arrivals=1, offset=229376)

Tiles come first, at multiples of 1024 bytes, as swizzling wants; mbarriers last. The kernel is then
SCHEDULED: it says all that runs.

Why here: nothing is allocated any more.
"""

from __future__ import annotations

import dataclasses

from wsdsl.diagnostics import Finding, ScheduleError
from wsdsl.ir.barrier_ops import AllocateBarriers
from wsdsl.ir.memory_ops import AllocateShared
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.target import SMEM_ALIGN, SMEM_BYTES
from wsdsl.ir.types import Barriers, Shared


def allocate_shared(kernel: Kernel) -> Kernel:
    offsets: dict[Op, int] = {}
    used = 0
    for op in kernel.body:
        if isinstance(op, AllocateShared):
            assert isinstance(op.result.type, Shared)
            offsets[op] = -(-used // SMEM_ALIGN) * SMEM_ALIGN
            used = offsets[op] + op.result.type.bytes * op.result.type.num
    for op in kernel.body:
        if isinstance(op, AllocateBarriers):
            assert isinstance(op.result.type, Barriers)
            offsets[op] = used
            used += 8 * op.result.type.num
    if used > SMEM_BYTES:
        message = f"the kernel needs {used} bytes of SMEM, a CTA has {SMEM_BYTES}"
        raise ScheduleError(Finding(message, kernel.loc, "use fewer stages or smaller tiles"))
    body = tuple(
        dataclasses.replace(op, offset=offsets[op])
        if isinstance(op, (AllocateShared, AllocateBarriers))
        else op
        for op in kernel.body
    )
    return dataclasses.replace(kernel, level="scheduled", body=body)
