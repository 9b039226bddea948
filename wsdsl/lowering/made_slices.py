"""What partitions do of the kernel's body that make of loads what products read.

**A decode partition** computes operands from what slots or tensors have, and fills the slots of
another circular buffer.

    %slot = consumer_wait(ring=%ring)
    %w: i8[n, k] = slot_elements(slot=%slot, field=0, tensor=%W, index=(%n, %k))
    %x: bf16[n, k] = cast(x=%w)
    %made = producer_acquire(ring=%ring_1)
    store_to_slot(slot=%made, field=0, value=%x, summed=%k)
    producer_commit(slot=%made)
    consumer_release(slot=%slot)

It is the backward slice of the kernel's body from these stores, as a load partition is from its
fills.

**A scale partition** writes scales to slots of tensor memory, as they lie in SMEM.

    %slot = consumer_wait(ring=%ring)
    %s: smem<f8e8m0[m, k]> = slot_tile(slot=%slot, field=0)
    %made = producer_acquire(ring=%scale_ring)
    scales_to_slot(slot=%made, field=0, value=%s, summed=%k, block=32)
    producer_commit(slot=%made)
    consumer_release(slot=%slot)
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from wsdsl.ir import ops
from wsdsl.ir.analysis.scale_factor_indices import in_atoms
from wsdsl.ir.op import Kernel, Op, Value, operands, results_of
from wsdsl.ir.rewriter import Namer, definitions
from wsdsl.ir.types import Axis, SharedTile
from wsdsl.lowering.axes import axis_of
from wsdsl.lowering.buffer_assignment import SlotGroup
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.edge import Edge, Role
from wsdsl.lowering.warp_specialization import ProducerSlice


class DecodeSlice(ProducerSlice):
    """Of the body that `loads` are cut out of: of a partition in this role."""

    role: ClassVar[Role] = "decode"

    def __init__(
        self, kernel: Kernel, groups: tuple[SlotGroup, ...], rings: dict[int, Value], namer: Namer
    ) -> None:
        super().__init__(kernel, groups, rings, namer)
        axes = (v for v in definitions(kernel) if isinstance(v.type, Axis))
        self.axes = {v.type.name: v for v in axes if isinstance(v.type, Axis)}
        read = [g for g in groups if g.consumer == self.role]
        self.waits = {g: ops.ConsumerWait(**self.taken(g)) for g in read}
        self.in_slots = {v for g in read for edge in g.edges for v in edge.values}

    def _kept(self, op: Op, names: frozenset[str], needed: set[Value]) -> Op | None:
        if isinstance(op, ops.Load) and op.result in self.in_slots:
            return None
        if isinstance(op, ops.ReduceBlocks):  # of a tile's own
            return op if op.result in needed else None
        return super()._kept(op, names, needed)

    def _before(self, groups: list[SlotGroup], place: int, names: frozenset[str]) -> list[Op]:
        first = [g for g in groups if g.first == place]
        taken = [op for g in first if g in self.waits for op in self._taken(g)]
        filled = [op for g in first if g.producer == self.role for op in self._filled(g)]
        read = [g for g in groups if g in self.waits and self._read(g, groups) == place]
        released = [ops.ConsumerRelease(slot=self.waits[g].result, loc=g.loc) for g in read]
        return [*taken, *filled, *released]

    def _read(self, group: SlotGroup, groups: list[SlotGroup]) -> int:
        """Where all is made that is made of a group's loads."""
        following = {v for edge in group.edges for v in edge.values}
        for op in group.block:
            if following & {*operands(op)}:
                following |= {*results_of(op)}
        making = [g for g in groups if g.producer == self.role]
        return max(g.first for g in making if following & {e.value for e in g.edges})

    def _taken(self, group: SlotGroup) -> list[Op]:
        wait = self.waits[group]
        made: list[Op] = [wait]
        for field, edge in enumerate(group.edges):
            made += self._tiles(edge, dict(slot=wait.result, field=field, loc=edge.made.loc))
        return made

    def _tiles(self, edge: Edge, where: dict[str, Any]) -> Iterable[Op]:
        """Of a slot that was waited for."""
        where |= dict(tensor=edge.load.tensor, index=edge.load.index)
        return [ops.SlotElements(result=value, **where) for value in edge.values]

    def _filled(self, group: SlotGroup) -> list[Op]:
        acquire = ops.ProducerAcquire(**self.taken(group))
        slot, made = acquire.result, list[Op]([acquire])
        for field, edge in enumerate(group.edges):
            where = dict(slot=slot, field=field, loc=group.loc)
            made += self._made(edge, where, group.block)
        return [*made, ops.ProducerCommit(slot=slot, loc=group.loc)]

    def _made(self, edge: Edge, where: dict[str, Any], block: Sequence[Op]) -> Iterable[Op]:
        """What fills a field of a slot."""
        axis = self._axis(decoded(self.kernel).summed[edge.value], block)
        return [ops.StoreToSlot(value=edge.value, summed=axis, **where)]

    def _axis(self, name: str, block: Sequence[Op]) -> Value:
        return axis_of(block, name) or self.axes[name]


class ScaleSlice(DecodeSlice):
    """The same of who writes scales to tensor memory, as they lie in SMEM."""

    role = "scale"

    def _tiles(self, edge: Edge, where: dict[str, Any]) -> Iterable[Op]:
        return [ops.SlotTile(result=self.tile(edge), **where)]

    def _made(self, edge: Edge, where: dict[str, Any], block: Sequence[Op]) -> Iterable[Op]:
        rows, summed = (self._axis(name, block) for name in edge.layout.axes)
        atoms = isinstance(edge.made, ops.Load) and in_atoms(edge.made)
        where |= dict(across=rows if atoms else None)
        return [ops.ScalesToSlot(value=self.tile(edge), summed=summed, block=edge.block, **where)]

    def tile(self, edge: Edge) -> Value:
        """Of what an edge has in SMEM."""
        return Value(f"{edge.value.name}_tile", SharedTile(edge.layout.dtype, edge.layout.axes))
