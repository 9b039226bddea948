"""Let the row blocks of a product that is read at once follow one another, in one accumulator.

Before:
    %acc0 = empty_accumulator()
    %acc1 = empty_accumulator()
    wgmma_fence()
    %acc2 = wgmma(acc=%acc0, a=%a0, b=%b, accumulate=%false, ...)
    %acc3 = wgmma(acc=%acc1, a=%a1, b=%b, accumulate=%false, ...)
    wgmma_commit()
    %sum0, %sum1 = wgmma_wait(pending=0, accumulators=(%acc2, %acc3))
    arrive_barrier(barriers=%empty, state=%s)
    %total0 = map(fn="add", args=(%before0, %sum0))
    %total1 = map(fn="add", args=(%before1, %sum1))
After:
    %acc0 = empty_accumulator()
    wgmma_fence()
    %acc2 = wgmma(acc=%acc0, a=%a0, b=%b, accumulate=%false, ...)
    wgmma_commit()
    %sum0 = wgmma_wait(pending=0, accumulators=(%acc2,))
    %total0 = map(fn="add", args=(%before0, %sum0))
    %acc1 = as_accumulator(x=%sum0)
    wgmma_fence()
    %acc3 = wgmma(acc=%acc1, a=%a1, b=%b, accumulate=%false, ...)
    wgmma_commit()
    %sum1 = wgmma_wait(pending=0, accumulators=(%acc3,))
    arrive_barrier(barriers=%empty, state=%s)
    %total1 = map(fn="add", args=(%before1, %sum1))

A promoted sum of 128 x 128 a warpgroup then takes 192 registers, not 256. While one consumer adds,
the tensor cores have the other's product.

Why here: behind `prefetch_loads`, so that what is loaded ahead comes before the first product.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.fragment_ops import (
    AsAccumulator,
    EmptyAccumulator,
    Slice,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of
from wsdsl.ir.tile_ops import Bitcast, Cast, Full, Map
from wsdsl.ir.walk import Namer, definers, used_inside, with_regions

ELEMENTWISE = (Bitcast, Cast, Full, Map, Slice)


def reuse_accumulators(kernel: Kernel) -> Kernel:
    namer = Namer.of(kernel)
    return dataclasses.replace(kernel, body=_region(kernel.body, namer))


def _region(region: Region, namer: Namer) -> Region:
    ops = tuple(with_regions(op, lambda inner: _region(inner, namer)) for op in region)
    at = 0
    while at < len(ops):
        if isinstance(ops[at], WgmmaWait) and (group := _Group.before(ops, at)) is not None:
            ops = group.in_turns(namer)
        at += 1
    return ops


@dataclasses.dataclass
class _Group:
    """Products from the fence at `start` to the wait at `end`, one for each of its sums."""

    ops: Region
    start: int
    end: int
    products: list[Wgmma]

    @classmethod
    def before(cls, ops: Region, end: int) -> _Group | None:
        wait, made = ops[end], definers(ops)
        assert isinstance(wait, WgmmaWait)
        fences = [i for i in range(end) if isinstance(ops[i], WgmmaFence)]
        if wait.pending or len(wait.accumulators) < 2 or not fences:
            return None
        products = [op for op in ops[fences[-1] : end] if isinstance(op, Wgmma)]
        fresh = all(isinstance(made.get(op.acc), EmptyAccumulator) for op in products)
        alike = {op.acc.type for op in products}
        if not fresh or len(alike) > 1 or [op.result for op in products] != [*wait.accumulators]:
            return None
        group = cls(ops, fences[-1], end, products)
        return group if group.turns() is not None else None

    @property
    def wait(self) -> WgmmaWait:
        wait = self.ops[self.end]
        assert isinstance(wait, WgmmaWait)
        return wait

    def turns(self) -> list[list[Op]] | None:
        """By product, what is computed from its sum before the next one; None if that can not be
        told apart. What needs the last sum stays where it is.
        """
        rest = self.ops[self.end + 1 :]
        turn = {v: i for i, v in enumerate(self.wait.result)}
        for op in rest:
            used = [turn[v] for v in (*operands(op), *used_inside(op)) if v in turn]
            if used:
                turn |= dict.fromkeys(results_of(op), max(used))
        last, made = len(self.products) - 1, definers(rest)
        found: list[list[Op]] = [[] for _ in self.products]
        placed: set[Op] = set()
        for i in range(last):
            wanted = [op for op in rest if any(turn.get(v) == i for v in results_of(op))]
            needed = set[Op]()
            while wanted:
                op = wanted.pop()
                if op in needed or op in placed:
                    continue
                if not isinstance(op, ELEMENTWISE):
                    return None
                needed.add(op)
                wanted += [made[v] for v in operands(op) if v in made]
            found[i] = [op for op in rest if op in needed]
            placed |= needed
        found[last] = [op for op in rest if op not in placed]
        for i, own in enumerate(found):
            # Their registers are the next product's by now.
            over = {*self.wait.result[:i]}
            if any(over & {*operands(op), *used_inside(op)} for op in own):
                return None
        return found

    def in_turns(self, namer: Namer) -> Region:
        turns = self.turns()
        assert turns is not None
        unused = {op.acc for op in self.products[1:]}
        ops = [op for op in self.ops[: self.end] if not unused & {*results_of(op)}]
        last = ops.index(self.products[-1])
        fence = self.ops[self.start]
        made = [op for op in ops[:last] if op is not fence and op not in self.products]
        behind = [op for op in ops[last + 1 :] if not isinstance(op, WgmmaCommit)]
        for i, (product, own) in enumerate(zip(self.products, turns, strict=True)):
            loc, acc, sums = product.loc, product.acc, self.wait.result
            if i:
                acc = Value(namer.again(acc.name), acc.type)
                made.append(AsAccumulator(result=acc, x=sums[i - 1], loc=loc))
            made += [
                WgmmaFence(loc=loc),
                dataclasses.replace(product, acc=acc),
                WgmmaCommit(loc=loc),
                *(behind if i == 0 else ()),
                dataclasses.replace(self.wait, result=(sums[i],), accumulators=(product.result,)),
                *own,
            ]
        return tuple(made)
