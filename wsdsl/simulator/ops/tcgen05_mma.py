"""MMAs and copies of scale factors in the tensor pipe (tcgen05)."""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.hardware.block_scale_factors import TILE_COLUMNS, are_scaled, scale_columns
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS
from wsdsl.ir.hardware.wgmma_shapes import k_step, sum_of
from wsdsl.ir.types import DTYPES, Columns, DType
from wsdsl.simulator.ops.tcgen05 import first_column, issue, memory_of
from wsdsl.simulator.ops.wgmma import operand_in_shared
from wsdsl.simulator.reference.arithmetic import Array, multiplicand, numpy_dtype
from wsdsl.simulator.reference.bound_arrays import elements_of
from wsdsl.simulator.state import tmem_cells as tm
from wsdsl.simulator.state.smem_bytes import span
from wsdsl.simulator.state.tmem_races import moves
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
    accumulate = bool(wg.get(op.accumulate, op))
    read = tm.PipeAccess(wg.told, op, wg.tensor_pipe, wg.tensor_pipe.count)
    columns, k_major = op.columns // op.cta_group, op.b_k_major
    parts = [operand_in_shared(wg, op, read, b_dtype, op.b, columns, k_major, c) for c in ctas]
    jobs = list[tm.CellProduct]()
    for cta in ctas:
        memory = memory_of(wg, op, cta)
        sums = _begin_sums(wg, op, memory, accumulate)
        if isinstance(op.a.type, Columns):
            a = _operand_in_columns(wg, op, memory, dtype)
        else:
            a = operand_in_shared(wg, op, read, dtype, op.a, op.rows, op.a_k_major, cta)
        b = parts[0] if len(parts) == 1 else lambda: np.concatenate([fetch() for fetch in parts])
        if op.scales is not None:
            a, b = scaled_operands(wg, op, memory, (a, b))
        jobs.append(tm.CellProduct(op, memory, sums, (a, b), accumulate, step, numpy_dtype(total)))
    for job in jobs:
        issue(wg, op, job)


def _operand_in_columns(
    wg: Warpgroup, op: ops.Tcgen05Mma, memory: tm.TensorMemory, dtype: DType
) -> Callable[[], Array]:
    """A function that reads the operand's rows in TMEM when the MMA runs."""
    assert op.a_state is not None
    first = first_column(wg, op, op.a, op.a_state, op.a_column, op.a_columns)
    cells = _rows(first, op.a_columns, op.rows)
    if not moves(wg, op, "read", memory, cells):
        what = f"it reads columns {first} to {first + op.a_columns}"
        wg.fail(op, f"{what}, which no op has written", kind="uninitialized")

    def fetch() -> Array:
        held = np.ascontiguousarray(memory.read(cells))
        return multiplicand(elements_of(held.view(np.uint8), dtype), dtype)

    return fetch


def _begin_sums(
    wg: Warpgroup, op: ops.Tcgen05Mma, memory: tm.TensorMemory, accumulate: bool
) -> tm.Cells:
    """Begin the write of an MMA's accumulator."""
    first = first_column(wg, op, op.sums, op.state, op.column, op.columns)
    cells = _rows(first, op.columns, op.rows)
    if not moves(wg, op, "write", memory, cells) and accumulate:
        wg.fail(op, "no op has written the accumulator", kind="uninitialized")
    if not accumulate:
        memory.cells[cells] = 0xFFFFFFFF
    return cells


def _rows(first: int, columns: int, rows: int) -> tm.Cells:
    """Return the cells of the rows of a product; those of 64 rows lie in half of the lanes."""
    return tm.lanes_of(rows), slice(first, first + columns)


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
        moves(wg, op, "write", memory, (slice(None), slice(first, first + end)))
        for word, atom in product(range(op.words), range(count)):
            place = start + BYTES * (atom * op.words + word)
            column = first + scale_columns(op.rows, word) + TILE_COLUMNS * atom
            lines = partial(cta.memory.read, span(place, BYTES))
            issue(wg, op, tm.CellCopy(op, memory, lines, (slice(None), slice(column, column + 4))))
