"""Split the body between the partitions "mma" and "compute", with accumulators in stages of TMEM.

Before:

    %acc = for_tiles(index=%k, init=(%zeros,), ...) { ... contract ... }
    store(tensor=%C, index=(%m, %n), value=%acc)

After, in the partition "mma":

    %slot = producer_acquire(ring=%sum_ring)
    %acc = for_tiles(index=%k, init=(%zeros,), ...) { ... contract ... }
    sum_to_slot(slot=%slot, field=0, value=%acc)
    producer_commit(slot=%slot)

and in the partition "compute":

    %slot_1 = consumer_wait(ring=%sum_ring)
    %acc: f32[m, n] = slot_sum(slot=%slot_1, field=0, started=%any)
    store(tensor=%C, index=(%m, %n), value=%acc)
    consumer_release(slot=%slot_1)

Loops whose accumulators threads read in each iteration are split in the same way. An operand that
threads compute from them goes back through stages in SMEM:

    %made = producer_acquire(ring=%ring_2)                                  (compute)
    store_to_slot(slot=%made, field=0, value=%p, summed=%t)
    producer_commit(slot=%made)
    ...
    %slot_2 = consumer_wait(ring=%ring_2)                                   (mma)
    %p_tile = slot_tile(slot=%slot_2, field=0)
    %y = contract(a=%p_tile, b=%v)
    consumer_release(slot=%slot_2)

The body is first written with the ops of both, and then split: each partition keeps the ops on its
stages, and the ops that these need.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, results_of, with_fields
from wsdsl.ir.rewriter import Namer, definitions, uses, walk, with_regions, yielded
from wsdsl.ir.types import Axis, Slot
from wsdsl.lowering.axes import axis_of
from wsdsl.lowering.buffer_assignment import SlotGroup
from wsdsl.lowering.passes.dce import without_unused
from wsdsl.lowering.tensor_chains import chains, staying
from wsdsl.lowering.updated_sums import Updates, updates
from wsdsl.lowering.warp_specialization import ConsumerSlice, ProducerSlice
from wsdsl.lowering.zero_trip_accumulate import StartedSums


class TensorSlice(ConsumerSlice):
    """The body with the stages of both partitions; `sums` are those in TMEM."""

    def __init__(
        self, kernel: Kernel, loads: ProducerSlice, sums: tuple[SlotGroup, ...], namer: Namer
    ) -> None:
        super().__init__(loads, (), 0, 1)
        self.sums, self.namer, self.chains = sums, namer, chains(kernel)
        self.made = [group for group in loads.groups if group.producer == "compute"]
        self.started = StartedSums(namer, dict(kernel.sizes))
        axes = (v for v in definitions(kernel) if isinstance(v.type, Axis))
        self.axes = {v.as_axis.name: v for v in axes}
        self.counts = Counter(uses(kernel.body))
        self.multiplying: set[Value] = set()
        """Stages of the partition "mma"."""
        self.slots: dict[int, Value] = {}

    def cut(self, body: Region) -> tuple[Region, Region]:
        """Return the bodies of "mma" and "compute"."""
        changed = Updates(updates(self.loads.kernel), self.namer, self._slot_of)
        whole = changed.region(self.of(body))
        rings = {self.loads.rings[group.ring] for group in self.sums}
        for op in walk(whole):
            if isinstance(op, (ops.ConsumerWait, ops.ProducerAcquire)):
                filled = isinstance(op, ops.ProducerAcquire)
                self.multiplying |= {op.result} if (op.ring in rings) == filled else set()
        multiplied = tuple(self._multiplied(whole))
        return without_unused(multiplied), without_unused(tuple(self._computed(whole)))

    # The body with all stages ---------------------------------------------------------------------

    def before(self, block: Region, place: int) -> list[Op]:
        made = list[Op]()
        for group in self._in(self.made, block):
            if group.first == place:
                made += self._filled(group)
        for group in self._in(self.sums, block):
            if group.first == place:
                made.append(acquire := self._acquired(group))
                if self.is_updated(group):
                    # The partition "compute" writes to it first.
                    made.append(ops.ProducerCommit(slot=acquire.result, loc=acquire.loc))
        return made

    def behind(self, block: Region, place: int) -> list[Op]:
        made, last = list[Op](), len(block) - 1 - isinstance(block[-1], ops.Yield)
        own = self._in(self.sums, block)
        if isinstance(op := block[place], (ops.Contract, ops.ForTiles, ops.ForEach)):
            update = updates(self.loads.kernel).get(op)
            changed = [] if update is None else [update.place]
            made += self.started.behind(op, [*staying(op, self.counts), *changed])
        for group in own:
            if group.last == place:
                made += self._handed_over(group)
        if own and place == last:
            handed = [v for v in yielded(block) if v.is_tile and v not in self.chains.continued]
            if handed:
                # By fragment: a whole accumulator in addition to them would double their registers.
                made.append(ops.Materialize(values=tuple(dict.fromkeys(handed)), loc=own[-1].loc))
            made += (ops.ConsumerRelease(slot=self.slots[id(g)], loc=g.loc) for g in own)
        return made

    def _in(self, groups: Iterable[SlotGroup], block: Region) -> list[SlotGroup]:
        return [g for g in groups if g.block is block or g.block == block]

    def _filled(self, group: SlotGroup) -> list[Op]:
        """Return the ops by which "compute" fills a stage."""
        acquire = ops.ProducerAcquire(**self.loads.taken(group))
        made = list[Op]([acquire])
        for field, edge in enumerate(group.edges):
            name = edge.layout.axes[-1]
            summed = axis_of(group.block, name) or self.axes[name]
            where = dict[str, Any](slot=acquire.result, field=field, loc=group.loc)
            made.append(ops.StoreToSlot(value=edge.value, summed=summed, **where))
        return [*made, ops.ProducerCommit(slot=acquire.result, loc=group.loc)]

    def _acquired(self, group: SlotGroup) -> ops.ProducerAcquire:
        """Acquire a stage for accumulators."""
        acquire = ops.ProducerAcquire(**self._slot(group))
        self.slots[id(group)] = acquire.result
        return acquire

    def _slot(self, group: SlotGroup) -> dict[str, Any]:
        of_ring = [g.layout for g in self.sums if g.ring == group.ring]
        layouts = list(dict.fromkeys(of_ring))
        place = dict(ring=self.loads.rings[group.ring], layout=layouts.index(group.layout))
        return dict(result=Value(self.namer.new("slot"), Slot()), loc=group.loc, **place)

    def is_updated(self, group: SlotGroup) -> bool:
        """Whether threads change its accumulator in place."""
        return any(edge.made in updates(self.loads.kernel) for edge in group.edges)

    def _slot_of(self, sum: Value) -> dict[str, Any]:
        """Return the next stage of the pipeline of a loop's result."""
        group = next(g for g in self.sums if any(sum in edge.values for edge in g.edges))
        return self._slot(group)

    def _handed_over(self, group: SlotGroup) -> Iterator[Op]:
        slot, loc = self.slots[id(group)], group.block[group.last].loc
        if not self.is_updated(group):
            for n, edge in enumerate(group.edges):
                yield ops.SumToSlot(slot=slot, field=n, value=edge.values[0])
            yield ops.ProducerCommit(slot=slot, loc=loc)
        wait = ops.ConsumerWait(**self._slot(group))
        self.slots[id(group)] = wait.result
        yield wait
        for n, edge in enumerate(group.edges):
            started = self.started.flags[edge.values[0]]
            where = dict[str, Any](slot=wait.result, field=n, loc=edge.made.loc)
            yield ops.SlotSum(result=edge.values[0], started=started, **where)

    # The ops of each partition -------------------------------------------------------------------

    def _multiplied(self, region: Region) -> Iterator[Op]:
        for op in region:
            slot = _changed_slot(op)
            theirs = slot is not None and slot not in self.multiplying
            if not theirs and not isinstance(op, (ops.Store, ops.Materialize)):
                yield with_regions(op, lambda inner: tuple(self._multiplied(inner)))

    def _computed(self, region: Region) -> Iterator[Op]:
        for op in region:
            theirs = _changed_slot(op) in self.multiplying
            if theirs or isinstance(op, ops.Contract):
                continue
            op = with_regions(op, lambda inner: tuple(self._computed(inner)))
            yield self._without_sums(op)

    def _without_sums(self, op: Op) -> Op:
        """Return a loop without the accumulators that it carries in TMEM."""
        if not isinstance(op, ops.DimLoop):
            return op
        stay = [v not in self.chains.sums for v in op.args]
        if all(stay):
            return op
        kept = {n: tuple(compress(getattr(op, n), stay)) for n in ("result", "init", "args")}
        last = ops.Yield(values=tuple(compress(yielded(op.body), stay)), loc=op.body[-1].loc)
        return with_fields(op, **kept, body=(*op.body[:-1], last))


def _changed_slot(op: Op) -> Value | None:
    """Return the stage that an op writes, commits, releases, or accumulates in."""
    changes = isinstance(op, ops.SlotSum) or not results_of(op)
    return getattr(op, "slot", None) if changes else None
