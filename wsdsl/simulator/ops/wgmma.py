"""wgmma: operands read and accumulators written at some time between issue and retirement.

Float accumulators are rounded to f32 after each instruction. Hopper accumulates fp8 in about 14
bits, which is not simulated: `Schedule.mma_promotion_interval` has little effect here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.hardware.wgmma_shapes import ROWS, k_step
from wsdsl.ir.op import Op, Value
from wsdsl.ir.types import DTYPES, Accumulator, DType, Fragment
from wsdsl.record import record
from wsdsl.simulator.cta import Cta
from wsdsl.simulator.ops.smem import aligned
from wsdsl.simulator.reference.arithmetic import Array, dtype_of, multiplicand, numpy_dtype
from wsdsl.simulator.reference.bound_arrays import elements_of
from wsdsl.simulator.reference.fragment_arrays import finish, shape_of
from wsdsl.simulator.state.register_fragments import keeps
from wsdsl.simulator.state.smem_bytes import Region, tile
from wsdsl.simulator.state.smem_races import Access, TensorRead
from wsdsl.simulator.state.wgmma_groups import AccumulatorRegisters, AccumulatorValue, Product
from wsdsl.simulator.warpgroup import UNDEFINED, Blocked, Steps, Warpgroup


@record
class Operand:
    """An smem descriptor: a tile in panels at `base`, and its start along M or N."""

    label: str
    base: int
    start: int
    dtype: DType
    rows: int
    columns: int
    swizzle: str
    k_major: bool
    deep: int = 0
    """Where along K to begin."""

    def fault(self, extent: int, k: int) -> str:
        along, deep = (self.rows, self.columns) if self.k_major else (self.columns, self.rows)
        if self.start < 0 or self.start + extent > along or self.deep + k > deep:
            return f"{extent} x {k} elements from {self.start} exceed {self.rows} x {self.columns}"
        granule = 8 if self.k_major else self.dtype.count(SWIZZLE_SPAN[self.swizzle])
        if self.start % granule:
            return f"an operand starts at {self.start}, not at a multiple of {granule}"
        return ""

    def region(self, extent: int, k: int) -> Region:
        """The bytes of `extent` elements along M or N and `k`."""
        along, deep = (self.start, self.start + extent), (self.deep, self.deep + k)
        lines, columns = (along, deep) if self.k_major else (deep, along)
        first, last = (self.dtype.size(at) for at in columns)
        row_bytes = self.dtype.size(self.columns)
        return tile(self.base, self.rows, row_bytes, self.swizzle, lines, (first, last))

    def fetch(self, cta: Cta, region: Region) -> Array:
        """The operand as (M or N) x K, widened for the product."""
        held = multiplicand(elements_of(cta.memory.read(region), self.dtype), self.dtype)
        return held if self.k_major else held.T


def smem_descriptor(wg: Warpgroup, op: ops.SmemDescriptor) -> None:
    dtype = DTYPES[op.dtype]
    row_bytes = dtype.size(op.columns)
    if row_bytes % SWIZZLE_SPAN[op.swizzle] or op.rows % 8:
        wg.fail(op, f"a tile of {op.rows} x {row_bytes} bytes does not fit swizzle {op.swizzle}")
    base, label = wg.place(op, op.rows * row_bytes, op.offset)
    aligned(wg, op, base, op.swizzle)
    start = int(wg.get(op.start, op)) if op.start is not None else 0
    wg.values[op.result.name] = Operand(
        label, base, start, dtype, op.rows, op.columns, op.swizzle, op.k_major, op.first
    )


def empty_accumulator(wg: Warpgroup, op: ops.EmptyAccumulator) -> None:
    wg.values[op.result.name] = AccumulatorValue(AccumulatorRegisters(None, wg.wgmma.fences), 0)


def as_accumulator(wg: Warpgroup, op: ops.AsAccumulator) -> None:
    held = wg.values[op.x.name]
    value = None if held is UNDEFINED else np.array(held)
    registers = AccumulatorRegisters(value, wg.wgmma.fences)
    wg.values[op.result.name] = AccumulatorValue(registers, 0)


def wgmma_fence(wg: Warpgroup, op: ops.WgmmaFence) -> None:
    wg.effect(op, "fence", "wgmma", wg.everyone)
    wg.wgmma.fences += 1


def accumulator(wg: Warpgroup, op: Op, value: Value) -> AccumulatorRegisters:
    held: AccumulatorValue = wg.values[value.name]
    if held.stale:
        wg.fail(op, f"a later op has overwritten the registers of {value}")
    return held.registers


def wgmma_mma_async(wg: Warpgroup, op: ops.WgmmaMmaAsync) -> None:
    registers = accumulator(wg, op, op.acc)
    if registers.touched >= wg.wgmma.fences:
        wg.fail(op, "no wgmma_fence follows the last use of the registers of the accumulator")
    registers.touched = -1
    accumulate = bool(wg.get(op.accumulate, op))
    if accumulate and registers.value is None and not wg.wgmma.in_flight(registers):
        wg.fail(op, "no op has written the accumulator", kind="uninitialized")
    dtype, b_dtype = (DTYPES[name] for name in op.dtypes)
    step = k_step(dtype)
    if op.k % step:
        wg.fail(op, f"k={op.k} is not a multiple of {step} for {dtype}")
    read = TensorRead(wg.told, op, wg.everyone)
    fragment = _register_operand(wg, op, dtype) if isinstance(op.a.type, Fragment) else None
    if fragment is None:
        a = operand_in_shared(wg, op, read, dtype, op.a, ROWS, op.a_k_major)
    else:
        a = partial(multiplicand, fragment, dtype)
    b = operand_in_shared(wg, op, read, b_dtype, op.b, op.num_columns, op.b_k_major)
    beyond = op.acc.type_as(Accumulator).columns - op.num_columns
    job = Product(op, registers, (a, b), accumulate, step, read, fragment, beyond)
    registers.version += 1
    wg.values[op.result.name] = AccumulatorValue(registers, registers.version)
    pipe = wg.wgmma
    pipe.open.append(job)
    if not pipe.queue:
        wg.cta.residents.start(pipe, op, wg.cta)
    pipe.queue.append(job)


def _register_operand(wg: Warpgroup, op: ops.WgmmaMmaAsync, dtype: DType) -> Array:
    held: Array = wg.get(op.a, op)
    kind = op.a.as_fragment
    taken = Fragment(dtype, ROWS, op.k).as_operand
    if kind != taken or not op.a_k_major:
        wg.fail(op, f"{op.a} is {kind}; the wgmma expects {taken}, K-major")
    if not wg.operands.fenced(op.a, wg.wgmma.fences):
        wg.fail(
            op,
            f"no wgmma_fence follows the last write to the registers of {op.a}",
            hint="add a wgmma_fence after the last op that writes operands in registers",
        )
    return held


def operand_in_shared(
    wg: Warpgroup,
    op: ops.WgmmaMmaAsync | ops.Tcgen05Mma,
    read: Access,
    dtype: DType,
    value: Value,
    extent: int,
    k_major: bool,
    cta: Cta | None = None,
) -> Callable[[], Array]:
    """Check the reads of one operand; return a function that reads it when the MMA runs. `cta`: the
    CTA whose SMEM has it, if another one.
    """
    held, there = cast(Operand, wg.get(value, op)), cta or wg.cta
    if (held.dtype, held.k_major) != (dtype, k_major):
        wg.fail(
            op,
            f"{value} is {held.dtype} with k_major={held.k_major}; the MMA expects "
            f"{dtype} with {k_major}",
        )
    wg.check(op, held.fault(extent, op.k))
    what, region = f"it reads {held.label}{there.suffix}", held.region(extent, op.k)
    reader = wg.cta.index, wg.index, "product"
    wg.begin(op, what, "read", there.memory, region, read, wg.actors, reader)
    return lambda: held.fetch(there, region)


def wgmma_commit(wg: Warpgroup, op: ops.WgmmaCommit) -> None:
    wg.effect(op, "arrive", "wgmma", wg.everyone)
    wg.wgmma.groups.append(wg.wgmma.open)
    wg.wgmma.open = []


def wgmma_wait(wg: Warpgroup, op: ops.WgmmaWait) -> Steps:
    pipe = wg.wgmma
    if pipe.open:
        wg.fail(op, "a wgmma is not committed, so this wait does not cover it")
    covered = pipe.groups[: max(0, len(pipe.groups) - op.pending)]
    jobs = [job for group in covered for job in group]
    if not all(job.done for job in jobs):
        yield Blocked(op, lambda: all(job.done for job in jobs), lambda: "its wgmmas")
    wg.effect(op, "wait", "wgmma", wg.everyone)
    _check_kept(wg, op, jobs)
    clocks = wg.cta.clocks
    clocks.tick(wg.everyone)
    epochs = clocks.own[wg.everyone].copy()
    for job in jobs:
        job.read.epochs = epochs
    del pipe.groups[: len(covered)]
    for value, result in zip(op.accumulators, op.result, strict=True):
        registers = accumulator(wg, op, value)
        if pipe.in_flight(registers):
            wg.fail(op, f"{value} is incomplete: the wait leaves {op.pending} groups in flight")
        registers.version += 1
        registers.touched = pipe.fences
        held = registers.value
        wg.values[result.name] = UNDEFINED if held is None else held


def _check_kept(wg: Warpgroup, op: ops.WgmmaWait, jobs: list[Product]) -> None:
    kept = [wg.values[value.name] for value in op.fragments]
    for job in jobs:
        if job.fragment is not None and not keeps(kept, job.fragment):
            assert isinstance(job.op, ops.WgmmaMmaAsync)
            wg.fail(
                op,
                f"the registers of {job.op.a} may be overwritten while wgmma reads them",
                hint="list it in the `fragments` of the wgmma_wait that covers the wgmma",
                extra=job.op,
            )


def value_of_zero_unless(wg: Warpgroup, op: ops.ZeroUnless) -> Any:
    zero = np.zeros(shape_of(op.result) or (), numpy_dtype(dtype_of(op.result)))
    return wg.get(op.x, op) if wg.get(op.cond, op) else finish(zero, op.result)
