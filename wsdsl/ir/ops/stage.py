"""PARTITIONED: pipeline stages, their producers and consumers.

A pipeline is used only through `producer_acquire`, `producer_commit`, `consumer_wait` and
`consumer_release`, with CUTLASS's meaning. Its stages are one sequence: the n-th acquire is paired
with the n-th wait (or `skip_slot`), across all loops.
"""

from __future__ import annotations

from collections.abc import Set

from wsdsl.ir.op import PARTITIONED, ManyResults, OneResult, Op, Value, op_class, walk, with_fields
from wsdsl.ir.ops.pipeline import Partition, TakesStage
from wsdsl.ir.ops.tile import AtIndex
from wsdsl.ir.types import SharedTile, Slot


@op_class(PARTITIONED, result=Slot)
class ProducerAcquire(TakesStage, OneResult):
    """Wait until the next stage of `ring` is free; it will be filled with tiles of `layout`.
    `state` is its pipeline state, from `assign_states` on.
    """

    ring: Value
    layout: int = 0
    state: Value | None = None


@op_class(PARTITIONED)
class LoadToSlot(AtIndex, Op):
    """Start to copy a tile of `tensor` to `field` of a stage; elements outside the tensor are 0.
    `multicast` are (size, stride) of the ranks in the cluster that use the same tile: each of them
    copies its part of the tile to all, or, with `halved`, to its SMEM alone. With a `box` (elements
    by dimension) that box is copied unchanged, for the threads to read; it begins at the tiles of
    axes, and at the numbers in `index`, the last one rounded down to a multiple of 16 bytes.
    """

    slot: Value
    field: int
    tensor: Value
    index: tuple[Value, ...] = ()
    multicast: tuple[tuple[int, int], ...] = ()
    halved: bool = False
    box: tuple[int, ...] = ()


@op_class(())
class InField(Op):
    """Base of ops that are about one field of a stage."""

    slot: Value
    field: int


@op_class(PARTITIONED)
class StoreToSlot(InField):
    """Threads write the tile `value` to `field` of a stage, in the layout of TMA; elements beyond
    the dimension of the axis `summed` are 0.
    """

    value: Value
    summed: Value


@op_class(PARTITIONED)
class StoreInShared(Op):
    """The same to item `state.stage` of `shared`, `offset` bytes in, as panels of the swizzle mode;
    lowered from `store_to_slot` when its pipeline is allocated.
    """

    value: Value
    summed: Value
    shared: Value
    offset: int
    state: Value
    swizzle: str


@op_class(PARTITIONED)
class StoreInTensor(Op):
    """The same to item `state.stage` of `columns`, from its column `column` on, as MMAs read
    operands in tensor memory; lowered from `store_to_slot` where its stages are there.
    """

    value: Value
    summed: Value
    columns: Value
    column: int
    state: Value


@op_class(PARTITIONED)
class ProducerCommit(Op):
    """Commit the stage; its consumers see it once all of its copies are complete, and all
    producers have committed it.
    """

    slot: Value


@op_class(PARTITIONED)
class ProducerTail(Op):
    """Wait until all stages of `ring` have been released: after the last one is filled, so
    that a CTA does not end while others of its cluster still arrive at its barriers. `state` as
    above.
    """

    ring: Value
    state: Value | None = None


def with_tails(partition: Partition, rings: Set[Value]) -> Partition:
    """Make the partition wait at its end for all stages of these pipelines that it fills."""
    acquired = (op.ring for op in walk(partition.body) if isinstance(op, ProducerAcquire))
    waited = {op.ring for op in partition.body if isinstance(op, ProducerTail)}
    filled = dict.fromkeys(ring for ring in acquired if ring in rings - waited)
    tails = (ProducerTail(ring=ring, loc=partition.loc) for ring in filled)
    return with_fields(partition, body=(*partition.body, *tails))


@op_class(PARTITIONED, movable=True, result=Slot)
class ConsumerWait(TakesStage, OneResult):
    """Wait until the next stage of `ring` is full, with tiles of `layout`. `state` as above."""

    ring: Value
    layout: int = 0
    state: Value | None = None


@op_class(PARTITIONED)
class TakeSubtiles(TakesStage, ManyResults):
    """The next tiles of a pipeline with `parts`. Threads wait for each part at its first use,
    and release its stage when all of it was read; parts are read in their order. Of
    `num_pingpong` partitions in ping-pong this is number `pingpong_index`: they alternate at the
    pipeline, too.
    """

    ring: Value
    pingpong_index: int = 0
    num_pingpong: int = 1
    state: Value | None = None


@op_class(PARTITIONED)
class SkipSlot(TakesStage, Op):
    """The next stage of `ring` (with parts: the next tile's stages) is used by another partition;
    advance to the one after it.
    """

    ring: Value


@op_class(PARTITIONED, movable=True, result=SharedTile)
class SlotTile(InField, OneResult):
    """The tile in `field` of a full stage."""


@op_class(PARTITIONED)
class TileInShared(OneResult):
    """The tile in item `state.stage` of `shared`, `offset` bytes in; lowered from `slot_tile`
    when its pipeline is allocated. Its panels' columns run along the last of its axes.
    """

    shared: Value
    offset: int
    state: Value


@op_class(PARTITIONED, movable=True)
class SlotElements(InField, OneResult):
    """An operand that threads read: the tile in `field` of a full stage, which is
    loaded from `tensor` at `index`.
    """

    tensor: Value
    index: tuple[Value, ...]


@op_class(PARTITIONED)
class ElementsInShared(OneResult):
    """An operand that threads read, in item `state.stage` of `shared`, `offset` bytes in; lowered
    from `slot_elements` when its pipeline is allocated. Where the layout of its panels differs from
    that of fragments, threads load it from `tensor`.
    """

    shared: Value
    offset: int
    state: Value
    tensor: Value
    index: tuple[Value, ...]


@op_class(PARTITIONED)
class SubtilesInShared(ManyResults):
    """The tiles that come in `parts`, each through the items of its `shared`, `offsets` bytes in,
    from `state` on; lowered from `take_subtiles` when its pipeline is allocated.
    """

    shared: tuple[Value, ...]
    offsets: tuple[int, ...]
    parts: tuple[int, ...]
    state: Value
    full: Value
    empty: Value
    pingpong_index: int = 0
    num_pingpong: int = 1


@op_class(PARTITIONED, movable=True)
class SlotValues(InField, OneResult):
    """The values that threads read from a box in `field` of a full stage: a tile of one axis.
    Each element of the box represents `every` elements of the tile; they are `stride` apart there.
    `last` (i32) is the last entry of the box's `index`, if that is a number: the values begin
    there, the box at the multiple of 16 bytes before it.
    """

    every: int = 1
    stride: int = 1
    last: Value | None = None


@op_class(PARTITIONED)
class ValuesInShared(OneResult):
    """The same from the `bytes` bytes that begin `offset` bytes into item `state.stage` of
    `shared`; lowered from `slot_values` when its pipeline is allocated.
    """

    shared: Value
    offset: int
    bytes: int
    state: Value
    every: int = 1
    stride: int = 1
    last: Value | None = None


@op_class(PARTITIONED)
class NoSlot(OneResult):
    """A placeholder for a stage of `ring` in a loop that carries stages, before the first one: it
    is never released. `state` as above.
    """

    ring: Value
    state: Value | None = None


@op_class(PARTITIONED, movable=True)
class ConsumerRelease(Op):
    """Release the stage, if `pred` (bool) is given and true or left out; no later op may read
    it.
    """

    slot: Value
    pred: Value | None = None


@op_class(PARTITIONED)
class ScalesToSlot(InField):
    """Threads write the scale factors in the tile `value`, a full stage, to `field` of a
    stage in tensor memory: of blocks of `block` elements of the axis `summed`, zeros for those
    beyond its dimension. The rows of scale factors in atoms are those of the axis `across`.
    """

    value: Value
    summed: Value
    block: int
    across: Value | None = None


@op_class(PARTITIONED)
class CopyScales(OneResult):
    """Copy to tensor memory the scale factors in the tile `value`, a full stage that has them
    in atoms: of blocks of `block` elements of its last axis. Later MMAs may use them.
    """

    value: Value
    block: int


@op_class(PARTITIONED)
class TileInTensor(OneResult):
    """The operand, or tile of scale factors, in item `state.stage` of `columns`, from its column
    `column` on; lowered from `slot_tile` of stages in tensor memory, and from `copy_scales`.
    """

    columns: Value
    column: int
    state: Value


@op_class(PARTITIONED)
class SumToSlot(InField):
    """MMAs accumulate `value` in `field` of a stage in tensor memory; or threads write there, in a
    full stage, the accumulator that they have changed.
    """

    value: Value


@op_class(PARTITIONED)
class SumToTensor(Op):
    """The same in item `state.stage` of `sums`, from its column `column` on; lowered from
    `sum_to_slot` when its pipeline is allocated.
    """

    sums: Value
    column: int
    state: Value
    value: Value


@op_class(PARTITIONED)
class SlotSum(InField, OneResult):
    """The accumulator that threads read in `field` of a full stage: zeros if the scalar
    `started` is false, since no MMA was issued then. The stage is released to the thread
    of the MMAs when all its accumulators have been read, or with `consumer_release`. Of an acquired
    stage: its accumulator, for MMAs to add to.
    """

    started: Value | None = None


@op_class(PARTITIONED)
class SumInTensor(OneResult):
    """The same in item `state.stage` of `sums`, from its column `column` on; lowered from
    `slot_sum` when its pipeline is allocated.
    """

    sums: Value
    column: int
    state: Value
    started: Value | None = None
