"""Early start (PDL): accesses before the previous kernel on the stream is complete.

Partitions that access GMEM have waited for it (`griddep_wait`), except those that only read
tensors of `Schedule.pdl_independent`, which that kernel does not write. The rest of a CTA
waits, so that no CTA ends before the previous kernel has; and the next kernel is let start no
sooner, so that at most two kernels of a stream run at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.analysis.tensor_accesses import touch_in, touches
from wsdsl.ir.op import Kernel, Problem, Region, walk
from wsdsl.ir.ops import GriddepLaunchDependents, GriddepWait, Partition


def constant_tensors(kernel: Kernel) -> frozenset[str]:
    return frozenset((kernel.schedule.pdl_independent if kernel.schedule else None) or ())


def only_reads(kernel: Kernel, region: Region, names: frozenset[str]) -> bool:
    """Whether all that a region does to GMEM is to read tensors of these names."""
    found = (touch_in(kernel.effects_of[id(op)]) for op in walk(region))
    return all(t is None or (t.tensor in names and not t.writes) for t in found)


def predecessors_are_waited_for(kernel: Kernel) -> Iterator[Problem]:
    """Where a kernel may start early, threads wait before they access GMEM: all before the
    partitions, or those of each partition that does more than read constant tensors.
    """
    waits = kernel.of(GriddepWait)
    if not waits:
        return
    constant = constant_tensors(kernel)
    for op, found in touches(kernel):
        if found.tensor in constant and found.writes:
            yield op, f"this writes `{found.tensor}`, which the schedule declares pdl_independent"
    bodies = [kernel.body, *(op.body for op in kernel.body if isinstance(op, Partition))]
    own = [op for body in bodies for op in body]
    for op in waits:
        if not any(op is known for known in own):
            yield op, "griddep_wait must be outside of any region of its partition or kernel"
    for op in kernel.body:
        if isinstance(op, GriddepWait):
            return
        region = op.body if isinstance(op, Partition) else (op,)
        reads = isinstance(op, Partition) and only_reads(kernel, region, constant)
        yield from _before_the_wait(kernel, region, allowed=reads)


def _before_the_wait(kernel: Kernel, region: Region, *, allowed: bool) -> Iterator[Problem]:
    for op in region:
        if isinstance(op, GriddepWait):
            return
        for inner in walk((op,)):
            if isinstance(inner, GriddepLaunchDependents):
                yield inner, "griddep_launch_dependents comes before griddep_wait"
            elif not allowed and touch_in(kernel.effects_of[id(inner)]) is not None:
                yield inner, "this accesses GMEM before griddep_wait"
