"""Accumulators in TMEM that threads change in place between MMAs (TILE).

    %scaled: f32[m, D] = map(fn="mul", args=(%acc, %shrink))
    %y: f32[m, D] = contract(a=%p, b=%v, acc=%scaled)

A loop carries such an accumulator from zeros on, applies an elementwise function, and adds an MMA
whose operand threads compute in the same iteration: the MMA waits for the threads in any case. So
the accumulator stays in TMEM. Its pipeline has one stage, which alternates: MMAs are complete,
threads change it, MMAs continue. In the first iteration threads write the function of zeros.

Of a loop of both partitions, before:
    %sum = for_tiles(index=%t, init=(%zeros,), args=(%acc,)) {
      %scaled = map(fn="mul", args=(%acc, %shrink))
      %y = contract(a=%p, b=%v, acc=%scaled)
      yield(values=(%y,))
    }
After:
    for_tiles(index=%t, init=(%false,), args=(%changed,)) {
      %done = consumer_wait(ring=%sum_ring)                                 (compute)
      if(cond=%changed) {
        %acc = slot_sum(slot=%done, field=0)
        %scaled = map(fn="mul", args=(%acc, %shrink))
        sum_to_slot(slot=%done, field=0, value=%scaled)
      } { ... the same of zeros ... }
      consumer_release(slot=%done)
      %slot = producer_acquire(ring=%sum_ring)                              (mma)
      %held = slot_sum(slot=%slot, field=0)
      %y = contract(a=%p, b=%v, acc=%held)
      sum_to_slot(slot=%slot, field=0, value=%y)
      producer_commit(slot=%slot)
      yield(values=(%true,))
    }
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, results_of, with_fields
from wsdsl.ir.rewriter import Namer, copy_region, definers, uses, walk, with_regions, yielded
from wsdsl.ir.types import BOOL, Tile
from wsdsl.lowering.product_operands import of_product
from wsdsl.lowering.zero_padding import tiles_of_zeros
from wsdsl.record import record


@record
class Update:
    """The carried variable `arg` at index `place` of a loop: `members` change it, and
    `product` adds to their result.
    """

    place: int
    arg: Value
    members: tuple[Op, ...]
    product: ops.Contract

    @property
    def changed(self) -> Value:
        assert self.product.acc is not None
        return self.product.acc


@once
def updates(kernel: Kernel) -> Mapping[Op, Update]:
    """By loop; one sum of each at the most."""
    found = dict[Op, Update]()
    if not kernel.target.has_tensor_memory:
        return found
    counts, zeros = Counter(uses(kernel.body)), tiles_of_zeros(kernel.body)
    for op in walk(kernel.body):
        if isinstance(op, ops.DimLoop):
            own = [update for n in range(len(op.args)) for update in _updates(op, n, counts)]
            own = [update for update in own if op.init[update.place] in zeros]
            found |= {op: own[0]} if len(own) == 1 else {}
    return found


def _updates(loop: ops.DimLoop, n: int, counts: Mapping[Value, int]) -> Iterator[Update]:
    value, members = loop.args[n], list[Op]()
    made = definers(loop.body)
    while counts[value] == 1:
        user = next((op for op in loop.body if value in operands(op)), None)
        if isinstance(user, ops.Map) and user.result.type == value.type:
            members.append(user)
            value = user.result
            continue
        if not isinstance(user, ops.Contract) or user.acc != value or not members:
            return
        last = user.result == yielded(loop.body)[n] and counts[user.result] == 1
        if last and any(of_product(operand, made) for operand in (user.a, user.b)):
            yield Update(n, loop.args[n], tuple(members), user)
        return


SlotOf = Callable[[Value], dict[str, Any]]
"""Return the fields of the op that takes the next stage of a loop result's pipeline."""


class Updates:
    """Rewrites the loops of `found`, in what both partitions do."""

    def __init__(self, found: Mapping[Op, Update], namer: Namer, slot_of: SlotOf) -> None:
        self.by_arg = {update.arg: update for update in found.values()}
        self.namer, self.slot_of = namer, slot_of

    def region(self, region: Region) -> Region:
        return tuple(made for op in region for made in self.op(op))

    def op(self, op: Op) -> list[Op]:
        op = with_regions(op, self.region)
        if isinstance(op, ops.DimLoop):
            for arg in op.args:
                if arg in self.by_arg:
                    return self.loop(op, self.by_arg[arg])
        return [op]

    def loop(self, op: ops.DimLoop, update: Update) -> list[Op]:
        flags = [Value(self.namer.new(name), Tile(BOOL)) for name in ("none", "some")]
        none, some = (
            ops.Constant(result=v, value=held, loc=op.loc) for v, held in zip(flags, (False, True))
        )
        changed, after = (Value(self.namer.new("changed"), Tile(BOOL)) for _ in range(2))
        body, late = list[Op](), list[Op]()
        for inner in op.body[:-1]:
            if not isinstance(inner, ops.ConsumerRelease):
                # Committed after the release, whose arrival it shows to be complete.
                body, late = [*body, *late], []
            if isinstance(inner, ops.Contract) and inner.result == update.product.result:
                sum = op.result[update.place]
                there = {v for before in body for v in results_of(before)}
                handed = [v for v in yielded(op.body) if v in there and v.is_tile]
                if handed:
                    # Their inputs need registers.
                    body.append(ops.Materialize(values=tuple(dict.fromkeys(handed)), loc=op.loc))
                multiplied, late = self.multiply(inner, self.slot_of(sum))
                body += [*self.change(update, changed, self.slot_of(sum)), *multiplied]
            elif inner not in update.members:
                body.append(inner)
        body += late
        n = update.place
        handed = (*_without(yielded(op.body), n), some.result)
        made = with_fields(
            op,
            result=(*_without(op.result, n), after),
            init=(*_without(op.init, n), none.result),
            args=(*_without(op.args, n), changed),
            body=(some, *body, with_fields(op.body[-1], values=handed)),
        )
        return [none, made]

    def change(self, update: Update, cond: Value, where: dict[str, Any]) -> list[Op]:
        """By who computes."""
        loc, kind = update.product.loc, update.arg.as_tile
        wait = ops.ConsumerWait(**where)
        place = dict[str, Any](slot=wait.result, field=0, loc=loc)
        zero = Value(self.namer.new("zero"), Tile(kind.dtype))
        before = (ops.SlotSum(result=update.arg, **place),)
        first = (
            ops.Constant(result=zero, value=0.0 if kind.dtype.is_float else 0, loc=loc),
            ops.Full(result=update.arg, value=zero, loc=loc),
        )
        back = (*update.members, ops.SumToSlot(value=update.changed, **place), ops.Yield(loc=loc))
        then = copy_region((*before, *back), self.namer)
        orelse = copy_region((*first, *back), self.namer)
        branch = ops.If(cond=cond, then=then, orelse=orelse, loc=loc)
        return [wait, branch, ops.ConsumerRelease(slot=wait.result, loc=loc)]

    def multiply(self, op: ops.Contract, where: dict[str, Any]) -> tuple[list[Op], list[Op]]:
        """By who multiplies; and what hands it over."""
        acquire = ops.ProducerAcquire(**where)
        place = dict[str, Any](slot=acquire.result, field=0, loc=op.loc)
        held = Value(self.namer.new("held"), op.result.type)
        product = with_fields(op, acc=held)
        commit = ops.ProducerCommit(slot=acquire.result, loc=op.loc)
        return (
            [acquire, ops.SlotSum(result=held, **place), product],
            [ops.SumToSlot(value=op.result, **place), commit],
        )


def _without(values: tuple[Value, ...], n: int) -> tuple[Value, ...]:
    return (*values[:n], *values[n + 1 :])
