"""Promote a product that is deeper than sums of fp8 may be in parts of what it sums over.

Before (`precise_every=128`):
    %acc0 = empty_accumulator()
    wgmma_fence()
    %a = matrix_operand(offset=0, columns=256, ...)
    %b = matrix_operand(offset=16384, columns=256, ...)
    %acc1 = wgmma(acc=%acc0, a=%a, b=%b, accumulate=%false, k=256, ...)
    wgmma_commit()
    %sum = wgmma_wait(pending=0, accumulators=(%acc1,))
    arrive_barrier(barriers=%empty, state=%s)
    %total = map(fn="add", args=(%before, %sum))
After:
    %acc0 = empty_accumulator()
    %acc2 = empty_accumulator()
    wgmma_fence()
    %a = matrix_operand(offset=0, columns=128, ...)
    %a1 = matrix_operand(offset=8192, columns=128, ...)
    %b = matrix_operand(offset=16384, columns=128, ...)
    %b1 = matrix_operand(offset=18432, columns=128, ...)
    %acc1 = wgmma(acc=%acc0, a=%a, b=%b, accumulate=%false, k=128, ...)
    wgmma_commit()
    %acc3 = wgmma(acc=%acc2, a=%a1, b=%b1, accumulate=%false, k=128, ...)
    wgmma_commit()
    %sum1 = wgmma_wait(pending=1, accumulators=(%acc1,))
    %before1 = map(fn="add", args=(%before, %sum1))
    %sum2 = wgmma_wait(pending=0, accumulators=(%acc3,))
    arrive_barrier(barriers=%empty, state=%s)
    %total = map(fn="add", args=(%before1, %sum2))

The tensor cores have the next part while one is added, and a slot of several lines is waited for
once: 512 x 7168 x 18432 by 128 x 112 takes 111 us by two lines, 117 by one, 128 x 4096 x 14336 by
64 x 64 22.2 and 26.9 (H200).

Why here: before `hoist_operands`; an operand of several lines lies in panels of one line each, so
that each part is an operand of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from wsdsl.ir.fragment_ops import EmptyAccumulator, MatrixOperand, Wgmma, WgmmaCommit, WgmmaWait
from wsdsl.ir.op import Kernel, Op, Region, Value, operands
from wsdsl.ir.tile_ops import Map
from wsdsl.ir.types import DTYPES
from wsdsl.ir.walk import Namer, definers, used_inside, with_regions
from wsdsl.ir.wgmma import is_fp8


def promote_accumulators(kernel: Kernel) -> Kernel:
    every = kernel.schedule.precise_every if kernel.schedule else None
    if not every or not any(_is_deep(op, every) for op in kernel.ops):
        return kernel
    namer = Namer.of(kernel)
    return dataclasses.replace(kernel, body=_region(kernel.body, every, namer))


def _is_deep(op: Op, every: int) -> bool:
    return isinstance(op, Wgmma) and is_fp8(DTYPES[op.dtype]) and op.k > every


def _region(region: Region, every: int, namer: Namer) -> Region:
    ops = tuple(with_regions(op, lambda inner: _region(inner, every, namer)) for op in region)
    for wait in [op for op in ops if isinstance(op, WgmmaWait)]:
        products = [op for op in ops if isinstance(op, Wgmma) and op.result in wait.accumulators]
        if any(_is_deep(op, every) for op in products):
            ops = _Group(ops, wait, products, every, namer).in_parts()
    return ops


class _Group:
    """Products of one depth that are waited for at once, and read."""

    def __init__(
        self, ops: Region, wait: WgmmaWait, products: list[Wgmma], every: int, namer: Namer
    ) -> None:
        self.ops, self.wait, self.products, self.namer = ops, wait, products, namer
        self.every, (self.depth,) = every, {op.k for op in products}
        self.copies: dict[Value, list[Value]] = {}
        """By accumulator and operand, those of each part."""
        for op in products:
            for value in (op.acc, op.a, op.b):
                self.copies[value] = [value, *(self._like(value) for _ in self.parts[1:])]

    @property
    def parts(self) -> range:
        return range(self.depth // self.every)

    def in_parts(self) -> Region:
        at = self.ops.index(self.wait)
        front, rest = [op for op in self.ops[:at] if op not in self.products], self.ops[at + 1 :]
        commit = max(i for i, op in enumerate(front) if isinstance(op, WgmmaCommit))
        made = [*self._prepared(front[:commit])]
        results: list[list[Value]] = []
        for i in self.parts:
            results.append([self._like(op.result) for op in self.products])
            made += [self._part(op, i, results[i][j]) for j, op in enumerate(self.products)]
            made.append(front[commit])
        made += front[commit + 1 :]
        totals = [self._before(whole, rest) for whole in self.wait.result]
        for i in self.parts:
            sums = [self._like(value) for value in self.wait.result]
            pending = self.parts[-1] - i
            own = dict(pending=pending, accumulators=tuple(results[i]), result=tuple(sums))
            made.append(dataclasses.replace(self.wait, **own))
            for j, (total, part) in enumerate(zip(totals, sums, strict=True)):
                if not pending:
                    rest = self._finished(self.wait.result[j], rest, total, part)
                elif total is None:
                    totals[j] = part
                else:
                    totals[j] = added = self._like(total)
                    made.append(self._add(added, total, part))
        return (*made, *rest)

    def _prepared(self, front: list[Op]) -> Iterator[Op]:
        for op in front:
            if isinstance(op, EmptyAccumulator) and op.result in self.copies:
                for made in self.copies[op.result]:
                    yield dataclasses.replace(op, result=made)
            elif isinstance(op, MatrixOperand) and op.result in self.copies:
                step = op.rows * self.every * DTYPES[op.dtype].bytes
                for i, made in enumerate(self.copies[op.result]):
                    own = dict(offset=op.offset + i * step, columns=self.every)
                    yield dataclasses.replace(op, result=made, **own)
            else:
                yield op

    def _part(self, product: Wgmma, i: int, made: Value) -> Wgmma:
        acc, a, b = (self.copies[v][i] for v in (product.acc, product.a, product.b))
        return dataclasses.replace(product, result=made, acc=acc, a=a, b=b, k=self.every)

    def _before(self, whole: Value, rest: Region) -> Value | None:
        """What a sum is added to, if that is known by now and all that is done with it."""
        users = [op for op in rest if whole in {*operands(op), *used_inside(op)}]
        match users:
            case [Map(fn="add", args=(a, b))] if a != b:
                before = a if b == whole else b
                known = before not in definers(rest) and before not in self.wait.result
                return before if known and before.type == whole.type else None
            case _:
                return None

    def _finished(self, whole: Value, rest: Region, total: Value | None, part: Value) -> Region:
        assert total is not None
        if self._before(whole, rest) is None:
            return (self._add(whole, total, part), *rest)
        return tuple(
            dataclasses.replace(op, args=(total, part)) if whole in operands(op) else op
            for op in rest
        )

    def _add(self, result: Value, a: Value, b: Value) -> Map:
        return Map(result=result, fn="add", args=(a, b), loc=self.wait.loc)

    def _like(self, value: Value) -> Value:
        return Value(self.namer.again(value.name), value.type)
