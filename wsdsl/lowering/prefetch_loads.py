"""Load what a loop multiplies its products by one iteration ahead.

Before:
    %acc3 = for_range(index=%k, start=%c0, ..., step=%c128, init=(%acc0,), args=(%acc1,)) {
      ...
      %sum = wgmma_wait(pending=0, accumulators=(%acc,))
      %kb: i32 = map(fn="floordiv", args=(%k, %c128))
      %s: frag<f32[64x1]> = load_global(tensor=%a_scale, index=(%rows, %kb))
      ... uses %s ...
      yield(values=(%acc2,))
    }
After:
    %kb0: i32 = map(fn="floordiv", args=(%c0, %c128))
    %s0: frag<f32[64x1]> = load_global(tensor=%a_scale, index=(%rows, %kb0))
    %acc3, %s3 = for_range(..., init=(%acc0, %s0), args=(%acc1, %s1: frag<f32[64x1]>)) {
      ...
      %sum = wgmma_wait(pending=0, accumulators=(%acc,))
      %next: i32 = map(fn="add", args=(%k, %c128))
      %kb: i32 = map(fn="floordiv", args=(%next, %c128))
      %s2: frag<f32[64x1]> = load_global(tensor=%a_scale, index=(%rows, %kb))
      ... uses %s1 ...
      yield(values=(%acc2, %s2))
    }

Nothing hides the way to GMEM after the wait for a product. The load behind the last iteration finds
zeros outside the tensor, or what nobody asks for. What does not change from one iteration to the
next is loaded in front of the loop. Only values of one column are carried: others take too many
registers beside the sums. Tensors that the kernel writes are left alone.

Why here: on fragments, when it is known how few registers a load fills.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.fragment_ops import Iota, Wgmma
from wsdsl.ir.memory_ops import LoadGlobal, MakeTensorMap, StoreGlobal, TmaStore
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of
from wsdsl.ir.tile_ops import Cast, Constant, DimSize, Map, Yield
from wsdsl.ir.types import Fragment
from wsdsl.ir.walk import Namer, copy_region, definers, replace_operands, walk, with_regions
from wsdsl.lowering.builder import INT

REPEATABLE = (Cast, Constant, DimSize, Iota, LoadGlobal, Map)


def prefetch_loads(kernel: Kernel) -> Kernel:
    namer, written = Namer.of(kernel), _written(kernel)

    def region(before: Region) -> Region:
        made: list[Op] = []
        for op in before:
            op = with_regions(op, region)
            if isinstance(op, ForRange) and any(isinstance(o, Wgmma) for o in op.body):
                made += _Loop(op, namer, written).prefetched()
            else:
                made.append(op)
        return tuple(made)

    return dataclasses.replace(kernel, body=region(kernel.body))


def _written(kernel: Kernel) -> set[Value]:
    made = definers(kernel.body)
    found: set[Value] = set()
    for op in walk(kernel.body):
        if isinstance(op, StoreGlobal):
            found.add(op.tensor)
        elif isinstance(op, TmaStore):
            map = made[op.map]
            assert isinstance(map, MakeTensorMap)
            found.add(map.tensor)
    return found


class _Loop:
    def __init__(self, loop: ForRange, namer: Namer, written: set[Value]) -> None:
        self.loop, self.namer, self.written = loop, namer, written
        self.made = {v: op for op in loop.body for v in results_of(op)}

    def prefetched(self) -> list[Op]:
        """The loop, and what is loaded in front of it."""
        loop, namer = self.loop, self.namer
        next_index = Value(namer.new("next"), INT)
        before: list[Op] = []
        body: list[Op] = []
        swap: dict[Value, Value] = {}
        init, args, last, result = list(loop.init), list(loop.args), list[Value](), list(loop.result)
        for op in loop.body[:-1]:
            needed = self.needed(op) if isinstance(op, LoadGlobal) and _small(op) else None
            if needed is None:
                body.append(replace_operands(op, swap))
                continue
            first = copy_region(needed, namer, {loop.index: loop.start})
            (held,) = results_of(first[-1])
            before += first
            value = results_of(op)[0]
            if any(loop.index in operands(o) for o in needed):
                if next_index not in {v for o in body for v in results_of(o)}:
                    both = loop.index, loop.step
                    body.append(Map(result=next_index, fn="add", args=both, loc=loop.loc))
                ahead = copy_region(needed, namer, {loop.index: next_index})
                body += ahead
                init.append(held)
                last += results_of(ahead[-1])
                args.append(Value(namer.again(value.name), value.type))
                result.append(Value(namer.again(value.name), value.type))
                held = args[-1]
            swap[value] = held
        ended = loop.body[-1]
        assert isinstance(ended, Yield)
        ended = replace_operands(ended, swap)
        assert isinstance(ended, Yield)
        body.append(dataclasses.replace(ended, values=(*ended.values, *last)))
        changed = dataclasses.replace(
            loop, init=tuple(init), args=tuple(args), result=tuple(result), body=tuple(body)
        )
        return [*before, changed]

    def needed(self, load: LoadGlobal) -> Region | None:
        """What the body computes for a load, with the load at its end; None if that can not be
        done in another iteration."""
        found: set[Op] = set()
        open_values = [load.result]
        while open_values:
            value = open_values.pop()
            op = self.made.get(value)
            if value in self.loop.args:
                return None
            if op is None or op in found:
                continue
            if not isinstance(op, REPEATABLE):
                return None
            if isinstance(op, LoadGlobal) and op.tensor in self.written:
                return None
            found.add(op)
            open_values += operands(op)
        return tuple(op for op in self.loop.body if op in found)


def _small(op: LoadGlobal) -> bool:
    return not (isinstance(op.result.type, Fragment) and op.result.type.columns > 1)
