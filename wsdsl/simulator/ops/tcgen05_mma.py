"""MMAs and copies of scale factors in the tensor pipe (tcgen05)."""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.hardware.block_scale_factors import TILE_COLUMNS, are_scaled, scale_columns
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS
from wsdsl.ir.hardware.tcgen05_shapes import LANES
from wsdsl.ir.hardware.wgmma_shapes import k_step, sum_of
from wsdsl.ir.types import DTYPES, Columns, DType
from wsdsl.simulator.cta import Cta
from wsdsl.simulator.ops.tcgen05 import first_column, issue, memory_of
from wsdsl.simulator.ops.wgmma import operand_in_shared
from wsdsl.simulator.reference.arithmetic import Array, multiplicand, numpy_dtype
from wsdsl.simulator.reference.bound_arrays import elements_of
from wsdsl.simulator.state import tmem_cells as tm
from wsdsl.simulator.state.smem_bytes import Region, span
from wsdsl.simulator.state.tmem_scale_factors import scaled_operands
from wsdsl.simulator.warpgroup import Warpgroup


def tcgen05_mma(wg: Warpgroup, op: ops.Tcgen05Mma) -> None:
    """In each CTA of a pair, which both have a part of the right operand."""
    ctas = wg.pair(op, op.cta_group)
    dtype, b_dtype = (DTYPES[name] for name in op.dtypes)
    taken = sum_of if op.scales is None else are_scaled
    total, step = taken(dtype, b_dtype), k_step(dtype)
    if total is None or op.k % step:
        wg.fail(op, f"tcgen05.mma does not support k={op.k} of {dtype} and {b_dtype} (step {step})")
    accumulate, number = bool(wg.get(op.accumulate, op)), wg.tensor_pipe.count
    read = tm.PipeAccess(wg.told, op, wg.tensor_pipe, number)
    columns, k_major = op.columns // op.cta_group, op.b_k_major
    parts = [operand_in_shared(wg, op, read, b_dtype, op.b, columns, k_major, c) for c in ctas]
    jobs = list[tm.CellProduct]()
    for cta in ctas:
        memory = memory_of(wg, op, cta)
        sums = _begin_sums(wg, op, cta, memory, accumulate)
        if isinstance(op.a.type, Columns):
            a = _operand_in_columns(wg, op, memory, dtype)
        else:
            a = operand_in_shared(wg, op, read, dtype, op.a, op.rows, op.a_k_major, cta)
        b = parts[0] if len(parts) == 1 else lambda: np.concatenate([fetch() for fetch in parts])
        if op.scales is not None:
            own = tm.PipeAccess(wg.told, op, wg.tensor_pipe, number, in_order=True)
            a, b = scaled_operands(wg, op, memory, own, (a, b))
        jobs.append(tm.CellProduct(op, memory, sums, (a, b), accumulate, step, numpy_dtype(total)))
    for job in jobs:
        issue(wg, op, job)


def _operand_in_columns(
    wg: Warpgroup, op: ops.Tcgen05Mma, memory: tm.TensorMemory, dtype: DType
) -> Callable[[], Array]:
    """A function that reads the operand's rows in TMEM when the MMA runs."""
    assert op.a_state is not None
    first, pipe = first_column(wg, op, op.a, op.a_state, op.a_column, op.a_columns), wg.tensor_pipe
    region = _rows(first, op.a_columns, op.rows)
    what = f"it reads columns {first} to {first + op.a_columns}"
    if not memory.written[region.index].all():
        wg.fail(op, f"{what}, which no op has written", kind="uninitialized")
    read = tm.PipeAccess(wg.told, op, pipe, pipe.count, in_order=True)
    where = memory, region, read, pipe.thread, "operand"
    wg.begin(op, what, "read", *where, asynchronous=False)

    def fetch() -> Array:
        held = np.ascontiguousarray(memory.read(region))
        return multiplicand(elements_of(held.view(np.uint8), dtype), dtype)

    return fetch


def _begin_sums(
    wg: Warpgroup, op: ops.Tcgen05Mma, cta: Cta, memory: tm.TensorMemory, accumulate: bool
) -> Region:
    """Begin the write of an MMA's accumulator."""
    first = first_column(wg, op, op.sums, op.state, op.column, op.columns)
    region, pipe = _rows(first, op.columns, op.rows), wg.tensor_pipe
    if accumulate and not memory.written[region.index].all():
        wg.fail(op, "no op has written the accumulator", kind="uninitialized")
    write = tm.PipeAccess(wg.told, op, pipe, pipe.count, in_order=True)
    what = f"it writes columns {first} to {first + op.columns}{cta.suffix}"
    wg.begin(op, what, "write", memory, region, write, pipe.thread, asynchronous=False)
    if not accumulate:
        memory.cells[region.index] = 0xFFFFFFFF
    memory.written[region.index] = True
    return region


def _rows(first: int, columns: int, rows: int) -> Region:
    """Return the cells of the rows of a product; those of 64 rows lie in half of the lanes."""
    held = slice(first, first + columns)
    return tm.cells(held, (tm.lanes_of(rows), held), (0, 1) if rows == LANES else (0,))


def tcgen05_cp(wg: Warpgroup, op: ops.Tcgen05Cp) -> None:
    """An atom at a time, in each CTA of a pair."""
    pipe, count = wg.tensor_pipe, op.rows // ROWS
    end, number = scale_columns(op.rows, op.words), pipe.count
    first = first_column(wg, op, op.scales, op.state, op.column, end)
    shared, state = wg.values[op.shared.name], wg.values[op.shared_state.name]
    start = wg.item(op, shared, state.stage, op.offset, BYTES * count * op.words)
    stop, reader = start + BYTES * count * op.words, (wg.cta.index, wg.index, "product")
    for cta in wg.pair(op, op.cta_group):
        memory = memory_of(wg, op, cta)
        read = tm.PipeAccess(wg.told, op, pipe, number)
        what = f"it reads item {state.stage} of `{shared.label}`{cta.suffix}"
        atoms = span(start, stop - start)
        wg.begin(op, what, "read", cta.memory, atoms, read, wg.actors, reader)
        write = tm.PipeAccess(wg.told, op, pipe, number, in_order=True)
        what = f"it writes columns {first} to {first + end}{cta.suffix}"
        region = tm.cells(slice(first, first + end))
        wg.begin(op, what, "write", memory, region, write, pipe.thread, asynchronous=False)
        memory.written[region.index] = True
        for word, atom in product(range(op.words), range(count)):
            place = start + BYTES * (atom * op.words + word)
            column = first + scale_columns(op.rows, word) + TILE_COLUMNS * atom
            lines = partial(cta.memory.read, span(place, BYTES))
            issue(wg, op, tm.CellCopy(op, memory, lines, tm.cells(slice(column, column + 4))))
