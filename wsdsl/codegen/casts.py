"""`cast` and `bitcast`."""

from __future__ import annotations

from wsdsl.codegen import nvvm
from wsdsl.codegen.context import Context
from wsdsl.codegen.convert_type import is_packed, scalar_type
from wsdsl.codegen.elementwise import define, dtype_and_shape, int_to_float
from wsdsl.codegen.fragments import (
    as_floats,
    elements,
    from_elements,
    from_floats,
    shape_of,
    texts_of,
)
from wsdsl.codegen.held import Registers, Scalar
from wsdsl.codegen.writer import Writer
from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir.tile_ops import Bitcast, Cast
from wsdsl.ir.types import DType


def convert_cast(c: Context, op: Cast) -> None:
    dtype, _ = dtype_and_shape(op.result.type)
    held = c.held[op.x]
    if dtype == c.registers(op.x).dtype:
        c.held[op.result] = held
        return
    define(c, op.result, cast(c.w, c.registers(op.x), dtype))
    if isinstance(held, Scalar) and held.dtype.is_integer and dtype.bits == 32:
        made = c.held[op.result]
        assert isinstance(made, Scalar)
        sure = held.nonnegative or (held.dtype.kind == "uint" and held.dtype.bits < 32)
        c.held[op.result] = Scalar(made.text, dtype, nonnegative=sure and dtype.is_integer)


def cast(w: Writer, x: Registers, dtype: DType) -> Registers:
    shape = shape_of(x)
    if dtype.is_float:
        if x.dtype.is_float:
            floats = as_floats(w, x)
        else:
            floats = [int_to_float(w, x.dtype, text) for text in elements(w, x)]
        return from_floats(w, dtype, shape, floats)
    if x.dtype.is_float:
        floats = as_floats(w, x)
        return Registers(dtype, *shape, tuple(_from_float(w, text, dtype) for text in floats))
    texts = tuple(_resize(w, text, x.dtype, dtype) for text in texts_of(w, x))
    return Registers(dtype, *shape, texts)


def _from_float(w: Writer, text: str, dtype: DType) -> str:
    if dtype.name == "bool":
        return w.value(f"fcmp une float {text}, 0.0")
    made = nvvm.float_to_int(w, text, signed=dtype.kind == "int" or dtype.bits < 32)
    return made if dtype.bits == 32 else w.value(f"trunc i32 {made} to {scalar_type(dtype)}")


def _resize(w: Writer, text: str, source: DType, dtype: DType) -> str:
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


def convert_bitcast(c: Context, op: Bitcast) -> None:
    x = c.registers(op.x)
    dtype, shape = dtype_and_shape(op.result.type)
    if dtype.bits != x.dtype.bits or "bool" in (dtype.name, x.dtype.name):
        raise CompileError(Finding(f"bitcast: {x.dtype} and {dtype} differ in width", op.loc))
    if is_packed(x.dtype, x.columns) and is_packed(dtype, x.columns):
        c.held[op.result] = Registers(dtype, *shape, x.texts)
        return
    old, new = scalar_type(x.dtype), scalar_type(dtype)
    texts = elements(c.w, x)
    if old != new:
        texts = [c.w.value(f"bitcast {old} {text} to {new}") for text in texts]
    define(c, op.result, from_elements(c.w, dtype, shape, texts))
