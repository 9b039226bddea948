"""Load what a loop multiplies its products by one iteration ahead.

Before:
    %acc3 = for_range(index=%k, start=%c0, ..., step=%c128, init=(%acc0,), args=(%acc1,)) {
      ...
      %sum = wgmma_wait(pending=0, accumulators=(%acc,))
      %kb: i32 = map(fn="floordiv", args=(%k, %c128))
      %s: frag<f32[64x1]> = load_global(tensor=%a_scale, index=(%rows, %kb))
      %factor: frag<f32[64x1]> = map(fn="mul", args=(%s, %alpha))
      ...
      yield(values=(%acc2,))
    }
After:
    %kb0: i32 = map(fn="floordiv", args=(%c0, %c128))
    %s0: frag<f32[64x1]> = load_global(tensor=%a_scale, index=(%rows, %kb0))
    %acc3, %s3 = for_range(..., init=(%acc0, %s0), args=(%acc1, %s1: frag<f32[64x1]>)) {
      %factor: frag<f32[64x1]> = map(fn="mul", args=(%s1, %alpha))
      %next: i32 = map(fn="add", args=(%k, %c128))
      %kb: i32 = map(fn="floordiv", args=(%next, %c128))
      %s2: frag<f32[64x1]> = load_global(tensor=%a_scale, index=(%rows, %kb))
      %sum = wgmma_wait(pending=0, accumulators=(%acc,))
      ...
      yield(values=(%acc2, %s2))
    }

Nothing hides the way to GMEM after the wait for a product. Two consumers compute the addresses
before a product begins, which gives the loads the longest time (block scales on an H200: 0.91 of
cuBLAS without scales, else 0.78). Of three, two keep the tensor cores busy meanwhile, so the third
begins its own product first (0.96, else 0.86).

What is small and computed from such a load is computed first, so that the next value can take the
registers of the last one. The load behind the last iteration finds zeros outside the tensor, or
what nobody asks for. What does not change from one iteration to the next is loaded in front of the
loop. Only values of one column are carried: others take too many registers beside the sums. Tensors
that the kernel writes are left alone.

Why here: on fragments, when it is known how few registers a load fills.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.fragment_ops import Iota, Wgmma, WgmmaCommit
from wsdsl.ir.memory_ops import LoadGlobal
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.tensor_accesses import written_tensors
from wsdsl.ir.tile_ops import Cast, Constant, DimSize, Map, Yield
from wsdsl.ir.types import Fragment
from wsdsl.ir.walk import Namer, copy_region, replace_operands, used_inside, with_regions
from wsdsl.lowering.builder import INT

REPEATABLE = (Cast, Constant, DimSize, Iota, LoadGlobal, Map)


def prefetch_loads(kernel: Kernel) -> Kernel:
    namer, written = Namer.of(kernel), written_tensors(kernel.ops)
    partitions = [op for op in kernel.body if isinstance(op, Partition)]
    late = any(op.late_loads for op in partitions)

    def region(before: Region) -> Region:
        made: list[Op] = []
        for op in before:
            op = with_regions(op, region)
            if isinstance(op, ForRange) and any(isinstance(o, Wgmma) for o in op.body):
                made += _Loop(op, namer, written, late).prefetched()
            else:
                made.append(op)
        return tuple(made)

    return dataclasses.replace(kernel, body=region(kernel.body))


class _Loop:
    def __init__(self, loop: ForRange, namer: Namer, written: frozenset[str], late: bool) -> None:
        self.loop, self.namer, self.written, self.late = loop, namer, written, late
        self.made = {v: op for op in loop.body for v in results_of(op)}

    def prefetched(self) -> list[Op]:
        """The loop, and what is loaded in front of it."""
        loop, namer = self.loop, self.namer
        following = Map(
            result=Value(namer.new("next"), INT),
            fn="add",
            args=(loop.index, loop.step),
            loc=loop.loc,
        )
        before: list[Op] = []
        ahead: list[Op] = []
        carried: list[tuple[Value, Value, Value]] = []
        swap: dict[Value, Value] = {}
        for op in loop.body[:-1]:
            needed = self.needed(op) if isinstance(op, LoadGlobal) and _small(op.result) else None
            if needed is None:
                continue
            (value,) = results_of(op)
            first = copy_region(needed, namer, {loop.index: loop.start})
            (swap[value],) = results_of(first[-1])
            before += first
            if any(loop.index in operands(o) for o in needed):
                again = copy_region(needed, namer, {loop.index: following.result})
                ahead += again
                arg = Value(namer.again(value.name), value.type)
                carried.append((swap[value], arg, results_of(again[-1])[0]))
                swap[value] = arg
        if not swap:
            return [loop]
        rest = [
            replace_operands(op, swap) for op in loop.body if not swap.keys() & {*results_of(op)}
        ]
        early = _computed_from(set(swap.values()), rest, self.made)
        *rest, ended = (op for op in rest if op not in early)
        assert isinstance(ended, Yield)
        commits = (i + 1 for i, op in enumerate(rest) if isinstance(op, WgmmaCommit))
        at = next(commits, 0) if self.late else 0
        made = {v for op in early for v in results_of(op)}
        if any(made & {*operands(op), *used_inside(op)} for op in rest[:at]):
            # A product's operand is made of it.
            at = 0
        ended = dataclasses.replace(
            ended, values=(*ended.values, *(last for _, _, last in carried))
        )
        names = (Value(namer.again(arg.name), arg.type) for _, arg, _ in carried)
        changed = dataclasses.replace(
            loop,
            result=(*loop.result, *names),
            init=(*loop.init, *(first for first, _, _ in carried)),
            args=(*loop.args, *(arg for _, arg, _ in carried)),
            body=(*rest[:at], *early, following, *ahead, *rest[at:], ended),
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
            if isinstance(op, LoadGlobal) and op.tensor.name in self.written:
                return None
            found.add(op)
            open_values += operands(op)
        return tuple(op for op in self.loop.body if op in found)


def _small(value: Value) -> bool:
    return not (isinstance(value.type, Fragment) and value.type.columns > 1)


def _computed_from(known: set[Value], body: list[Op], made: dict[Value, Op]) -> list[Op]:
    """Small values that a body computes from `known` ones and what comes from outside of it."""
    found: list[Op] = []
    for op in body:
        if not (isinstance(op, (Cast, Map)) and _small(op.result)):
            continue
        inside = {v for v in operands(op) if v in known or v in made}
        if inside and inside <= known:
            known.add(op.result)
            found.append(op)
    return found
