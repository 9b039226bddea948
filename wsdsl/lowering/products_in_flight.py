"""Loops whose MMAs are in flight when the next iteration begins: see `schedule_products`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from wsdsl.ir import ops
from wsdsl.ir.hardware.wgmma_shapes import k_step
from wsdsl.ir.op import Op, Value, with_fields
from wsdsl.ir.rewriter import definers, makers, uses, walk, yielded
from wsdsl.ir.types import Axis, Slot, Tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.loop_carried import stays_with_products
from wsdsl.lowering.multicast_groups import num_peers
from wsdsl.lowering.split_k_rules import grows


@dataclasses.dataclass(frozen=True)
class InFlight:
    """A loop whose MMAs all add to carried accumulators, and whose stages are released one
    iteration late. `rings` are the pipelines of the stages that an iteration releases, in order.
    """

    loop: ops.ForRange
    rings: tuple[Value, ...]

    @classmethod
    def of(
        cls,
        loop: ops.ForRange,
        rings: Mapping[Value, ops.Pipeline],
        depths: Mapping[ops.Contract, int],
    ) -> InFlight | None:
        """Return None if MMAs do not stay in flight. `depths`: the contraction of each MMA."""
        body = loop.body[:-1]
        taken = {op.result: op.ring for op in body if isinstance(op, ops.ConsumerWait)}
        at = [i for i, op in enumerate(body) if isinstance(op, ops.Contract)]
        given_back = _given_back(loop)
        if not given_back or not at or any(op.slot not in taken for op in given_back):
            return None
        if any(op in given_back for op in body[: at[-1]]) or not _adds_only(loop):
            return None
        products = [op for op in body if isinstance(op, ops.Contract)]
        if len(products) == 1 and _is_computed(products[0]):
            (op,) = products
            if op.depth or op.blocks or not _half(op, depths.get(op, 0)):
                return None
        held = tuple(taken[op.slot] for op in given_back)
        # An iteration waits for its stages while the last iteration's are in use: the pipeline has
        # both. A multicast stage is free after all CTAs have released it: with fewer stages the
        # late release loses 1 % (8192 cubed, sustained, H100).
        for ring, count in Counter(held).items():
            if rings[ring].depth < 2 * count * num_peers(rings[ring].multicast):
                return None
        return cls(loop, held)

    def emit(
        self,
        b: Builder,
        blocks: Mapping[ops.Contract, int],
        depths: Mapping[ops.Contract, int],
        behind: Sequence[Op],
    ) -> None:
        """Emit the loop, then `behind`, then the last releases. `blocks`: the blocks of 64 rows in
        which an MMA is issued; `depths`: its contraction.
        """
        loop = self.loop
        b.loc = loop.loc
        first = tuple(
            b.make(ops.NoSlot, "none", Slot(), ring=ring, loc=loop.loc) for ring in self.rings
        )
        before = tuple(b.value("before", Slot()) for _ in self.rings)
        last = tuple(b.value("last", Slot()) for _ in self.rings)
        given_back = _given_back(loop)
        with b.region() as body:
            for op in self._in_halves(blocks, depths, b):
                if op is not None:
                    b.add(op)
                    continue
                more = b.map("gt", loop.index, loop.start, wish="more")
                for release, slot in zip(given_back, before, strict=True):
                    b.add(with_fields(release, slot=slot, pred=more))
            own = tuple(release.slot for release in given_back)
            b.add(ops.Yield(values=(*yielded(loop.body), *own), loc=loop.body[-1].loc))
        carried = dict(init=(*loop.init, *first), args=(*loop.args, *before))
        b.add(with_fields(loop, result=(*loop.result, *last), **carried, body=tuple(body)))
        b.ops += behind
        some = b.map("gt", loop.stop, loop.start, wish="any")
        for release, slot in zip(given_back, last, strict=True):
            b.add(with_fields(release, slot=slot, pred=some))

    def _in_halves(
        self, blocks: Mapping[ops.Contract, int], depths: Mapping[ops.Contract, int], b: Builder
    ) -> list[Op | None]:
        """Return the body without releases, and None in the place of the last iteration's: after
        half of the MMAs. A warpgroup cannot run far ahead of the tensor cores: after all MMAs it
        would reach the wait when most of them are complete, and release stages late.
        """
        given_back = _given_back(self.loop)
        body = [op for op in self.loop.body[:-1] if op not in given_back]
        products = [op for op in body if isinstance(op, ops.Contract)]
        if any(map(_is_computed, products)):
            return _one_by_one(body, products, depths, b)
        left = max(1, sum(blocks[op] for op in products) // 2)
        made: list[Op | None] = []
        for op in body:
            if not isinstance(op, ops.Contract) or left <= 0:
                made.append(op)
                continue
            own = blocks[op]
            if left >= own:
                made += [op, None] if left == own else [op]
            else:
                begun = b.value(op.result.name, op.result.type)
                made.append(with_fields(op, result=begun, blocks=(0, left)))
                made += [None, with_fields(op, acc=begun, blocks=(left, own))]
            left -= own
        return made


def _given_back(loop: ops.ForRange) -> list[ops.ConsumerRelease]:
    """Return the releases of stages that MMAs read. With transformed operands threads read other
    stages, before the MMAs.
    """
    products = [i for i, op in enumerate(loop.body) if isinstance(op, ops.Contract)]
    computed = any(_is_computed(op) for op in loop.body if isinstance(op, ops.Contract))
    behind = loop.body[products[-1] :] if computed else loop.body
    return [op for op in behind if isinstance(op, ops.ConsumerRelease)]


def _half(op: ops.Contract, depth: int) -> int:
    """Return half of the contraction of an MMA, in whole steps of the tensor cores."""
    step = k_step(op.dtype)
    return depth // step // 2 * step


def _is_computed(op: ops.Contract) -> bool:
    return any(isinstance(v.type, Tile) for v in (op.a, op.b))


def _are_made_late(loop: ops.ForRange, products: Sequence[ops.Contract]) -> bool:
    """Whether each transformed operand is computed when its MMA is issued: from no other MMA, for
    this MMA alone, and from elements along the contraction axis. Otherwise, as for a factor per
    row, both halves may have the same registers.
    """
    made, counts = definers(loop.body), Counter(uses(loop.body))
    if any(isinstance(op, ops.CommitProducts) for op in loop.body):
        return False
    for op in products:
        for v in (op.a, op.b):
            if not isinstance(v.type, Tile):
                continue
            needed = makers(loop.body, (v,))
            if (
                not isinstance(made.get(v), (ops.Bitcast, ops.Cast, ops.Lookup, ops.Map))
                or counts[v] > 1
            ):
                return False
            if any(isinstance(x, (ops.Contract, ops.ForRange, ops.If)) for x in needed):
                return False
            loads = [x for x in needed if isinstance(x, (ops.Load, ops.SlotElements))]
            axes = [i.type.name for x in loads for i in x.index if isinstance(i.type, Axis)]
            if not {*op.summed} & {*axes}:
                return False
    return True


def _one_by_one(
    body: Sequence[Op],
    products: Sequence[ops.Contract],
    depths: Mapping[ops.Contract, int],
    b: Builder,
) -> list[Op | None]:
    """Split MMAs with transformed operands in two groups: while the tensor cores compute one,
    threads compute the other's operands, in separate registers. A single MMA is split in two halves
    of its contraction.
    """
    made: list[Op | None] = []
    late = _behind_the_first(body[: body.index(products[0])])
    for op in body:
        if op in late:
            continue
        if len(products) == 1 and isinstance(op, ops.Contract):
            begun = b.value(op.result.name, op.result.type)
            half = _half(op, depths[op])
            made.append(with_fields(op, result=begun, depth=(0, half)))
            made += [*late, None, with_fields(op, acc=begun, depth=(half, depths[op]))]
            continue
        made.append(op)
        if op is products[(len(products) - 1) // 2]:
            made += [*late, None]
    return made


def _behind_the_first(before: Sequence[Op]) -> list[Op]:
    """Return the releases of stages that threads read, with the loads after them: the fence waits
    for all loads in flight, which an MMA in flight may hide.
    """
    released = [i for i, op in enumerate(before) if isinstance(op, ops.ConsumerRelease)]
    if not released:
        return []
    first = last = released[-1] + 1
    for i, op in enumerate(before[first:], first):
        follows = i == last > first and isinstance(op, ops.AxisAt)
        last = i + 1 if follows or (isinstance(op, ops.Materialize) and op.in_order) else last
    late = [*(before[i] for i in released), *before[first:last]]
    return [ops.CommitProducts(loc=late[0].loc), *late]


def _adds_only(loop: ops.ForRange) -> bool:
    """Whether no op of a body reads its accumulators."""
    inside = [op for op in walk(loop.body) if isinstance(op, ops.Contract)]
    if any(map(_is_computed, inside)) and not _are_made_late(loop, inside):
        return False
    for arg, last in zip(loop.args, yielded(loop.body), strict=True):
        summed = last.is_tile and stays_with_products(loop, arg, last)
        if summed and not grows(loop.body, arg, last, by_products=True):
            return False
    direct = {op.result for op in loop.body if isinstance(op, ops.Contract) and op.acc is not None}
    return all(op.result in direct for op in inside)
