"""`reduce_columns` of blocks of columns, and `scan_columns`."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from wsdsl.codegen import nvvm
from wsdsl.codegen.arithmetic.casts import cast
from wsdsl.codegen.arithmetic.float_functions import F
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import (
    as_floats,
    column_offset,
    from_floats,
    row_offset,
    texts_of,
)
from wsdsl.codegen.llvm_types import dtype_and_shape
from wsdsl.codegen.value_registers import Registers
from wsdsl.codegen.writer import Writer
from wsdsl.ir.ops import ReduceColumns, ScanColumns
from wsdsl.ir.types import DTYPES, DType, Value


def reduce_blocks(c: Context, op: ReduceColumns, x: Registers) -> None:
    w, lanes = c.w, x.lanes
    texts, type = in_32_bits(w, x)
    join = join_of(w, op.fn, x.dtype)
    # In a thread, blocks narrower than an access are told apart by the access, or by the vector.
    apart = op.size if not lanes.vector < op.size < lanes.columns else lanes.columns
    places = [
        (row_offset(e, x.shape), column_offset(e, x.shape) // apart) for e in range(len(texts))
    ]
    totals: dict[tuple[int, int], str] = {}
    for place, text in zip(places, texts, strict=True):
        totals[place] = join(totals[place], text) if place in totals else text
    sharing = min(lanes.across, op.size // lanes.vector)
    for place in totals:
        for step in range(sharing.bit_length() - 1):
            other = nvvm.shuffle_xor(w, type, totals[place], 1 << step)
            totals[place] = join(totals[place], other)
    define_from_32_bits(c, op.result, x.dtype, [totals[place] for place in places])


def in_32_bits(w: Writer, x: Registers) -> tuple[list[str], str]:
    """The elements as f32, or as integers of 32 bits, and which LLVM type that is."""
    if x.dtype.is_float:
        return as_floats(w, x), "float"
    return list(texts_of(w, cast(w, x, wide_integer(x.dtype)))), "i32"


def define_from_32_bits(c: Context, result: Value, dtype: DType, texts: Sequence[str]) -> None:
    """Define a result of `dtype` from elements as f32, or as integers of 32 bits."""
    shape = dtype_and_shape(result.type)[1]
    if dtype.is_float:
        c.define(result, from_floats(c.w, dtype, shape, texts))
    else:
        wide = Registers(wide_integer(dtype), *shape, tuple(texts))
        c.define(result, cast(c.w, wide, dtype))


def wide_integer(dtype: DType) -> DType:
    return DTYPES["u32" if dtype.kind == "uint" else "i32"]


def join_of(w: Writer, fn: str, dtype: DType) -> Callable[[str, str], str]:
    """How two elements in 32 bits are combined."""
    if dtype.is_float:
        f = F(w)
        return {"add": f.add, "max": f.max, "min": f.min}[fn]
    if fn == "add":
        return lambda a, b: w.binary("add", "i32", a, b)
    sign = "s" if dtype.kind == "int" else "u"
    return lambda a, b: nvvm.integer_binary(w, f"{sign}{fn}", "i32", a, b)


def convert_scan_columns(c: Context, op: ScanColumns) -> None:
    w, x = c.w, c.registers(op.x)
    lanes = x.lanes
    texts, type = in_32_bits(w, x)
    add, zero = join_of(w, "add", x.dtype), "-0.0" if type == "float" else "0"
    own = w.binary("and", "i32", c.threads.lane, lanes.across - 1)
    behind = {
        step: w.compare("uge", own, step)
        for step in (1 << n for n in range(lanes.across.bit_length() - 1))
    }
    last = w.binary("or", "i32", c.threads.lane, lanes.across - 1)
    accesses: dict[tuple[int, int], list[int]] = {}
    for e in range(len(texts)):
        place = row_offset(e, x.shape), column_offset(e, x.shape) // lanes.columns
        accesses.setdefault(place, []).append(e)
    before: dict[int, str] = {}
    results = list(texts)
    for (row, _), elements in sorted(accesses.items()):
        for left, e in pairwise(elements):
            results[e] = add(results[left], results[e])
        total = results[elements[-1]]
        for step, is_behind in behind.items():
            other = nvvm.shuffle_up(w, type, total, step)
            total = add(total, w.select(is_behind, type, other, zero))
        front = w.select(behind[1], type, nvvm.shuffle_up(w, type, total, 1), zero)
        if row in before:
            front = add(before[row], front)
        for e in elements:
            results[e] = add(front, results[e])
        every = nvvm.shuffle_any(w, type, total, last)
        before[row] = add(before[row], every) if row in before else every
    define_from_32_bits(c, op.result, x.dtype, results)
