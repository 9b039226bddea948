"""Who fills the slots of a circular buffer, and how: by TMA, or by the copies of threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.slot_ops import LoadToSlot, ProducerAcquire, StoreToSlot
from wsdsl.ir.walk import walk

THREADS = 128


@dataclass(frozen=True)
class Producers:
    """`tensors` of a ring by the place in the kernel's body of the partition that copies them;
    those named in `by_threads` TMA can not take.
    """

    tensors: Mapping[Value, Mapping[int, Sequence[str]]]
    by_threads: frozenset[str]
    stores: Mapping[Value, int]
    """Warpgroups that write to slots what they have computed, by the ring."""

    @staticmethod
    def of(kernel: Kernel) -> Producers:
        found: dict[Value, dict[int, list[str]]] = {}
        rings: dict[Value, Value] = {}
        stores: dict[Value, int] = {}
        for place, op in enumerate(kernel.body):
            for inner in walk(op.body) if isinstance(op, Partition) else ():
                if isinstance(inner, ProducerAcquire):
                    rings[inner.result] = inner.ring
                elif isinstance(inner, LoadToSlot):
                    held = found.setdefault(rings[inner.slot], {})
                    held.setdefault(place, []).append(inner.tensor.name)
                elif isinstance(inner, StoreToSlot) and isinstance(op, Partition):
                    stores[rings[inner.slot]] = op.num_warpgroups
        return Producers(found, frozenset(kernel.unaligned), stores)

    def by_stores(self, ring: Value) -> bool:
        return ring in self.stores

    def arrivals(self, ring: Value) -> int:
        """A partition fills all slots of a ring the same way: one arrival with bytes, if TMA brings
        any of them, and one a thread, if threads do; one a thread of those that store.
        """
        if ring in self.stores:
            return THREADS * self.stores[ring]
        ways = [self.ways(ring, place) for place in self.tensors[ring]]
        return sum(by_tma + THREADS * by_threads for by_tma, by_threads in ways)

    def ways(self, ring: Value, place: int) -> tuple[bool, bool]:
        """Whether TMA, and whether threads."""
        by_threads = [name in self.by_threads for name in self.tensors[ring][place]]
        return not all(by_threads), any(by_threads)

    def whole_warpgroup(self, place: int) -> bool:
        """Whether a load partition runs with all of its threads, not one elected."""
        rings = [ring for ring, by in self.tensors.items() if place in by]
        return any(self.ways(ring, place)[1] for ring in rings)
