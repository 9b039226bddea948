"""Which element of a fragment a thread holds, and in which of its registers.

By `Lanes`, which are those of a wgmma accumulator or others: registers go on along a vector, then
from one of the lane's rows to the next, then from one vector of a row to the next. A fragment that
is the same in all rows (1 x c) or in all columns (64 x 1) holds what the thread's elements of a
64 x c one would need, once.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from wsdsl.codegen import nvvm
from wsdsl.codegen.addresses.lane_indices import columns_of_lanes, rows_of_lanes
from wsdsl.codegen.arithmetic.bits import pack_halves
from wsdsl.codegen.arithmetic.byte_casts import bytes_to_half
from wsdsl.codegen.arithmetic.literals import f32_literal
from wsdsl.codegen.arithmetic.small_floats import SMALL_FORMATS, small_from_float, small_to_half
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.llvm_types import is_packed, num_elements, num_registers, scalar_type
from wsdsl.codegen.value_registers import Affine, Registers, Scalar, Shape
from wsdsl.codegen.writer import Writer
from wsdsl.ir.types import ACCUMULATOR, DTYPES, I32, DType, Lanes

LOW, HIGH = 0x1000, 0x3200
ZEROS = (0x44, 0x55, 0x45, 0x54)
"""Selectors of prmt: half a word above two bytes of another, which has 16 bits at the most."""


def row_offset(element: int, shape: Shape) -> int:
    """The element's row, less the thread's first one."""
    return 0 if shape.rows == 1 else shape.lanes.row(row_number(element, shape))


def row_number(element: int, shape: Shape) -> int:
    """Which of the thread's rows the element is in."""
    each = 1 if shape.columns == 1 else shape.lanes.vector
    return element // each % shape.lanes.held(shape.rows) if shape.rows > 1 else 0


def column_offset(element: int, shape: Shape) -> int:
    """The element's column, less the thread's first one."""
    if shape.columns == 1:
        return 0
    lanes = shape.lanes
    each = lanes.vector * (lanes.held(shape.rows) if shape.rows > 1 else 1)
    return lanes.columns * (element // each) + element % lanes.vector * lanes.apart


def source_element(element: int, shape: Shape, source: Shape) -> int:
    """Which element of a fragment of shape `source` serves `element` when it is broadcast."""
    if source == shape:
        return element
    if source.rows == source.columns == 1:
        return 0
    if source.columns == 1:
        return row_number(element, shape)
    again, column = divmod(column_offset(element, shape), shape.lanes.columns)
    return again * shape.lanes.vector + column // shape.lanes.apart


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    whole = [shape for shape in shapes if shape.rows > 1 or shape.columns > 1]
    lanes = whole[0].lanes if whole else ACCUMULATOR
    return Shape(max(s.rows for s in shapes), max(s.columns for s in shapes), lanes)


def first_row(c: Context, lanes: Lanes, rows: int) -> str:
    """First row of the thread in a fragment of `rows`: 16 * warp + lane / 4 in an accumulator."""
    if lanes == ACCUMULATOR:
        return c.threads.row
    if lanes.warps == 4:
        return "0"
    if lanes.warps > 1:
        pair = c.w.binary("lshr", "i32", c.threads.warp, 1)
        return c.w.multiply(pair, lanes.of_warp(rows))
    first = c.w.multiply(c.threads.warp, lanes.of_warp(rows))
    own = c.w.binary("lshr", "i32", c.threads.lane, lanes.across.bit_length() - 1)
    return c.w.add(first, c.w.multiply(own, lanes.tall))


def first_column(c: Context, lanes: Lanes) -> str:
    """Of the thread in a fragment: 2 * (lane % 4), by the lanes of an accumulator."""
    if lanes == ACCUMULATOR:
        return c.threads.column
    if lanes.warps == 1:
        own = c.w.binary("and", "i32", c.threads.lane, lanes.across - 1)
    else:
        warp = c.w.binary("and", "i32", c.threads.warp, lanes.warps - 1)
        own = c.w.add(c.w.multiply(warp, 32), c.threads.lane)
    return own if lanes.striped else c.w.multiply(own, lanes.vector)


def iota(c: Context, start: Scalar, shape: Shape, apart: int = 16) -> Registers:
    """The indices of the rows (r x 1) or columns (1 x w), from `start` on; of rows those of a warp
    are so far `apart` from those of the warp before."""
    origin = start.origin or start
    rows = shape.columns == 1
    own = first_row(c, shape.lanes, shape.rows) if rows else first_column(c, shape.lanes)
    if rows and apart != 16:
        own = c.w.add(own, c.w.multiply(c.threads.warp, apart - 16))
    base = c.w.add(origin.text, own)
    offset = row_offset if rows else column_offset
    offsets = tuple(offset(e, shape) + start.offset for e in range(num_elements(*shape)))
    sure = origin.nonnegative and start.offset >= 0
    unit = 1 if rows or shape.lanes == ACCUMULATOR or shape.lanes.striped else shape.lanes.vector
    lanes, most = shape.lanes, None
    if type(origin.known) is int and not rows:
        most = origin.known + (lanes.across - 1) * (1 if lanes.striped else lanes.vector)
    unit, own = math.gcd(unit, multiple_of(origin)), None
    if lanes == ACCUMULATOR:
        known = origin.known if type(origin.known) is int else None
        shared = multiple_of(origin) if known is None else 0
        own = (rows_of_lanes(apart) if rows else columns_of_lanes()).moved(shared, known or 0)
    return Registers(I32, *shape, affine=Affine(base, offsets, sure, most, unit, own))


def multiple_of(value: Scalar) -> int:
    """A number that it is a multiple of."""
    return abs(value.known) if type(value.known) is int else value.multiple


def texts_of(w: Writer, value: Registers) -> tuple[str, ...]:
    """The registers; an affine fragment gets them here."""
    if value.affine is None:
        return value.texts
    return tuple(w.add(value.affine.base, offset) for offset in value.affine.offsets)


def elements(w: Writer, value: Registers) -> list[str]:
    """One operand an element, in the LLVM type of its dtype."""
    if not is_packed(value.dtype, value.columns):
        return list(texts_of(w, value))
    type = scalar_type(value.dtype)
    results: list[str] = []
    for text in value.texts:
        if value.dtype.bits == 4:
            high = w.binary("lshr", "i32", text, 16)
            results += [w.value(f"trunc i32 {x} to i4") for x in (text, high)]
            continue
        if value.dtype.bits == 8:
            high = w.binary("lshr", "i16", text, 8)
            results += [w.value(f"trunc i16 {x} to i8") for x in (text, high)]
            continue
        pair = w.value(f"bitcast i32 {text} to <2 x {type}>")
        results += [w.value(f"extractelement <2 x {type}> {pair}, i32 {i}") for i in (0, 1)]
    return results


def as_floats(w: Writer, value: Registers) -> list[str]:
    """The elements of a float fragment as f32."""
    if value.dtype.bits == 32:
        return list(value.texts)
    if value.dtype.name in SMALL_FORMATS:
        return _small_floats(w, value)
    if value.dtype.bits == 8:
        packed = is_packed(value.dtype, value.columns)
        wide = value.texts if packed else [w.value(f"zext i8 {x} to i16") for x in value.texts]
        pairs = [nvvm.from_f8_pair(w, value.dtype.name, x) for x in wide]
        return [x for pair in pairs for x in (pair if packed else pair[:1])]
    if value.dtype.name == "bf16" and is_packed(value.dtype, value.columns):
        results: list[str] = []
        for text in value.texts:
            results += [w.value(f"bitcast i32 {x} to float") for x in _upper_halves(w, value, text)]
        return results
    type = scalar_type(value.dtype)
    return [w.value(f"fpext {type} {x} to float") for x in elements(w, value)]


def _upper_halves(w: Writer, value: Registers, pair: str) -> tuple[str, str]:
    """Each half of a pair as the upper one of a word, with 0 below."""
    if value.reconversion is None:
        return w.binary("shl", "i32", pair, 16), w.binary("and", "i32", pair, 0xFFFF0000)
    zero, below = value.reconversion.zero, ZEROS[value.reconversion.times % len(ZEROS)]
    low, high = (nvvm.pick_bytes(w, pair, zero, str(half | below)) for half in (LOW, HIGH))
    return low, high


def _small_floats(w: Writer, value: Registers) -> list[str]:
    """By bf16, which has all values of these types."""
    if is_packed(value.dtype, value.columns):
        half = bytes_to_half(w, value, DTYPES["bf16"])
        assert half is not None
        return as_floats(w, half)
    results: list[str] = []
    for text in value.texts:
        wide = w.value(f"zext {scalar_type(value.dtype)} {text} to i32")
        bits = w.binary("shl", "i32", small_to_half(w, wide, value.dtype, DTYPES["bf16"]), 16)
        results.append(w.value(f"bitcast i32 {bits} to float"))
    return results


def from_floats(w: Writer, dtype: DType, shape: Shape, floats: Sequence[str]) -> Registers:
    """A fragment of a float dtype, each element rounded once from f32."""
    if dtype.name == "f32":
        return Registers(dtype, *shape, tuple(floats))
    if dtype.name == "tf32":
        codes = (w.call("llvm.nvvm.f2tf32.rna", "i32", [("float", x)]) for x in floats)
        return Registers(dtype, *shape, tuple(w.value(f"bitcast i32 {x} to float") for x in codes))
    if dtype.name in SMALL_FORMATS:
        type = scalar_type(dtype)
        codes = (small_from_float(w, x, dtype) for x in floats)
        return from_elements(w, dtype, shape, [w.value(f"trunc i32 {x} to {type}") for x in codes])
    if is_packed(dtype, shape.columns):
        convert = nvvm.to_f8_pair if dtype.bits == 8 else nvvm.to_half_pair
        pairs = zip(floats[::2], floats[1::2], strict=True)
        return Registers(dtype, *shape, tuple(convert(w, dtype.name, *pair) for pair in pairs))
    if dtype.bits == 8:
        codes = [nvvm.to_f8_pair(w, dtype.name, x, f32_literal(0.0)) for x in floats]
        return Registers(dtype, *shape, tuple(w.value(f"trunc i16 {x} to i8") for x in codes))
    type = scalar_type(dtype)
    return Registers(dtype, *shape, tuple(w.value(f"fptrunc float {x} to {type}") for x in floats))


def from_elements(w: Writer, dtype: DType, shape: Shape, value: Sequence[str]) -> Registers:
    """A fragment from one operand an element, in the LLVM type of the dtype."""
    if not is_packed(dtype, shape[1]):
        return Registers(dtype, *shape, tuple(value))
    type = scalar_type(dtype)
    packed: list[str] = []
    for low, high in zip(value[::2], value[1::2], strict=True):
        if dtype.bits == 4:
            wide = [w.value(f"zext i4 {x} to i32") for x in (low, high)]
            packed.append(w.binary("or", "i32", wide[0], w.binary("shl", "i32", wide[1], 16)))
            continue
        if dtype.bits == 8:
            wide = [w.value(f"zext i8 {x} to i16") for x in (low, high)]
            packed.append(join_bytes(w, *wide))
            continue
        packed.append(pack_halves(w, type, low, high))
    return Registers(dtype, *shape, tuple(packed))


def join_bytes(w: Writer, low: str, high: str) -> str:
    """Two bytes, each in an i16, in one."""
    return w.binary("or", "i16", low, w.binary("shl", "i16", high, 8))


def resized(w: Writer, text: str, source: DType, dtype: DType) -> str:
    """An integer in another number of bits, the lower ones or with more above; as bool, whether it
    is not 0.
    """
    old, new = scalar_type(source), scalar_type(dtype)
    if dtype.name == "bool":
        return w.compare("ne", text, 0, old)
    if old == new:
        return text
    if source.name == "bool" or source.bits < dtype.bits:
        kind = "sext" if source.kind == "int" else "zext"
    else:
        kind = "trunc"
    return w.value(f"{kind} {old} {text} to {new}")


def cut_columns(value: Registers, start: int, columns: int) -> Registers:
    """Columns [start, start + columns); both are multiples of what lanes hold at once."""
    each = num_registers(value.dtype, value.rows, value.lanes.columns, value.lanes)
    first, count = (n // value.lanes.columns * each for n in (start, columns))
    if value.affine is not None:
        affine = replace(value.affine, offsets=value.affine.offsets[first : first + count])
        return Registers(value.dtype, value.rows, columns, value.lanes, affine=affine)
    own = slice(first, first + count)
    texts, spread = value.texts[own], value.spread[own]
    # Words are kept where the cut has whole ones.
    wide, words = value.columns // max(1, len(value.words)), tuple[str, ...]()
    if value.words and start % wide == 0 and columns % wide == 0:
        words = value.words[start // wide : (start + columns) // wide]
    cut = value.rows, columns, value.lanes
    return Registers(value.dtype, *cut, texts, spread=spread, words=words)
