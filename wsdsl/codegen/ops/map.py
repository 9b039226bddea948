"""`map`, `constant` and `full`: functions applied element by element, floats always in f32."""

from __future__ import annotations

import math
from collections.abc import Callable

from wsdsl.codegen.addresses.lane_indices import divided
from wsdsl.codegen.arithmetic.approximate_functions import relaxed
from wsdsl.codegen.arithmetic.byte_maps import byte_maps
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
from wsdsl.codegen.llvm_types import num_elements, num_registers, scalar_type, shape_of
from wsdsl.codegen.value_registers import Affine, Held, Registers, Scalar, Shape
from wsdsl.codegen.writer import Writer
from wsdsl.diagnostics import CompileError
from wsdsl.ir.hardware.gmem import MAX_SIZE
from wsdsl.ir.ops import BYTE_OF_WORDS, COMPARISONS, Constant, Full, Map
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.types import ACCUMULATOR, DTYPES, F32, DType, Fragment, Tile, Type, Value


def dtype_and_shape(type: Type) -> tuple[DType, Shape]:
    match type:
        case Tile(dtype, ()):
            return dtype, Shape(1, 1)
        case Fragment(dtype):
            return dtype, shape_of(type)
        case _:
            raise CompileError(f"WS0606 {type} is not a scalar or a fragment", hint=IR_HINT)


def define(c: Context, result: Value, held: Registers) -> None:
    """A fragment of one element is a scalar."""
    c.held[result] = Scalar(held.texts[0], held.dtype) if isinstance(result.type, Tile) else held


def convert_constant(c: Context, op: Constant) -> None:
    dtype, _ = dtype_and_shape(op.result.type)
    sure = dtype.is_integer and 0 <= op.value < 1 << 31
    c.held[op.result] = Scalar(literal(op.value, dtype), dtype, op.value, nonnegative=sure)


def convert_full(c: Context, op: Full) -> None:
    dtype, shape = dtype_and_shape(op.result.type)
    text = c.scalar(op.value).text
    count = num_elements(*shape)
    if num_registers(dtype, *shape) != count:
        one = from_elements(c.w, dtype, Shape(1, 8), [text, text])
        c.held[op.result] = Registers(dtype, *shape, one.texts * (count // 2))
    else:
        define(c, op.result, Registers(dtype, *shape, (text,) * count))


def convert_map(c: Context, op: Map) -> None:
    if _of_integers(c, op):
        return
    dtype, shape = dtype_and_shape(op.result.type)
    found = (
        _affine(c, op, shape)
        or _below(c, op, shape)
        or paired(c, op, dtype, shape)
        or byte_maps(c, op, dtype, shape)
    )
    if found is not None:
        c.held[op.result] = found
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
    apply = _function(c.w, op, F32 if in_float else operand, [c.held[a] for a in op.args])
    made: dict[tuple[str, ...], str] = {}
    results: list[str] = []
    for e in range(num_elements(*shape)):
        key = tuple(
            texts[source_element(e, shape, arg.shape)]
            for texts, arg in zip(read, args, strict=True)
        )
        if key not in made:
            made[key] = apply(*key)
        results.append(made[key])
    gives_bool = op.fn in COMPARISONS
    if in_float and not gives_bool and dtype.is_float:
        held = from_floats(c.w, dtype, shape, results)
    elif gives_bool or dtype.bits == operand.bits:
        held = from_elements(c.w, dtype, shape, results)
    else:
        message = f"WS0607 `{op.fn}` of {operand} operands cannot give {dtype} elements"
        raise CompileError(message, op.loc, IR_HINT)
    define(c, op.result, held)
    if isinstance(op.result.type, Tile) and dtype.is_integer:
        c.held[op.result] = _integer(op, held.texts[0], dtype, [c.held[a] for a in op.args])


def _of_integers(c: Context, op: Map) -> bool:
    """Whether it was a function of scalars without floats, as most are, and not of their bytes."""
    kind, args = op.result.type, [c.held[a] for a in op.args]
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
    plain = not kind.dtype.is_integer
    c.held[op.result] = Scalar(text, kind.dtype) if plain else _integer(op, text, kind.dtype, args)
    return True


def _integer(op: Map, text: str, dtype: DType, args: list[Held]) -> Scalar:
    """With what is known of it."""
    origin, offset = _shifted(op.fn, args)
    multiple = 1 if op.wraps else _multiple(op.fn, args)
    return Scalar(text, dtype, None, _stays_nonnegative(op, args), origin, offset, multiple)


def _multiple(fn: str, args: list[Held]) -> int:
    """What its result is a multiple of."""
    own = [multiple_of(a) for a in args if isinstance(a, Scalar)]
    if fn == "mul":
        return math.prod(own) or 1
    return math.gcd(*own) or 1 if fn in ("add", "sub", "min", "max") else 1


def _below(c: Context, op: Map, shape: Shape) -> Registers | None:
    """Which indices are below a number: one answer for those between two multiples of what it and
    their base are multiples of.
    """
    if op.fn != "lt" or shape.lanes == ACCUMULATOR or shape.rows == shape.columns == 1:
        return None
    a, b = (c.held[x] for x in op.args)
    if not isinstance(a, Registers) or a.affine is None or not isinstance(b, Scalar):
        return None
    if a.shape != shape:
        return None
    unit = math.gcd(a.affine.unit, multiple_of(b)) or 1
    left, made = c.w.binary("sub", "i32", b.text, a.affine.base), dict[int, str]()
    if type(b.known) is int and (most := a.affine.most) is not None:
        sure = (x for x in a.affine.offsets if most + x // unit * unit < b.known)
        made = {offset // unit: "true" for offset in sure}
    for offset in a.affine.offsets:
        if offset // unit not in made:
            made[offset // unit] = c.w.compare("sgt", left, offset // unit * unit)
    texts = [made[offset // unit] for offset in a.affine.offsets]
    return from_elements(c.w, DTYPES["bool"], shape, texts)


def _shifted(fn: str, args: list[Held]) -> tuple[Scalar | None, int]:
    """What a sum with a constant differs from, and by how much."""
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


def int_to_float(w: Writer, dtype: DType, text: str) -> str:
    kind = "sitofp" if dtype.kind == "int" else "uitofp"
    return w.value(f"{kind} {scalar_type(dtype)} {text} to float")


def nonnegative(held: Held) -> bool:
    match held:
        case Scalar():
            return held.nonnegative or held.dtype.kind == "uint"
        case Registers(affine=Affine() as affine):
            return affine.nonnegative
        case Registers():
            return held.dtype.kind == "uint"
        case _:
            return False


def _stays_nonnegative(op: Map, args: list[Held]) -> bool:
    """Sizes and indices do not overflow: a tensor has fewer than 2^31 of each. What may wrap is not
    known to be nonnegative, nor is what may become an i32 below 0 when a u32 is cast.
    """
    fn, sure = op.fn, [isinstance(a, Scalar) and a.nonnegative for a in args]
    if op.wraps:
        return False
    if fn == "and" or (fn == "max" and dtype_and_shape(op.result.type)[0].kind == "int"):
        return any(sure)
    if fn == "mod":
        return sure[1]
    return fn in ("add", "mul", "floordiv", "min", "shr", "or", "xor") and all(sure)


def _affine(c: Context, op: Map, shape: Shape) -> Registers | None:
    """Index fragments plus scalars, or times constants, stay one register and constants; by the
    lanes quotients and remainders do.
    """
    if len(op.args) != 2 or shape.rows == shape.columns == 1:
        return None
    a, b = (c.held[x] for x in op.args)
    if op.fn in ("floordiv", "mod"):
        return _divided(c, op, a, b, shape)
    if op.fn not in ("add", "sub", "mul"):
        return None
    if isinstance(a, Scalar) and isinstance(b, Registers) and op.fn != "sub":
        a, b = b, a
    if op.fn == "add" and isinstance(a, Registers) and isinstance(b, Registers):
        return _sum_of_indices(c, op, a, b, shape)
    if not (isinstance(a, Registers) and a.affine is not None and isinstance(b, Scalar)):
        return None
    if shape != a.shape:
        return None
    base, offsets = a.affine.base, a.affine.offsets
    known = b.known if isinstance(b.known, int) else None
    origin, moved, lanes = b.origin or b, b.offset, a.affine.lanes
    if known is not None and op.fn != "mul":
        moved = known if op.fn == "add" else -known
        sure = a.affine.nonnegative and moved >= 0
    elif op.fn == "mul":
        if known is None:
            return None
        base, moved = c.w.multiply(base, known), 0
        offsets = tuple(x * known for x in offsets)
        sure = a.affine.nonnegative and known >= 0
        lanes = lanes and lanes.times(known)
    elif op.fn == "add":
        base = c.w.add(base, origin.text)
        sure = a.affine.nonnegative and origin.nonnegative and moved >= 0
        lanes = lanes and lanes.moved(multiple_of(origin))
    else:
        base, moved, sure = c.w.binary("sub", "i32", base, b.text), 0, False
        lanes = lanes and lanes.moved(multiple_of(b))
    offsets = tuple(x + moved for x in offsets)
    if op.wraps and max(map(abs, offsets)) > I32_MAX - MAX_SIZE:
        return None  # Bounds are compared less the base, and sizes leave so much room.
    lanes = None if op.wraps else lanes
    most = lanes and lanes.most
    affine = Affine(base, offsets, sure and not op.wraps, most, lanes=lanes)
    return Registers(a.dtype, *shape, affine=affine)


def _divided(c: Context, op: Map, a: Held, b: Held, shape: Shape) -> Registers | None:
    if not (isinstance(a, Registers) and a.affine is not None and isinstance(b, Scalar)):
        return None
    affine, number = a.affine, b.known
    if affine.lanes is None or type(number) is not int or shape != a.shape or op.wraps:
        return None
    found = divided(op.fn, number, affine.lanes, affine.offsets)
    if found is None:
        return None
    lanes, offsets = found
    first = c.w.add(affine.base, affine.offsets[0])
    base = _function(c.w, op, a.dtype, [a, b])(first, b.text)
    sure = (affine.nonnegative or op.fn == "mod") and min(offsets) >= 0
    return Registers(a.dtype, *shape, affine=Affine(base, offsets, sure, lanes.most, lanes=lanes))


def _sum_of_indices(
    c: Context, op: Map, a: Registers, b: Registers, shape: Shape
) -> Registers | None:
    """Such as one of rows and one of columns: where elements are that go on from row to row."""
    if a.affine is None or b.affine is None:
        return None
    lanes = None
    if a.affine.lanes and b.affine.lanes and not op.wraps:
        lanes = a.affine.lanes.plus(b.affine.lanes)
    if a.shape == b.shape and lanes is None:
        return None
    offsets = tuple(
        sum(x.affine.offsets[source_element(e, shape, x.shape)] for x in (a, b) if x.affine)
        for e in range(num_elements(*shape))
    )
    base = c.w.add(a.affine.base, b.affine.base)
    sure = a.affine.nonnegative and b.affine.nonnegative and not op.wraps
    most = lanes and lanes.most
    return Registers(a.dtype, *shape, affine=Affine(base, offsets, sure, most, lanes=lanes))


I32_MAX = 2**31 - 1
OF_BYTES = ("join", *BYTE_OF_WORDS)
FLOAT_COMPARISONS = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une", "ge": "oge", "gt": "ogt"}


def _function(w: Writer, op: Map, dtype: DType, args: list[Held]) -> Callable[..., str]:
    """What to do with the operands of one element, which are f32 if `dtype` is."""
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
