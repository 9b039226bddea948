"""Functions of integers and bools, on one element, in LLVM text."""

from collections.abc import Callable, Sequence

from wsdsl.codegen import nvvm
from wsdsl.codegen.llvm_types import scalar_type
from wsdsl.codegen.value_registers import Scalar, Storage
from wsdsl.codegen.writer import Writer
from wsdsl.diagnostics import CompileError
from wsdsl.ir.ops import COMPARISONS, Map
from wsdsl.ir.types import DType

PLAIN = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}


def integer_unary(w: Writer, op: Map, dtype: DType) -> Callable[[str], str]:
    type = scalar_type(dtype)
    match op.fn:
        case "neg":
            return lambda a: w.value(f"sub {type} 0, {a}")
        case "not":
            ones = "true" if type == "i1" else "-1"
            return lambda a: w.binary("xor", type, a, ones)
        case "abs" | "relu" if dtype.kind == "int":
            if op.fn == "relu":
                return lambda a: nvvm.integer_binary(w, "smax", type, a, "0")
            return lambda a: w.call(f"llvm.abs.{type}", type, [(type, a), ("i1", "false")])
        case "abs" | "relu" | "floor":
            return lambda a: a
        case "popcount" if dtype.bits == 32:
            return lambda a: w.call("llvm.ctpop.i32", "i32", [("i32", a)])
        case _:
            raise unsupported(op, dtype)


def integer_binary(
    w: Writer, op: Map, dtype: DType, args: Sequence[Storage], nonnegative: bool
) -> Callable[[str, str], str]:
    """`nonnegative`: no operand can be below 0, so that divisions need no correction."""
    type = scalar_type(dtype)
    signed = dtype.kind == "int"
    sign = "s" if signed else "u"
    known = args[1].known if isinstance(args[1], Scalar) else None
    if op.fn in PLAIN:
        if type == "i1" and op.fn in ("sub", "mul", "add"):
            raise unsupported(op, dtype)
        return lambda a, b: w.binary(PLAIN[op.fn], type, a, b)
    if op.fn in COMPARISONS:
        relation = op.fn if op.fn in ("eq", "ne") else f"{sign}{op.fn}"
        return lambda a, b: w.compare(relation, a, b, type)
    if op.fn in ("min", "max"):
        return lambda a, b: nvvm.integer_binary(w, f"{sign}{op.fn}", type, a, b)
    if op.fn in ("shl", "shr"):
        return _shift(w, op.fn, dtype, type, known)
    if op.fn == "mulhi" and dtype.bits == 32:
        name = f"llvm.nvvm.mulhi.{'i' if signed else 'ui'}"
        return lambda a, b: w.call(name, "i32", [("i32", a), ("i32", b)])
    if op.fn in ("floordiv", "mod", "div"):
        if not signed or nonnegative:
            name = "urem" if op.fn == "mod" else "udiv"
            return lambda a, b: w.binary(name, type, a, b)
        if op.fn == "div":
            return lambda a, b: w.binary("sdiv", type, a, b)
        power = isinstance(known, int) and known > 0 and known & (known - 1) == 0
        if power and isinstance(known, int):
            # An arithmetic shift and a mask round to minus infinity by themselves.
            if op.fn == "mod":
                return lambda a, b: w.binary("and", type, a, known - 1)
            return lambda a, b: w.binary("ashr", type, a, known.bit_length() - 1)
        return lambda a, b: _floor_division(w, op.fn, type, a, b)
    raise unsupported(op, dtype)


def unsupported(op: Map, dtype: DType) -> CompileError:
    hint = "multiply, as in x * x, or cast to f32" if op.fn == "pow" else "cast the operands"
    return CompileError(f"WS0609 `{op.fn}` does not support {dtype} elements", op.loc, hint)


def _floor_division(w: Writer, fn: str, type: str, a: str, b: str) -> str:
    rest = w.binary("srem", type, a, b)
    apart = w.compare("slt", w.binary("xor", type, rest, b), 0, type)
    fix = w.binary("and", "i1", apart, w.compare("ne", rest, 0, type))
    if fn == "mod":
        return w.select(fix, type, w.binary("add", type, rest, b), rest)
    quotient = w.binary("sdiv", type, a, b)
    return w.select(fix, type, w.binary("sub", type, quotient, 1), quotient)


def _shift(
    w: Writer, fn: str, dtype: DType, type: str, known: int | float | bool | None
) -> Callable[[str, str], str]:
    """Shifting everything out leaves 0, or the sign; LLVM leaves it undefined."""
    name = "shl" if fn == "shl" else ("ashr" if dtype.kind == "int" else "lshr")
    last = dtype.bits - 1
    if isinstance(known, int) and 0 <= known <= last:
        return lambda a, b: w.binary(name, type, a, b)

    def shift(a: str, b: str) -> str:
        result = w.binary(name, type, a, nvvm.integer_binary(w, "umin", type, b, str(last)))
        if name == "ashr":
            return result
        return w.select(w.compare("ugt", b, last, type), type, "0", result)

    return shift
