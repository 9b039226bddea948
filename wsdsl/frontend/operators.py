"""Elementwise operators and functions: legal operands, and the types of results."""

import math
import operator
import re
from collections.abc import Callable, Sequence

from wsdsl.diagnostics import Loc
from wsdsl.frontend import element_types, typed_tree
from wsdsl.frontend import syntax as s
from wsdsl.frontend.entities import POISON, Literal, Number, Poison, Value, sound
from wsdsl.frontend.ranges import range_of
from wsdsl.frontend.source import Report
from wsdsl.ir.types import BOOL, F32, I32, DType, Tile

BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod", "**": "pow",
    "&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "shr",
    "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">=": "ge", ">": "gt",
}  # fmt: skip
COMPARED = ("<", "<=", "==", "!=", ">=", ">")
ON_NUMBERS: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
    ">=": operator.ge, ">": operator.gt,
}  # fmt: skip
ON_INTEGERS = ("&", "|", "^", "<<", ">>")
ANY_NUMBER = ("abs", "relu")
BITCAST_FIRST = "bitcast to an integer type first"
# Of a constant: more than any element type has, and no more than a float can represent.
MAX_BITS = 256


def merged_axes(tiles: Sequence[Tile]) -> tuple[str, ...]:
    """The axes of a broadcast, in order of first appearance."""
    return tuple(dict.fromkeys(axis for tile in tiles for axis in tile.axes))


class Operators:
    """Builds typed maps; an error goes to the report and returns Poison."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def constant(self, literal: Literal, dtype: DType, loc: Loc) -> typed_tree.Expr | Poison:
        wrong = element_types.misfit(literal.value, dtype)
        if wrong:
            return self.report.error(
                f"WS0188 {wrong}", loc, element_types.wider(literal.value, dtype)
            )
        return typed_tree.Const(
            element_types.as_dtype(literal.value, dtype), type=Tile(dtype), loc=loc
        )

    def value(self, value: Value) -> typed_tree.Expr | Poison:
        """Return a value with a type: a number alone is an i32, f32 or bool."""
        if not isinstance(value, Literal):
            return value
        number = value.value
        dtype = BOOL if isinstance(number, bool) else I32 if isinstance(number, int) else F32
        return self.constant(value, dtype, value.loc)

    def cast(self, x: typed_tree.Expr, dtype: DType) -> typed_tree.Expr:
        if x.type.dtype == dtype:
            return x
        return typed_tree.Cast(x, type=Tile(dtype, x.type.axes), loc=x.loc)

    def common(
        self, values: Sequence[Value], loc: Loc, what: str, *, chosen: bool = False
    ) -> tuple[list[typed_tree.Expr], DType] | Poison:
        """Convert values to one dtype, that of the wider float; literals adopt it. Floats of under
        16 bits become f32, unless one of the values is only `chosen`.
        """
        held = [v for v in values if not isinstance(v, (Literal, Poison))]
        if any(isinstance(v, Poison) for v in values):
            return POISON
        if not held:
            numbers = [v.value for v in values if isinstance(v, Literal)]
            floats = any(isinstance(n, float) for n in numbers)
            dtype = F32 if floats else I32
        else:
            dtype = held[0].type.dtype
            for other in held[1:]:
                found = element_types.promote(dtype, other.type.dtype)
                if found is None:
                    floats = dtype.is_float or other.type.dtype.is_float
                    hint = f"cast one of them, as in cast(x, {F32 if floats else dtype})"
                    return self.differ(what, dtype, other.type.dtype, loc, hint)
                dtype = found
            dtype = F32 if element_types.is_small(dtype) and not chosen else dtype
        made: list[typed_tree.Expr] = []
        for v in values:
            if isinstance(v, Literal):
                constant = self.constant(v, dtype, v.loc)
                if isinstance(constant, Poison):
                    return POISON
                if element_types.is_small(dtype) and element_types.is_rounded(v.value, dtype):
                    number = element_types.show_number(v.value)
                    hint = f"write cast({number}, {dtype}) to round it, or cast(x, f32)"
                    message = f"WS0189 {dtype} cannot represent {number}"
                    return self.report.error(message, v.loc, hint)
                made.append(constant)
            elif not isinstance(v, Poison):
                made.append(self.cast(v, dtype))
        return made, dtype

    def differ(self, what: str, a: DType, b: DType, loc: Loc, hint: str) -> Poison:
        message = f"WS0190 operands of {what} differ in element type: {a} and {b}"
        return self.report.error(message, loc, hint)

    def unsupported(self, function: str, dtype: DType | str, loc: Loc, hint: str) -> Poison:
        return self.report.error(f"WS0191 `{function}` does not support {dtype}", loc, hint)

    def map(
        self, fn: str, args: Sequence[typed_tree.Expr], dtype: DType, loc: Loc
    ) -> typed_tree.Expr:
        axes = merged_axes([a.type for a in args])
        return typed_tree.Map(fn, tuple(args), type=Tile(dtype, axes), loc=loc)

    def rounded_once(
        self,
        fn: str,
        args: Sequence[typed_tree.Expr],
        values: Sequence[Value],
        dtype: DType,
        loc: Loc,
    ) -> typed_tree.Expr:
        """A map of `dtype`, or a comparison: of f32 where a literal among the values loses digits
        in the type of the args.
        """
        own = args[0].type.dtype
        if not any(
            isinstance(v, Literal) and element_types.loses_digits(v.value, own) for v in values
        ):
            return self.map(fn, args, dtype, loc)
        wide = [
            typed_tree.Const(float(v.value), type=Tile(F32), loc=a.loc)
            if isinstance(v, Literal)
            else self.cast(a, F32)
            for v, a in zip(values, args, strict=True)
        ]
        return self.cast(self.map(fn, wide, dtype if dtype == BOOL else F32, loc), dtype)

    def binary(self, op: str, a: Value, b: Value, loc: Loc) -> Value:
        if isinstance(a, Literal) and isinstance(b, Literal):
            return self._fold(op, a, b, loc)
        args, dtype = sound(self.common([a, b], loc, f"`{op}`"))
        if op in ON_INTEGERS and dtype.is_float:
            return self.unsupported(op, dtype, loc, BITCAST_FIRST)
        if op == "/" and not dtype.is_float:
            hint = "use `//` to divide integers, or cast to a float type"
            return self.unsupported(op, dtype, loc, hint)
        zero = isinstance(b, Literal) and b.value == 0
        if op in ("//", "%") and zero and dtype.is_integer:
            return self.report.error(f"WS0192 `{op}` divides by zero", loc, "change the divisor")
        if op in ("<<", ">>") and isinstance(b, Literal) and not 0 <= b.value < dtype.bits:
            message = f"WS0193 `{op}` shifts {dtype} by {b.value}, not by 0 to {dtype.bits - 1}"
            return self.report.error(message, loc, "cast to a wider type first")
        if dtype == BOOL and op not in ("&", "|", "^", "==", "!="):
            return self.unsupported(op, dtype, loc, "cast to a number first")
        if op in ("//", "%") and dtype.is_integer:
            return self._divide(BINARY[op], args[0], args[1], loc)
        kind = BOOL if op in COMPARED else dtype
        return self.rounded_once(BINARY[op], args, (a, b), kind, loc)

    def _divide(self, fn: str, a: typed_tree.Expr, b: typed_tree.Expr, loc: Loc) -> typed_tree.Expr:
        """Define division by 0 as 0, and that of the lowest number by -1 as wrapping: the hardware
        does not define them.
        """
        dtype, found = b.type.dtype, range_of(b)
        kind = Tile(dtype)
        odd = [n for n in (0, -1) if found.low <= n <= found.high]
        if not odd:
            return self.map(fn, [a, b], dtype, loc)
        zero, one = (typed_tree.Const(n, type=kind, loc=loc) for n in (0, 1))
        tests = [
            self.map("eq", [b, typed_tree.Const(n, type=kind, loc=loc)], BOOL, loc) for n in odd
        ]
        test = tests[0] if len(tests) == 1 else self.map("or", tests, BOOL, loc)
        divided = self.map(fn, [a, self.map("where", [test, one, b], dtype, loc)], dtype, loc)
        rest = self.map("mul", [a, b], dtype, loc) if fn == "floordiv" else zero
        made = self.map("where", [test, rest, divided], dtype, loc)
        return self.in_order(made, merged_axes([a.type, b.type]))

    def _fold(self, op: str, a: Literal, b: Literal, loc: Loc) -> Value:
        hint = "use numbers that Python can compute; element types have up to 32 bits"

        def error(fact: str, hint: str = hint) -> Poison:
            shown = (
                f"{element_types.show_number(a.value)} {op} {element_types.show_number(b.value)}"
            )
            return self.report.error(f"WS0194 {shown} {fact}", loc, hint)

        if op in ("<<", "**") and abs(b.value) > MAX_BITS:
            return error("is too large")
        try:
            value = ON_NUMBERS[op](a.value, b.value)
        except (ArithmeticError, TypeError, ValueError) as raised:
            return error(f"fails: {raised}")
        if isinstance(value, complex):
            return error("is not a real number")
        grown = isinstance(value, float) and not math.isfinite(value)
        if grown and math.isfinite(a.value) and math.isfinite(b.value):
            return error("is too large", NUMBERS_HINT)
        if op in ("*", "/", "**") and not value and a.value and isinstance(value, float):
            return error("is too small", "write 0.0, or scale it")
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            return error("is too large")
        return Literal(value, loc=loc)

    def unary(self, op: str, a: Value, loc: Loc) -> Value:
        a = sound(a)
        if isinstance(a, Literal):
            if op == "~" and isinstance(a.value, float):
                return self.unsupported(op, "floats", loc, "use an integer or a bool")
            if op == "~":
                flipped = not a.value if isinstance(a.value, bool) else ~int(a.value)
                return Literal(flipped, loc=loc)
            return Literal(-a.value if op == "-" else a.value, loc=loc)
        a = self.cast(a, F32) if element_types.is_small(a.type.dtype) and op == "-" else a
        dtype = a.type.dtype
        if op == "~" and dtype.is_float:
            return self.unsupported(op, dtype, loc, BITCAST_FIRST)
        if op != "~" and dtype == BOOL:
            return self.unsupported(op, dtype, loc, "use `~` to negate a condition")
        return a if op == "+" else self.map("neg" if op == "-" else "not", [a], dtype, loc)

    def function(self, fn: str, a: Value, loc: Loc) -> Value:
        """exp, sqrt, … of floats; abs and relu of integers too."""
        args, dtype = sound(self.common([a], loc, f"`{fn}`"))
        if isinstance(a, Literal) and dtype.is_integer and fn not in ANY_NUMBER:
            args, dtype = [self.cast(args[0], F32)], F32
        if not dtype.is_float and not (fn in ANY_NUMBER and dtype.is_integer):
            hint = f"cast to a float type first: {fn}(cast(x, f32))"
            return self.unsupported(fn, dtype, loc, hint)
        return self.map(fn, args, dtype, loc)

    def cast_constant(self, literal: Literal, dtype: DType) -> typed_tree.Expr | Poison:
        number = literal.value
        if dtype == BOOL:
            number = bool(number)
        elif dtype.is_float:
            number = float(number)
        elif math.isfinite(number):
            number = int(number)
        return self.constant(Literal(number, loc=literal.loc), dtype, literal.loc)

    def in_order(self, x: typed_tree.Expr, axes: tuple[str, ...]) -> typed_tree.Expr:
        """Return the tile with its axes in another order: a variable that a loop carries or an `if`
        merges has one type, although a kernel does not depend on the order."""
        if x.type.axes == axes:
            return x
        kind = Tile(x.type.dtype, axes)
        if isinstance(x, typed_tree.Map):
            return typed_tree.Map(x.fn, x.args, type=kind, loc=x.loc)
        return typed_tree.Map("or" if kind.dtype == BOOL else "max", (x, x), type=kind, loc=x.loc)


# More than any element type has; Python rejects very long numbers.
MAX_DIGITS = 80
NUMBERS_HINT = "write 10, 0x1F, 1e-3 or `inf`, for example; the largest f32 is 3.4e38"


def number(text: str) -> int | float | None:
    """None if it is too long, is `0x` without digits, or more than a float can be."""
    text = text.replace("_", "").lower()
    if len(text) > MAX_DIGITS or text in ("0x", "0b", "0o"):
        return None
    if text[:2] in ("0x", "0b", "0o"):
        return int(text, 0)
    value = float(text) if re.search(r"[.e]", text) else int(text)
    lost = value == 0 and re.search(r"[1-9]", text.split("e")[0])
    return None if value == math.inf or lost else value


def constant(expr: s.Expr) -> Number | None:
    """Return the value of a line `NAME = number`."""
    if isinstance(expr, s.Number):
        return expr.value
    if isinstance(expr, s.Unary) and expr.op == "-" and isinstance(expr.operand, s.Number):
        return -expr.operand.value
    return None
