"""Scales in tensor memory: words that threads write there, and what products make of them."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from wsdsl.ir.hardware.block_scale_factors import WARP_ROWS, WORD, kind_of, word_columns
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS, SHAPE, place_of
from wsdsl.ir.hardware.tcgen05_shapes import LANES
from wsdsl.ir.ops import StoreScaleFactors, Tcgen05Mma
from wsdsl.ir.types import DTYPES, F32
from wsdsl.simulator.ops.smem import read_by_warps
from wsdsl.simulator.reference.arithmetic import Array, convert, numpy_dtype
from wsdsl.simulator.state.smem_bytes import Region
from wsdsl.simulator.state.tmem_cells import Cells, ColumnItems, TensorMemory
from wsdsl.simulator.state.tmem_races import moves
from wsdsl.simulator.warpgroup import SharedItems, State, Warpgroup

Fetch = Callable[[], Array]


def words_in_shared(wg: Warpgroup, op: StoreScaleFactors) -> Array:
    """By row and word, as each of the warps reads them in SMEM."""
    shared: SharedItems = wg.values[op.shared.name]
    state: State = wg.values[op.shared_state.name]
    size = op.bytes
    start = wg.item(op, shared, state.stage, op.offset, size)
    first, own = int(wg.get(op.first, op)), WORD * op.words
    if op.atoms:
        if not 0 <= first < ROWS or first + op.rows > ROWS * (size // op.line):
            wg.outside(op, f"rows {first} to {first + op.rows} of {size // op.line * ROWS}")
        row, blocks = first + np.arange(op.rows)[:, None], np.arange(own)[None, :]
        rows, atom, half, byte = place_of(row, blocks)
        at = start + rows * op.line + atom * BYTES + half * SHAPE[1] + byte
    elif first % WORD or first < 0 or first + own > op.line:
        wg.outside(op, f"bytes {first} to {first + own} of rows of {op.line} bytes")
    else:
        at = start + np.arange(op.rows)[:, None] * op.line + first + np.arange(own)
    what = f"it reads item {state.stage} of `{shared.label}`"
    held = read_by_warps(wg, op, what, Region([(start, start + size)], at))[0]
    if op.valid is not None and not op.atoms:
        held[:, np.arange(own) >= int(wg.get(op.valid, op))] = 0
    return held.view(np.uint32)


def word_cells(first: int, rows: int) -> Cells:
    """Return the cells of a word of each row, from a column on, in all quarters of the lanes."""
    row = np.arange(rows)
    quarters = np.arange(0, LANES, WARP_ROWS)[:, None]
    return quarters + row % WARP_ROWS, first + row // WARP_ROWS


def scaled_operands(
    wg: Warpgroup, op: Tcgen05Mma, memory: TensorMemory, operands: tuple[Fetch, Fetch]
) -> tuple[Fetch, Fetch]:
    """They and their scales are read when the product runs."""
    a, b = operands
    left = _scales(wg, op, memory, op.a_scale, op.rows)
    right = _scales(wg, op, memory, op.b_scale, op.columns)
    return partial(_times, a, left), partial(_times, b, right)


def _times(operand: Fetch, scales: Fetch) -> Array:
    with np.errstate(all="ignore"):
        return operand().astype(np.float64) * scales()


def _scales(wg: Warpgroup, op: Tcgen05Mma, memory: TensorMemory, column: int, rows: int) -> Fetch:
    """Check the reads of one operand's; return a function that reads them, one per element."""
    assert op.scales is not None and op.scale_state is not None
    kind = kind_of(*op.dtypes, op.scale_dtype, op.block)
    if kind is None or op.k % kind.word:
        wg.fail(op, f"no {op.scale_dtype} scale factors for blocks of {op.block} and k={op.k}")
    items: ColumnItems = wg.values[op.scales.name]
    state: State = wg.values[op.scale_state.name]
    columns = word_columns(rows, op.k // kind.word)
    if not 0 <= state.stage < items.num or column + columns[-1].stop > items.columns:
        wg.outside(op, f"columns {column} to {column + columns[-1].stop} of item {state.stage}")
    base = items.first + state.stage * items.columns + column
    words = [word_cells(base + own.start, rows) for own in columns]
    for own, cells in zip(columns, words, strict=True):
        if not moves(wg, op, "read", memory, cells):
            where = f"columns {base + own.start} to {base + own.stop}"
            wg.fail(op, f"no op has written the scale factors in {where}", kind="uninitialized")
    return lambda: _fetch(memory, words, op.scale_dtype, op.block)


def _fetch(memory: TensorMemory, words: Sequence[Cells], dtype: str, block: int) -> Array:
    """Each row's, one an element; NaN where the quarters of the lanes differ."""
    held = words_read(memory, words)
    alike = np.where((held == held[0]).all(0), held[0], np.uint32(0xFFFFFFFF))
    raw = np.ascontiguousarray(alike).view(np.uint8)
    if dtype != "f8e8m0":
        # The types have no sign: the effect of that bit is undefined.
        raw = np.where(raw < 0x80, raw, np.uint8(0xFF))
    scales = raw.view(numpy_dtype(DTYPES[dtype]))
    return np.repeat(convert(scales, DTYPES[dtype], F32).astype(np.float64), block, axis=1)


def words_read(memory: TensorMemory, words: Sequence[Cells]) -> Array:
    """By quarter of the lanes, row and word."""
    return np.stack([memory.read(cells) for cells in words], -1)
