"""Elementwise functions and conversions; floats are computed in f32."""

import math
from collections.abc import Callable
from dataclasses import replace

from wsdsl.codegen.addresses.affine_indices import affine_map, index_comparison
from wsdsl.codegen.arithmetic.approximate_functions import relaxed
from wsdsl.codegen.arithmetic.byte_maps import byte_maps
from wsdsl.codegen.arithmetic.casts import cast, int_to_float
from wsdsl.codegen.arithmetic.float_functions import UNARY, F, power, remainder
from wsdsl.codegen.arithmetic.integer_functions import integer_binary, integer_unary, unsupported
from wsdsl.codegen.arithmetic.literals import literal
from wsdsl.codegen.arithmetic.packed_half import paired
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import (
    as_floats,
    elements,
    from_elements,
    from_floats,
    multiple_of,
    source_element,
)
from wsdsl.codegen.llvm_types import (
    dtype_and_shape,
    is_packed,
    num_elements,
    num_registers,
    scalar_type,
)
from wsdsl.codegen.value_registers import (
    Reconversion,
    Registers,
    Scalar,
    Shape,
    Storage,
    nonnegative,
)
from wsdsl.codegen.writer import Writer
from wsdsl.diagnostics import CompileError
from wsdsl.ir.ops import BYTE_OF_WORDS, COMPARISONS, Bitcast, Cast, Constant, DimSize, Full, Map
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.types import F32, DType, Tile


def convert_constant(c: Context, op: Constant) -> None:
    dtype, _ = dtype_and_shape(op.result.type)
    sure = dtype.is_integer and 0 <= op.value < 1 << 31
    c.values[op.result] = Scalar(literal(op.value, dtype), dtype, op.value, nonnegative=sure)


def convert_full(c: Context, op: Full) -> None:
    dtype, shape = dtype_and_shape(op.result.type)
    text = c.scalar(op.value).text
    count = num_elements(*shape)
    if num_registers(dtype, *shape) != count:
        one = from_elements(c.w, dtype, Shape(1, 8), [text, text])
        c.values[op.result] = Registers(dtype, *shape, one.texts * (count // 2))
    else:
        c.define(op.result, Registers(dtype, *shape, (text,) * count))


def convert_map(c: Context, op: Map) -> None:
    if _of_integers(c, op):
        return
    dtype, shape = dtype_and_shape(op.result.type)
    result = (
        affine_map(c, op, shape)
        or index_comparison(c, op, shape)
        or paired(c, op, dtype, shape)
        or byte_maps(c, op, dtype, shape)
    )
    if result is not None:
        c.values[op.result] = result
        return
    args = [c.registers(a) for a in op.args]
    operand = args[-1].dtype
    in_float = operand.is_float or (dtype.is_float and op.fn not in COMPARISONS)
    read: list[list[str]] = []
    for arg in args:
        if arg.dtype.is_float:
            read.append(as_floats(c.w, arg))
        elif in_float and arg.dtype.name != "bool":
            read.append([int_to_float(c.w, arg.dtype, x) for x in elements(c.w, arg)])
        else:
            read.append(elements(c.w, arg))
    apply = _function(c.w, op, F32 if in_float else operand, [c.values[a] for a in op.args])
    cache: dict[tuple[str, ...], str] = {}
    results: list[str] = []
    for e in range(num_elements(*shape)):
        key = tuple(
            texts[source_element(e, shape, arg.shape)]
            for texts, arg in zip(read, args, strict=True)
        )
        if key not in cache:
            cache[key] = apply(*key)
        results.append(cache[key])
    gives_bool = op.fn in COMPARISONS
    if in_float and not gives_bool and dtype.is_float:
        value = from_floats(c.w, dtype, shape, results)
    elif gives_bool or dtype.bits == operand.bits:
        value = from_elements(c.w, dtype, shape, results)
    else:
        message = f"WS0607 `{op.fn}` of {operand} operands cannot give {dtype} elements"
        raise CompileError(message, op.loc, IR_HINT)
    c.define(op.result, value)
    if isinstance(op.result.type, Tile) and dtype.is_integer:
        c.values[op.result] = _integer(op, value.texts[0], dtype, [c.values[a] for a in op.args])


def _of_integers(c: Context, op: Map) -> bool:
    """Whether it was a function of scalars without floats, as most are, and not of their bytes."""
    kind, args = op.result.type, [c.values[a] for a in op.args]
    scalars = [a for a in args if isinstance(a, Scalar)]
    if not isinstance(kind, Tile) or len(scalars) < len(args) or op.fn in OF_BYTES:
        return False
    gives_bool, operand = op.fn in COMPARISONS, scalars[-1].dtype
    if (
        operand.is_float
        or kind.dtype.is_float
        or not (gives_bool or kind.dtype.bits == operand.bits)
    ):
        return False
    text = _function(c.w, op, operand, args)(*[a.text for a in scalars])
    dtype = kind.dtype
    is_integer = dtype.is_integer
    c.values[op.result] = _integer(op, text, dtype, args) if is_integer else Scalar(text, dtype)
    return True


def _integer(op: Map, text: str, dtype: DType, args: list[Storage]) -> Scalar:
    """With what is known of it."""
    origin, offset = _shifted(op.fn, args)
    multiples = [multiple_of(a) for a in args if isinstance(a, Scalar)]
    multiple = math.prod(multiples) if op.fn == "mul" else math.gcd(*multiples)
    if op.wraps or op.fn not in ("mul", "add", "sub", "min", "max"):
        multiple = 1
    sure = _stays_nonnegative(op, args)
    return Scalar(text, dtype, None, sure, origin, offset, multiple or 1)


def _shifted(fn: str, args: list[Storage]) -> tuple[Scalar | None, int]:
    """The operand that an addition of a constant is based on, and the constant."""
    if fn not in ("add", "sub") or len(args) != 2:
        return None, 0
    a, b = args
    if fn == "add" and isinstance(a, Scalar) and isinstance(a.known, int):
        a, b = b, a
    if not (isinstance(a, Scalar) and isinstance(b, Scalar) and isinstance(b.known, int)):
        return None, 0
    if isinstance(b.known, bool) or a.dtype.name != "i32":
        return None, 0
    return a.origin or a, a.offset + (b.known if fn == "add" else -b.known)


def _stays_nonnegative(op: Map, args: list[Storage]) -> bool:
    """Whether the result cannot be negative. Sizes and indices do not overflow: a tensor has fewer
    than 2^31 of each. A result that may wrap is not known to be nonnegative, nor is the cast of a
    u32 to i32.
    """
    fn, sure = op.fn, [isinstance(a, Scalar) and a.nonnegative for a in args]
    if op.wraps:
        return False
    if fn == "and" or (fn == "max" and dtype_and_shape(op.result.type)[0].kind == "int"):
        return any(sure)
    if fn == "mod":
        return sure[1]
    return fn in ("add", "mul", "floordiv", "min", "shr", "or", "xor") and all(sure)


OF_BYTES = ("join", *BYTE_OF_WORDS)
FLOAT_COMPARISONS = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une", "ge": "oge", "gt": "ogt"}


def _function(w: Writer, op: Map, dtype: DType, args: list[Storage]) -> Callable[..., str]:
    """The function on the operands of one element, which are f32 if `dtype` is a float."""
    if op.fn == "where":
        type = scalar_type(dtype)
        return lambda cond, a, b: w.select(cond, type, a, b)
    if not dtype.is_float:
        if op.fn == "fma":
            type = scalar_type(dtype)
            return lambda a, b, c: w.binary("add", type, w.binary("mul", type, a, b), c)
        if len(args) == 1:
            return integer_unary(w, op, dtype)
        return integer_binary(w, op, dtype, args, all(nonnegative(a) for a in args))
    f = F(w)
    if op.fn in FLOAT_COMPARISONS:
        return lambda a, b: f.test(FLOAT_COMPARISONS[op.fn], a, b)
    if op.fn in UNARY:
        function = relaxed(op.fn, op.bits)
        return lambda a: function(f, a)
    binary: dict[str, Callable[..., str]] = {
        "add": f.add, "sub": f.sub, "mul": f.mul, "div": f.div, "min": f.min, "max": f.max,
        "fma": f.fma,
        "pow": lambda a, b: power(f, a, b),
        "floordiv": lambda a, b: remainder(f, a, b)[0],
        "mod": lambda a, b: remainder(f, a, b)[1],
    }  # fmt: skip
    if op.fn not in binary:
        raise unsupported(op, dtype)
    return binary[op.fn]


def convert_cast(c: Context, op: Cast) -> None:
    dtype, _ = dtype_and_shape(op.result.type)
    value = c.values[op.x]
    if dtype == c.registers(op.x).dtype:
        c.values[op.result] = value
        return
    c.define(op.result, cast(c.w, c.registers(op.x), dtype, op.saturate))
    if isinstance(value, Scalar) and value.dtype.is_integer and dtype.bits == 32:
        result = c.scalar(op.result)
        sure = value.nonnegative or (value.dtype.kind == "uint" and value.dtype.bits < 32)
        c.values[op.result] = Scalar(result.text, dtype, nonnegative=sure and dtype.is_integer)


def _reconverted(c: Context, x: Registers) -> Registers:
    """Hide from LLVM that the value is the same, so that it converts the value again and does not
    keep the earlier result in twice the registers.
    """
    if x.dtype.name == "bf16":
        return replace(
            x, reconversion=Reconversion(c.zero, x.reconversion.times + 1 if x.reconversion else 0)
        )
    zeros = c.w.binary("sub", "i32", "0", c.zero)
    return replace(x, texts=tuple(c.w.binary("or", "i32", text, zeros) for text in x.texts))


def convert_bitcast(c: Context, op: Bitcast) -> None:
    x = c.registers(op.x)
    dtype, shape = dtype_and_shape(op.result.type)
    if dtype == x.dtype:
        is_kept = dtype.bits == 16 and is_packed(dtype, x.columns)
        c.values[op.result] = _reconverted(c, x) if is_kept else x
        return
    if dtype.bits != x.dtype.bits or "bool" in (dtype.name, x.dtype.name):
        raise CompileError(f"WS0608 bitcast cannot convert {x.dtype} to {dtype}", op.loc, IR_HINT)
    if is_packed(x.dtype, x.columns) and is_packed(dtype, x.columns):
        c.values[op.result] = Registers(dtype, *shape, x.texts)
        return
    old, new = scalar_type(x.dtype), scalar_type(dtype)
    texts = elements(c.w, x)
    if old != new:
        texts = [c.w.value(f"bitcast {old} {text} to {new}") for text in texts]
    c.define(op.result, from_elements(c.w, dtype, shape, texts))


def convert_dim_size(c: Context, op: DimSize) -> None:
    c.values[op.result] = c.sizes[op.dim]
