"""Say everything once: equal scalar computations are shared, unused ones dropped. What LLVM would
fold is folded, so that the PTX still is the kernel's: loops of one turn, comparisons of numbers.

Before:
    %c64: i32 = constant(value=64)
    %t: i32 = map(fn="add", args=(%m, %c64))
    %c64_1: i32 = constant(value=64)
    %t_1: i32 = map(fn="add", args=(%m, %c64_1))
After:
    %c64: i32 = constant(value=64)
    %t: i32 = map(fn="add", args=(%m, %c64))

Only scalars are shared, also those that are read of tensors which nobody writes: a fragment that is
computed again is cheaper than one that lives longer.

Why here: last, so that the kernel that is read, proved and emitted is the short one.
"""

from __future__ import annotations

import dataclasses
import operator

from wsdsl.ir.barrier_ops import (
    Advance,
    ClusterIndex,
    CtaIndex,
    CtaRank,
    ForRange,
    InitialState,
    NumClusters,
    NumCtas,
    WarpgroupIndex,
)
from wsdsl.ir.fragment_ops import (
    AsAccumulator,
    ConvertLayout,
    EmptyAccumulator,
    Iota,
    Join,
    MatrixOperand,
    ReduceColumns,
    Slice,
    ZeroUnless,
)
from wsdsl.ir.memory_ops import LoadGlobal
from wsdsl.ir.op import Kernel, Op, Region, Value, fields_of, operands, regions, results_of
from wsdsl.ir.pipeline_ops import AxisAt
from wsdsl.ir.tensor_accesses import written_tensors
from wsdsl.ir.tile_ops import COMPARISONS, Bitcast, Cast, Constant, DimSize, Full, Map, Whole
from wsdsl.ir.types import Tile
from wsdsl.ir.walk import replace_operands, with_regions, yielded

Numbers = dict[Value, int | float | bool]
Bounds = frozenset[tuple[Value, ...]]
SHARED = (
    Constant, DimSize, Map, Cast, CtaIndex, NumCtas, ClusterIndex, NumClusters, CtaRank,
    WarpgroupIndex,
)  # fmt: skip
PURE = (
    *SHARED, Bitcast, Full, Advance, InitialState, AsAccumulator, ConvertLayout, EmptyAccumulator,
    Iota, Join, MatrixOperand, ReduceColumns, Slice, ZeroUnless, LoadGlobal, AxisAt, Whole,
)  # fmt: skip


def simplify(kernel: Kernel) -> Kernel:
    body = _hoist_constants(kernel.body)
    numbers: Numbers = {op.result: op.value for op in body if isinstance(op, Constant)}
    written = written_tensors(kernel.ops)
    body = _share(_fold(body, numbers, {}), {}, {}, written)
    body = _drop_unused(_fold(body, numbers, {}), set())
    return dataclasses.replace(kernel, body=body)


def _hoist_constants(body: Region) -> Region:
    """Scalar constants and sizes move in front of the partitions; they cost no register."""
    found: list[Op] = []

    def without(region: Region) -> Region:
        kept: list[Op] = []
        for op in region:
            if isinstance(op, (Constant, DimSize)):
                found.append(op)
            else:
                kept.append(with_regions(op, without))
        return tuple(kept)

    rest = without(body)
    return (*found, *rest)


def _fold(
    region: Region, numbers: Numbers, swap: dict[Value, Value], run: Bounds = frozenset()
) -> Region:
    """`run`: bounds of the loops that stand around."""
    kept: list[Op] = []
    for op in region:
        op = _swap_own(op, swap)
        match op:
            case ForRange() if _turns_once(op, numbers):
                swap.update({op.index: op.start, **dict(zip(op.args, op.init, strict=True))})
                kept += _fold(op.body[:-1], numbers, swap, run)
                last = (swap.get(v, v) for v in yielded(op.body))
                swap.update(zip(op.result, last, strict=True))
            case Map(args=(x, y)) if op.fn in COMPARISONS and x in numbers and y in numbers:
                numbers[op.result] = getattr(operator, op.fn)(numbers[x], numbers[y])
                kept.append(Constant(result=op.result, value=numbers[op.result], loc=op.loc))
            case Map() if (op.fn == "lt" and op.args in run) or (
                op.fn == "gt" and op.args[::-1] in run
            ):
                # The loop would not run.
                numbers[op.result] = True
                kept.append(Constant(result=op.result, value=True, loc=op.loc))
            case ForRange():
                within = run | {(op.start, op.stop)}
                kept.append(
                    with_regions(op, lambda inner, run=within: _fold(inner, numbers, swap, run))
                )
            case _:
                kept.append(with_regions(op, lambda inner: _fold(inner, numbers, swap, run)))
    return tuple(kept)


def _turns_once(loop: ForRange, numbers: Numbers) -> bool:
    if not {loop.start, loop.stop, loop.step} <= {*numbers}:
        return False
    start, stop, step = (numbers[v] for v in (loop.start, loop.stop, loop.step))
    return start < stop <= start + step


def _key(op: Op) -> tuple[object, ...]:
    made = results_of(op)[0]
    fields = [getattr(op, name) for name, kind in fields_of(type(op)) if kind != "result"]
    # 1, 1.0 and True are equal to Python, not to a kernel.
    return (type(op), made.type, *((f, type(f)) for f in fields))


def _is_shared(op: Op, written: frozenset[str]) -> bool:
    if isinstance(op, LoadGlobal) and (op.in_order or op.tensor.name in written):
        return False
    kind = results_of(op)[0].type if isinstance(op, (*SHARED, LoadGlobal)) else None
    return isinstance(kind, Tile) and not kind.axes


def _share(
    region: Region,
    known: dict[tuple[object, ...], Value],
    swap: dict[Value, Value],
    written: frozenset[str],
) -> Region:
    known = dict(known)
    kept: list[Op] = []
    for op in region:
        op = _swap_own(op, swap)
        made = results_of(op)
        if _is_shared(op, written):
            before = known.setdefault(_key(op), made[0])
            if before != made[0]:
                swap[made[0]] = before
                continue
        kept.append(with_regions(op, lambda inner: _share(inner, known, swap, written)))
    return tuple(kept)


def _swap_own(op: Op, swap: dict[Value, Value]) -> Op:
    mine = {v: swap[v] for v in operands(op) if v in swap}
    if not mine:
        return op
    bare = with_regions(op, lambda inner: ()) if regions(op) else op
    changed = replace_operands(bare, mine)
    inner = iter(regions(op))
    return with_regions(changed, lambda _: next(inner)) if regions(op) else changed


def _drop_unused(region: Region, used: set[Value]) -> Region:
    """From the end on: who uses a value stands behind it. `used`: behind the region, and then in
    it, too.
    """
    kept: list[Op] = []
    for op in reversed(region):
        if not isinstance(op, PURE) or not used.isdisjoint(results_of(op)):
            kept.append(with_regions(op, lambda inner: _drop_unused(inner, used)))
            used.update(operands(op))
    return tuple(reversed(kept))
