"""SCHEDULED: semaphores in GMEM, by which CTAs wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.effects import Arrive, Effects, Wait
from wsdsl.ir.op import SCHEDULED, Makers, Op, Value, op_class
from wsdsl.ir.types import I32


@op_class(SCHEDULED, "any", was="arrive_flag")
class SemaphoreArrive(Op):
    """red.release.gpu: one thread of the executing warpgroup (or the elected thread) adds `amount`
    (or `by`, an i32) to `tensor` (of i32) at `index`; with `wrap` (an i32) it adds 1, or resets a
    flag of `wrap` to 0. A thread that waits for the flag sees the earlier accesses of this thread,
    and of threads that had synchronized with it; not so without `release` (red.relaxed.gpu), which
    saves the wait until all of these have reached the L2.
    """

    tensor: Value
    index: tuple[Value, ...]
    amount: int = 1
    by: Value | None = None
    wrap: Value | None = None
    release: bool = True

    def effects(self, made: Makers) -> Effects:
        yield Arrive("semaphore", self.tensor, threads="one")

    def faults(self, made: Makers) -> Iterator[str]:
        yield from _type_faults(self.tensor)
        if self.by is not None and self.wrap is not None:
            yield "`by` and `wrap` exclude each other: a flag that wraps is raised by 1"
        elif self.amount != 1 and (self.by or self.wrap):
            yield f"amount={self.amount}, but `by` or `wrap` sets the amount"


@op_class(SCHEDULED, "any", ptx="ld.acquire.gpu", was="wait_flag")
class SemaphoreWait(Op):
    """Wait until `tensor` (of i32) at `index` is at least `count` (i32), polling with
    ld.acquire.gpu. Every thread that runs it waits and then sees what came before the arrivals.
    The CTAs that arrive must be running: those of one cluster do, and all of a "persistent" grid.
    """

    tensor: Value
    index: tuple[Value, ...]
    count: Value

    def effects(self, made: Makers) -> Effects:
        yield Wait("semaphore", self.tensor)

    def faults(self, made: Makers) -> Iterator[str]:
        yield from _type_faults(self.tensor)


def _type_faults(tensor: Value) -> Iterator[str]:
    if tensor.as_tensor.dtype != I32:
        yield "flags need a tensor of i32"
