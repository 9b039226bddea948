"""Conversions between dtypes."""

from dataclasses import replace

from wsdsl.codegen import nvvm
from wsdsl.codegen.arithmetic.byte_casts import bytes_to_half
from wsdsl.codegen.arithmetic.byte_maps import bytes_of_nibbles
from wsdsl.codegen.fragment_registers import (
    as_floats,
    elements,
    from_elements,
    from_floats,
    resized,
)
from wsdsl.codegen.llvm_types import is_packed, scalar_type
from wsdsl.codegen.value_registers import Raised, Registers
from wsdsl.codegen.writer import Writer
from wsdsl.ir.types import DTYPES, I32, DType

I32_MAX = 2**31 - 1


def cast(w: Writer, x: Registers, dtype: DType, saturate: bool = False) -> Registers:
    shape = x.shape
    if dtype.is_float:
        if (result := bytes_to_half(w, x, dtype)) is not None:
            return result
        if x.dtype.is_float:
            floats = as_floats(w, x)
        else:
            floats = [int_to_float(w, x.dtype, text) for text in elements(w, x)]
        result = from_floats(w, dtype, shape, floats)
        return replace(result, raised=Raised()) if x.dtype.name in ("i4", "u4") else result
    if x.dtype.is_float:
        floats = as_floats(w, x)
        if dtype.name == "bool":
            result = tuple(w.value(f"fcmp une float {text}, 0.0") for text in floats)
            return Registers(dtype, *shape, result)
        signed = dtype.name != "u32"
        # The conversion truncates and clamps; NaN becomes 0.
        name = f"llvm.nvvm.f2{'i' if signed else 'ui'}.rz"
        whole = tuple(w.call(name, "i32", [("float", text)]) for text in floats)
        x, saturate = Registers(DTYPES["i32" if signed else "u32"], *shape, whole), True
    if saturate and not _holds(dtype, x.dtype):
        return _saturated(w, x, dtype)
    if x.dtype.bits == dtype.bits and x.affine is None and "bool" not in (x.dtype.name, dtype.name):
        return Registers(dtype, *shape, x.texts)
    if dtype.bits == 8 and (result := bytes_of_nibbles(w, x)) is not None:
        return replace(result, dtype=dtype)
    texts = [resized(w, text, x.dtype, dtype) for text in elements(w, x)]
    return from_elements(w, dtype, shape, texts)


def _holds(dtype: DType, source: DType) -> bool:
    """Whether `dtype` has all values of an integer `source`; all of them mean something as bool."""
    if "bool" in (dtype.name, source.name):
        return True
    (low, high), (least, most) = dtype.limits, source.limits
    return low <= least and most <= high


def _saturated(w: Writer, x: Registers, dtype: DType) -> Registers:
    """Integers that become the nearest value of `dtype`."""
    (low, high), (least, _) = dtype.limits, x.dtype.limits
    shape, wide = x.shape, [resized(w, text, x.dtype, I32) for text in elements(w, x)]
    unsigned = x.dtype.name == "u32"
    if unsigned:
        wide = [nvvm.integer_binary(w, "umin", "i32", text, str(high)) for text in wide]
    if dtype.bits == 8 and is_packed(dtype, shape[1]):
        # One instruction clamps and packs two.
        pairs = zip(wide[::2], wide[1::2], strict=True)
        kind = {"i8": "s8", "u8": "u8"}[dtype.name]
        packed: list[str] = []
        for low, high in pairs:
            args = [("i32", low), ("i32", high)]
            text = w.asm_value(f"cvt.pack.sat.{kind}.s32.b32 $0, $2, $1, 0;", args, pure=True)
            packed.append(w.value(f"trunc i32 {text} to i16"))
        return Registers(dtype, *shape, tuple(packed))
    if not unsigned and high < I32_MAX:
        wide = [nvvm.integer_binary(w, "smin", "i32", text, str(high)) for text in wide]
    if least < low:
        wide = [nvvm.integer_binary(w, "smax", "i32", text, str(low)) for text in wide]
    return from_elements(w, dtype, shape, [resized(w, text, I32, dtype) for text in wide])


def int_to_float(w: Writer, dtype: DType, text: str) -> str:
    kind = "sitofp" if dtype.kind == "int" else "uitofp"
    return w.value(f"{kind} {scalar_type(dtype)} {text} to float")
