"""Counters in SMEM, for what a kernel adds to memory at places that it computes (`H[x[n]] += 1`).

Where all threads add to the same few lines of memory, L2 takes one addition after the other. So a
CTA adds to counters of its own, for as many tiles as it has, and adds these to memory at its end:

    clear_bins(tensor=%H, shared=%counters, extents=(64,), copies=32, by=4)
    named_barrier_sync(barrier=8, num_warpgroups=4)
    for_range(index=%work, ...) {
      ...
      add_bins(tensor=%H, index=(%place,), value=%one, shared=%counters, extents=(64,), ...)
    }
    named_barrier_sync(barrier=8, num_warpgroups=4)
    store_bins(tensor=%H, shared=%counters, extents=(64,), copies=32, by=4)

The schedule says which elements are privatized. Additions to others go to memory, so that results
do not depend on the schedule. Lanes have separate copies, as many as SMEM has room for, where they
may add to the same element at the same time.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from wsdsl.diagnostics import Finding, counted
from wsdsl.ir.analysis.tensor_accesses import touches
from wsdsl.ir.hardware.gmem_limits import ADDED_ATOMICALLY
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.op import Kernel, Op, Value, once
from wsdsl.ir.ops import AddBins, ClearBins, Contract, Store, StoreBins, StoreGlobal
from wsdsl.ir.plan import PlannedCounters
from wsdsl.ir.types import Axis, Shared
from wsdsl.lowering.axes import is_scattered
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_layout import holds_vectors
from wsdsl.lowering.schedule_findings import smem_fault
from wsdsl.lowering.smem_allocations import smem_bytes
from wsdsl.schedule import Schedule

MOST_COPIES = 32
"""One for each lane."""
RESERVED = 1024
"""Bytes of SMEM that the GPU reserves for each CTA."""


@once
def countable(kernel: Kernel) -> dict[str, Store]:
    """Return the tensors that a CTA may privatize, by name: those of a memory-bound kernel that are
    only added to, some at computed indices.
    """
    if not holds_vectors(kernel):
        return {}
    others = {touch.tensor for _, touch in touches(kernel) if not touch.adds}
    found = dict[str, Store]()
    for op in kernel.of(Store):
        name = op.tensor.name
        may = op.tensor.as_tensor.dtype.name in ADDED_ATOMICALLY and name not in others
        if op.accumulate and is_scattered(op) and may:
            found.setdefault(name, op)
    return found


def counters_of(kernel: Kernel, schedule: Schedule | None = None) -> tuple[PlannedCounters, ...]:
    """Plan those of a CTA; with as many copies as fit where lanes may collide."""
    schedule = schedule or kernel.schedule or Schedule()
    asked = {name: tuple(e) for name, e in (schedule.smem_privatize or {}).items()}
    if not asked:
        return ()
    room = _room(kernel, schedule)
    copies = MOST_COPIES
    while True:
        found = tuple(
            PlannedCounters(name, extents, copies if _may_meet(kernel, name) else 1)
            for name, extents in asked.items()
        )
        if copies == 1 or _taken(found) <= room:
            return found
        copies //= 2


def _room(kernel: Kernel, schedule: Schedule) -> int:
    """Return the SMEM that is left for counters."""
    others = smem_bytes(kernel, schedule, schedule.stages or 1)
    return kernel.target.smem_bytes // (schedule.ctas_per_sm or 1) - RESERVED - others


def _taken(planned: Iterable[PlannedCounters]) -> int:
    return sum(-(-held.bytes // SMEM_ALIGN) * SMEM_ALIGN for held in planned)


def _may_meet(kernel: Kernel, tensor: str) -> bool:
    """Whether several lanes may add to an element: their places along rows are computed."""
    op = countable(kernel).get(tensor)
    return op is not None and not isinstance(op.index[-1].type, Axis)


def counter_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    known = countable(kernel)
    for name, extents in (chosen.smem_privatize or {}).items():
        why, hint = "", f"choose from: {', '.join(known) or 'none in this kernel'}"
        if not known and not kernel.of(Contract) and not holds_vectors(kernel):
            why = ", whose tiles are not vectors of threads"
        elif name not in known:
            why = "; a memory-bound kernel must only add to it, at computed indices"
        elif len(extents) != (rank := len(known[name].tensor.as_tensor.dims)):
            why = f" with {counted(len(extents), 'extent')}; it has {counted(rank, 'dimension')}"
            hint = "name one extent per dimension"
        if why:
            yield Finding(f"WS0430 Schedule.smem_privatize names `{name}`{why}", hint=hint)
    if chosen.smem_privatize and chosen.cuts_tiles:
        splits = f'scheduler="{chosen.scheduler}" splits tiles'
        told = f"WS0431 Schedule.smem_privatize needs whole tiles; {splits}"
        yield Finding(told, hint='use scheduler="persistent"')
    if not chosen.smem_privatize:
        return
    used, ctas = _taken(counters_of(kernel, chosen)), chosen.ctas_per_sm or 1
    if used > (room := _room(kernel, chosen)):
        user = f"Schedule.smem_privatize with {counted(ctas, 'CTA')} per SM needs"
        yield smem_fault(user, used, room, "use smaller extents")


class Counters:
    """Those of a partition's CTA."""

    def __init__(self, kernel: Kernel, context: PartitionContext, stores: list[Store]) -> None:
        self.context = context
        tensors = {op.tensor.name: op.tensor for op in stores}
        planned = kernel.plan.counters if kernel.plan else counters_of(kernel)
        self.planned = {tensors[held.tensor]: held for held in planned if held.tensor in tensors}
        self.shared = dict[Value, Value]()

    def begin(self) -> None:
        b = self.context.builder
        for tensor, held in self.planned.items():
            self.shared[tensor] = b.shared("counters", Shared(held.bytes, 1), label="counters")
            b.add(ClearBins(**self._what(tensor), by=self.context.num_warpgroups))
        if self.planned:
            self.context.sync(None)

    def finish(self) -> None:
        b = self.context.builder
        if self.planned:
            self.context.sync(None)
        for tensor in self.planned:
            b.add(StoreBins(**self._what(tensor), by=self.context.num_warpgroups))

    def counted(self, op: StoreGlobal) -> Op:
        """Return the op that adds to counters, if the tensor has them."""
        if op.tensor not in self.planned:
            return op
        what = self._what(op.tensor)
        return AddBins(index=op.index, value=op.value, pred=op.pred, loc=op.loc, **what)

    def _what(self, tensor: Value) -> dict[str, Any]:
        shared, held = self.shared[tensor], self.planned[tensor]
        return dict(tensor=tensor, shared=shared, extents=held.extents, copies=held.copies)
