"""All levels: scalars and elementwise functions of tiles and fragments."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.attribute_checks import one_of
from wsdsl.ir.op import ALL, Makers, OneResult, Unary, Value, op_class
from wsdsl.ir.types import DType, Fragment, Tile

BINARY_FUNCTIONS = (
    "add", "sub", "mul", "div", "floordiv", "mod", "pow", "min", "max",
    "and", "or", "xor", "shl", "shr", "lt", "le", "eq", "ne", "ge", "gt",
)  # fmt: skip


UNARY_FUNCTIONS = (
    "neg", "not", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid",
    "relu", "gelu", "silu", "abs", "floor", "round", "erf",
)  # fmt: skip


BYTE_OF_WORDS = {"byte_of": 4, "byte_of_8": 2}
"""Words that these choose from."""


OTHER_FUNCTIONS = {
    "fma": 3, "where": 3, "join": 2, "mulhi": 2, "popcount": 1,
    **{f: 1 + n for f, n in BYTE_OF_WORDS.items()},
}  # fmt: skip
"""By how many operands they have."""


ARITY: dict[str, int] = {
    **dict.fromkeys(UNARY_FUNCTIONS, 1),
    **dict.fromkeys(BINARY_FUNCTIONS, 2),
    **OTHER_FUNCTIONS,
}


BESIDE_FIRST = ("where", *BYTE_OF_WORDS)
"""Whose first operand is of another type than the others."""


COMPARISONS = ("lt", "le", "eq", "ne", "ge", "gt")


@op_class(
    ALL,
    "any",
    elementwise=True,
    ranges=dict(fn=one_of(*UNARY_FUNCTIONS, *BINARY_FUNCTIONS, *OTHER_FUNCTIONS)),
    any_lanes=True,
)
class Map(OneResult):
    """Apply `fn` elementwise; operands of one dtype broadcast by axis name (fragments: a side of 1
    is repeated). Rounds once, to the result's dtype; comparisons give bool. `fn` is a unary or
    binary function, "fma" (a*b + c), "where" (cond, a, b), "join" (of two bytes, the upper one
    first, the 16 bits of a float), "byte_of" (of a u4 and four u32, that one of their 16 bytes) or
    "byte_of_8" (of the lower three bits of a u4 and two u32, that one of their 8 bytes).

    Integer `floordiv` and `mod` round towards minus infinity, and are open where the divisor is 0
    or the quotient too large; "round" to the nearest whole number, halves to the even one. `gelu`
    is the exact (erf) one. "mulhi" gives the upper 32 bits of `a * b` of two i32 or two u32,
    "popcount" the number of set bits of an i32 or u32. A function needs to be exact to `bits`
    bits only, since its result is rounded to `bits` bits later.

    Integers wrap. With `wraps` "add", "sub" or "mul" may do so at all sizes; without, their result
    on nonnegative operands is not negative, as for sizes and indices.
    """

    fn: str
    args: tuple[Value, ...] = ()
    bits: int = 24
    wraps: bool = False

    def faults(self, made: Makers) -> Iterator[str]:
        count = ARITY[self.fn]
        if len(self.args) != count:
            yield f"{self.fn} takes {count} operands, not {len(self.args)}"
        elif not all(_broadcasts(v, self.result) for v in self.args):
            yield f"the shape of {self.result.type} differs from the operands of {self.fn}"
        elif self.bits != 24:
            kind = self.args[-1].type
            if not (isinstance(kind, Tile | Fragment) and kind.dtype.is_float):
                yield "`bits` applies only to floating-point results"


def _broadcasts(value: Value, made: Value) -> bool:
    """Return whether each extent of `value` is 1 or that of `made`."""
    extents = ((getattr(v.type, x, 1) for v in (value, made)) for x in ("rows", "columns"))
    return isinstance(value.type, Tile) or all(x in (1, whole) for x, whole in extents)


@op_class(ALL, "any", elementwise=True, any_lanes=True)
class Cast(Unary):
    """Convert the values of `x` to the result's dtype.

    A float is rounded to nearest even (tf32: ties away from zero; f8e8m0: to the larger one).
    Floats of 8 bits and fewer saturate: larger values, infinity too, become the largest finite
    value; NaN stays NaN, and becomes the largest value of a type without NaN. Of f8e8m0, 2**-127 is
    the least, also of 0, and negative values become NaN. Float to integer
    truncates, and saturates; NaN becomes 0. Integer to integer keeps the low bits, or with
    `saturate` becomes the nearest value that the result's dtype has.
    """

    saturate: bool = False


@op_class(ALL, "any", elementwise=True, any_lanes=True)
class Bitcast(Unary):
    """Reinterpret the bits of `x` as the result's dtype, of the same width."""


@op_class(ALL, "any", pure=True)
class Constant(OneResult):
    """A scalar known at compile time."""

    value: int | float | bool

    def faults(self, made: Makers) -> Iterator[str]:
        kind = self.result.type
        if not isinstance(kind, Tile) or kind.axes:
            yield "a constant must be a scalar"
        elif not _represents(kind.dtype, self.value):
            yield f"{kind.dtype} cannot represent {self.value!r}"


def _represents(dtype: DType, number: float | bool) -> bool:
    if dtype.kind == "bool":
        return isinstance(number, bool)
    if isinstance(number, bool) or (dtype.is_integer and not isinstance(number, int)):
        return False
    low, high = dtype.limits
    return dtype.is_float or low <= number <= high


@op_class(ALL, "any", elementwise=True, any_lanes=True)
class Full(OneResult):
    """A new tile, the scalar `value` in every element."""

    value: Value


@op_class(ALL, "any", pure=True)
class DimSize(OneResult):
    """The size of a dimension at launch; an i32 scalar."""

    dim: str
