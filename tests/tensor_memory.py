"""Kernels whose sums lie in tensor memory, and every small way to break them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from tests.case_table import Case
from tests.kernels import CASES
from tests.simulator.mutants import changes as changes_of_barriers
from tests.simulator.mutants import mutants as mutants_of
from wsdsl import Schedule
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.ops import Constant, If
from wsdsl.ir.types import Columns, TensorMemory
from wsdsl.lowering.pipeline import lower
from wsdsl.schedule import Arch

DELETED = (
    ops.NamedBarrierSync,
    ops.StoreShared,
    ops.Tcgen05St,
    ops.StoreScaleFactors,
    ops.Tcgen05Cp,
    ops.Tcgen05WaitSt,
    ops.FenceAsyncProxy,
    ops.Tcgen05Alloc,
    ops.Tcgen05Dealloc,
    ops.Tcgen05Mma,
    ops.Tcgen05Commit,
    ops.Tcgen05Fence,
    ops.MbarrierWait,
    ops.MbarrierArrive,
    ops.SyncCta,
    ops.SyncCluster,
    ops.MbarrierArriveExpectTx,
)


def lowered(
    case: Case, arch: Arch = "sm_100a", sizes: Mapping[str, int] | None = None, **asked: Any
) -> Kernel:
    schedule, known = Schedule(arch=arch, **asked), tuple(sorted((sizes or {}).items()))
    return lower(case.with_schedule(schedule, sizes=known))


@cache
def scheduled(
    name: str, rows: int = 128, n: int = 64, stages: int = 3, arch: Arch = "sm_100a", pair: int = 1
) -> Kernel:
    """A case, lowered by tiles of so many rows and n columns, for a `pair` of CTAs."""
    return lowered(CASES[name], arch, tile=dict(m=rows, n=n), stages=stages, cta_group=pair)


def _each(op: Op, **fields: Any) -> Iterator[tuple[str, Op]]:
    """One field at a time has another value."""
    for name, value in fields.items():
        yield name, replace(op, **{name: value})


def changes(op: Op) -> Iterator[tuple[str, Op]]:
    match op:
        case ops.Tcgen05Alloc(result=result):
            assert isinstance(result.type, TensorMemory)
            for columns in (result.type.columns // 2, 48):
                made = replace(result, type=TensorMemory(columns))
                yield f"{columns} columns", replace(op, result=made)
        case ops.TmemColumns():
            yield from _each(op, first=op.first + 32)
        case ops.Tcgen05Mma():
            yield from _each(op, column=op.column + 8, columns=op.columns + 16)
            yield from _each(op, rows=192 - op.rows, k=2 * op.k)
            if op.a_state is not None:
                yield from _each(op, a_column=op.a_column + 8, a_state=op.state)
            if op.scales is not None:
                yield from _each(op, a_scale=op.a_scale + 4, scale_state=op.state)
                yield from _each(op, block=16, scale_dtype="f8e4m3")
                swapped = replace(op, a_scale=op.b_scale, b_scale=op.a_scale)
                yield "scales swapped", swapped
                none: dict[str, Any] = dict(scales=None, scale_state=None, scale_dtype="")
                yield "unscaled", replace(op, b_scale=0, block=0, **none)
        case ops.Tcgen05Cp():
            yield from _each(op, column=op.column + 4, rows=384 - op.rows)
            yield from _each(op, words=op.words + 1, offset=op.offset + 128)
            yield "state", replace(op, shared_state=op.state)
        case ops.StoreScaleFactors():
            yield from _each(op, column=op.column + 1, rows=op.rows + 32, words=op.words + 1)
            yield from _each(op, line=2 * op.line, offset=op.offset + 16, atoms=not op.atoms)
            yield "columns", replace(op, column=4 - op.column)
            yield "state", replace(op, shared_state=op.state)
        case ops.Tcgen05Commit() | ops.TmaLoad() if op.multicast is not None:
            yield "alone", replace(op, multicast=None)
        case ops.TmaLoad() | ops.MbarrierArriveExpectTx() if op.cta is not None:
            yield "own barrier", replace(op, cta=None)
        case ops.SyncCluster():
            yield "relaxed", replace(op, relaxed=not op.relaxed)
        case ops.Tcgen05Ld() | ops.Tcgen05St():
            yield from _each(op, column=op.column + 8, half=1 - op.half)
            if op.apart:
                yield "apart", replace(op, apart=op.apart - 8)
                yield "together", replace(op, apart=0)
        case ops.StoreShared(state=None):
            yield "other half", replace(op, half=3 - op.half)
        case ops.StoreShared():
            yield from _each(op, apart=48 - op.apart, offset=op.offset + 1024)
        case ops.Tcgen05Fence():
            yield "other", replace(op, after=not op.after)
        case ops.InitialState() | ops.AllocateMbarriers():
            yield from changes_of_barriers(op)
        case ops.Advance():
            yield "num", replace(op, num=op.num + 1)
        case ops.MbarrierArrive():
            yield "one warp", replace(op, each_warp=not op.each_warp)
            if op.cta is not None:
                yield "own barrier", replace(op, cta=None)
        case _:
            pass


def fewer(op: Op, masks: set[Value]) -> Iterator[tuple[str, Op]]:
    """A mask that has not all CTAs."""
    for mask in (1, 2) if isinstance(op, Constant) and op.result in masks else ():
        yield f"mask {mask}", replace(op, value=mask)


def _of_a_pair(op: Op) -> Iterator[tuple[str, Op]]:
    if (group := getattr(op, "cta_group", 0)) and isinstance(op, (*DELETED, ops.Tcgen05Commit)):
        yield "cta_group", replace(op, cta_group=3 - group)
    if isinstance(op, If):
        yield "other CTA", replace(op, then=op.orelse, orelse=op.then)


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """(what was broken, the kernel)."""
    masks = {op.multicast for op in kernel.of(ops.Tcgen05Commit) if op.multicast is not None}
    yield from mutants_of(
        kernel, DELETED, lambda op: (*changes(op), *fewer(op, masks), *_of_a_pair(op))
    )


def columns_of(kernel: Kernel) -> Mapping[str, Columns]:
    """Of tensor memory, by label."""
    found = kernel.of(ops.TmemColumns)
    return {op.label: op.result.type for op in found if isinstance(op.result.type, Columns)}
