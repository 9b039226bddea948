"""PARTITIONED: the slots of circular buffers, how they are filled and read.

A circular buffer is used through `producer_acquire`, `producer_commit`, `consumer_wait` and
`consumer_release` alone, with CUTLASS's meaning. Its slots are one stream: the n-th acquire meets
the n-th wait (or `skip_slot`), whatever loops they stand in.
"""

from __future__ import annotations

from collections.abc import Set

from wsdsl.ir.op import ManyResults, OneResult, Op, Value, op_class, walk, with_fields
from wsdsl.ir.pipeline_ops import PARTITIONED, Partition
from wsdsl.ir.tile_ops import AtIndex


@op_class(PARTITIONED)
class ProducerAcquire(OneResult):
    """Wait until the next slot of `ring` is free; it will be filled with tiles of `layout`. `state`
    is the slot's pipeline state, from `assign_states` on.
    """

    ring: Value
    layout: int = 0
    state: Value | None = None


@op_class(PARTITIONED)
class LoadToSlot(AtIndex, Op):
    """Start to copy a tile of `tensor` to `field` of a slot; elements outside the tensor are 0.
    `multicast` are (size, stride) of the ranks in the cluster that want the same tile: each of them
    copies its part of the tile to all, or, with `halved`, for itself alone. With a `box` (elements
    by dimension) that box is copied as it is, for the threads to read; it begins at the tiles of
    axes, and at the numbers in `index`, the last one rounded down to a multiple of 16 bytes.
    """

    slot: Value
    field: int
    tensor: Value
    index: tuple[Value, ...] = ()
    multicast: tuple[tuple[int, int], ...] = ()
    halved: bool = False
    box: tuple[int, ...] = ()


@op_class(PARTITIONED)
class StoreToSlot(Op):
    """Threads write the tile `value` to `field` of a slot, as TMA lays out tiles; what lies beyond
    the dimension of the axis `summed` is 0.
    """

    slot: Value
    field: int
    value: Value
    summed: Value


@op_class(PARTITIONED)
class StoreInShared(Op):
    """The same to item `state.stage` of `shared`, `offset` bytes in, as panels of the swizzle mode;
    what `store_to_slot` becomes when its ring is placed.
    """

    value: Value
    summed: Value
    shared: Value
    offset: int
    state: Value
    swizzle: str


@op_class(PARTITIONED)
class StoreInTensor(Op):
    """The same to item `state.stage` of `columns`, from its column `column` on, as products read
    operands in tensor memory; what `store_to_slot` becomes where its slots lie there.
    """

    value: Value
    summed: Value
    columns: Value
    column: int
    state: Value


@op_class(PARTITIONED)
class ProducerCommit(Op):
    """Hand the slot over; its consumers see it once all of its copies are complete, and all who
    fill it have done so.
    """

    slot: Value


@op_class(PARTITIONED)
class ProducerTail(Op):
    """Wait until all slots of `ring` have been given back: behind the last one that is filled, so
    that a CTA does not end while others of its cluster still arrive at its barriers. `state` as
    above.
    """

    ring: Value
    state: Value | None = None


def with_tails(partition: Partition, rings: Set[Value]) -> Partition:
    """The partition, which waits at its end for all slots that it fills of these rings."""
    acquired = (op.ring for op in walk(partition.body) if isinstance(op, ProducerAcquire))
    waited = {op.ring for op in partition.body if isinstance(op, ProducerTail)}
    filled = dict.fromkeys(ring for ring in acquired if ring in rings - waited)
    tails = (ProducerTail(ring=ring, loc=partition.loc) for ring in filled)
    return with_fields(partition, body=(*partition.body, *tails))


@op_class(PARTITIONED)
class ConsumerWait(OneResult):
    """Wait until the next slot of `ring` is full; it holds tiles of `layout`. `state` as above."""

    ring: Value
    layout: int = 0
    state: Value | None = None


@op_class(PARTITIONED)
class TakeSubtiles(ManyResults):
    """The next tiles of a ring with `parts`. Each part is waited for when something first needs it,
    and its slot is given back when all of it was read; parts are read in their order. Of
    `num_pingpong` partitions in ping-pong this is number `pingpong_index`: they follow one another
    at the ring, too.
    """

    ring: Value
    pingpong_index: int = 0
    num_pingpong: int = 1
    state: Value | None = None


@op_class(PARTITIONED)
class SkipSlot(Op):
    """The next slot of `ring` (with parts: the next tile's slots) is another partition's; go on to
    the one after.
    """

    ring: Value


@op_class(PARTITIONED)
class SlotTile(OneResult):
    """The tile in `field` of a slot that was waited for."""

    slot: Value
    field: int


@op_class(PARTITIONED)
class TileInShared(OneResult):
    """The tile that lies in item `state.stage` of `shared`, `offset` bytes in; what `slot_tile`
    becomes when its ring is placed. Its panels' columns run along the last of its axes.
    """

    shared: Value
    offset: int
    state: Value


@op_class(PARTITIONED)
class SlotElements(OneResult):
    """What threads read of an operand: the tile in `field` of a slot that was waited for, which is
    loaded from `tensor` at `index`.
    """

    slot: Value
    field: int
    tensor: Value
    index: tuple[Value, ...]


@op_class(PARTITIONED)
class ElementsInShared(OneResult):
    """An operand that threads read, in item `state.stage` of `shared`, `offset` bytes in; what
    `slot_elements` becomes when its ring is placed. Where its panels are cut otherwise than
    fragments are, threads load it from `tensor`.
    """

    shared: Value
    offset: int
    state: Value
    tensor: Value
    index: tuple[Value, ...]


@op_class(PARTITIONED)
class SubtilesInShared(ManyResults):
    """The tiles that come in `parts`, each through the items of its `shared`, `offsets` bytes in,
    from `state` on; what `take_subtiles` becomes when its ring is placed.
    """

    shared: tuple[Value, ...]
    offsets: tuple[int, ...]
    parts: tuple[int, ...]
    state: Value
    full: Value
    empty: Value
    pingpong_index: int = 0
    num_pingpong: int = 1


@op_class(PARTITIONED)
class SlotValues(OneResult):
    """What threads read from a box in `field` of a slot that was waited for: a tile of one axis.
    Each element of the box stands for `every` elements of the tile; they lie `stride` apart there.
    `last` (i32) is the last entry of the box's `index`, if that is a number: the values begin
    there, the box at the multiple of 16 bytes in front of it.
    """

    slot: Value
    field: int
    every: int = 1
    stride: int = 1
    last: Value | None = None


@op_class(PARTITIONED)
class ValuesInShared(OneResult):
    """The same from the `bytes` bytes that begin `offset` bytes into item `state.stage` of
    `shared`; what `slot_values` becomes when its ring is placed.
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
    """What stands for a slot of `ring` in a loop that carries slots, before the first one: it is
    given back under no condition. `state` as above.
    """

    ring: Value
    state: Value | None = None


@op_class(PARTITIONED)
class ConsumerRelease(Op):
    """Give the slot back, if `pred` (bool) is given and true or left out; nothing may read it any
    more.
    """

    slot: Value
    pred: Value | None = None


@op_class(PARTITIONED)
class ScalesToSlot(Op):
    """Threads write the scales in the tile `value`, a slot that was waited for, to `field` of a
    slot in tensor memory: of blocks of `block` elements of the axis `summed`, zeros for those
    beyond its dimension. Of scales in atoms the rows are those of the axis `across`.
    """

    slot: Value
    field: int
    value: Value
    summed: Value
    block: int
    across: Value | None = None


@op_class(PARTITIONED)
class CopyScales(OneResult):
    """Copy to tensor memory the scales in the tile `value`, a slot that was waited for and has them
    in atoms: of blocks of `block` elements of its last axis. Products that follow may take them.
    """

    value: Value
    block: int


@op_class(PARTITIONED)
class TileInTensor(OneResult):
    """The operand, or tile of scales, in item `state.stage` of `columns`, from its column `column`
    on; what `slot_tile` becomes where its slots lie in tensor memory, and what `copy_scales` makes.
    """

    columns: Value
    column: int
    state: Value


@op_class(PARTITIONED)
class SumToSlot(Op):
    """The sum `value`, which products make, is made in `field` of a slot in tensor memory; or
    threads write there, in a slot that they have waited for, what they have made of the sum in it.
    """

    slot: Value
    field: int
    value: Value


@op_class(PARTITIONED)
class SumToTensor(Op):
    """The same in item `state.stage` of `sums`, from its column `column` on; what `sum_to_slot`
    becomes when its ring is placed.
    """

    sums: Value
    column: int
    state: Value
    value: Value


@op_class(PARTITIONED)
class SlotSum(OneResult):
    """What threads read of the sum in `field` of a slot that was waited for: zeros if the scalar
    `started` does not hold, since no product was started then. The slot is given back to the thread
    that multiplies when all sums of it have been read, or with `consumer_release`. Of a slot that
    was acquired: what lies there, for products to add to.
    """

    slot: Value
    field: int
    started: Value | None = None


@op_class(PARTITIONED)
class SumInTensor(OneResult):
    """The same in item `state.stage` of `sums`, from its column `column` on; what `slot_sum`
    becomes when its ring is placed.
    """

    sums: Value
    column: int
    state: Value
    started: Value | None = None
