"""Slices, joins, layouts and indices of fragments."""

from collections.abc import Sequence

from wsdsl.codegen import nvvm
from wsdsl.codegen.arithmetic.bits import joined
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import cut_columns, iota, texts_of
from wsdsl.codegen.llvm_types import shape_of
from wsdsl.codegen.value_registers import Registers
from wsdsl.ir.ops import ConvertLayout, Iota, JoinColumns, SliceColumns, is_same_registers


def convert_join_columns(c: Context, op: JoinColumns) -> None:
    parts = [c.registers(part) for part in op.parts]
    texts = tuple(text for part in parts for text in texts_of(c.w, part))
    whole = parts[0].shape._replace(columns=sum(part.columns for part in parts))
    c.values[op.result] = Registers(parts[0].dtype, *whole, texts)


LOW_PAIRS, HIGH_PAIRS = 0x5410, 0x7632
"""Of two registers, in one: prmt's selectors."""


def convert_convert_layout(c: Context, op: ConvertLayout) -> None:
    x = c.registers(op.x)
    texts = texts_of(c.w, x)
    if not is_same_registers(op):
        texts = _by_four_columns(c, texts)
    c.values[op.result] = Registers(x.dtype, *x.shape, texts)


def _by_four_columns(c: Context, pairs: Sequence[str]) -> tuple[str, ...]:
    """`pairs`: of 8 columns two rows, 8 apart, in an i16 each."""
    w, lane = c.w, c.threads.lane
    odd = w.binary("shl", "i32", w.binary("and", "i32", lane, 1), 1)
    first = w.binary("or", "i32", w.binary("and", "i32", lane, 28), odd)
    second = w.binary("or", "i32", first, 1)
    upper = w.value(f"icmp ne i32 {w.binary('and', 'i32', lane, 2)}, 0")
    selector = w.value(f"select i1 {upper}, i32 {HIGH_PAIRS}, i32 {LOW_PAIRS}")
    results: list[str] = []
    for at in range(0, len(pairs), 4):
        for left, right in (pairs[at : at + 4 : 2], pairs[at + 1 : at + 4 : 2]):
            own = joined(w, (left, right))
            low, high = (nvvm.shuffle_any(w, "i32", own, source) for source in (first, second))
            results.append(nvvm.pick_bytes(w, low, high, selector))
    return tuple(results)


def convert_slice_columns(c: Context, op: SliceColumns) -> None:
    c.values[op.result] = cut_columns(c.registers(op.x), op.start, op.result.as_fragment.columns)


def convert_iota(c: Context, op: Iota) -> None:
    shape = shape_of(op.result.as_fragment)
    c.values[op.result] = iota(c, c.scalar(op.start), shape, op.apart)
