"""Names in the source of kernels: element types, dimensions and the functions on tiles.

None of these functions runs: `frontend` parses the source of a kernel, and these names only make
it a Python function for editors and type checkers. Every function raises when Python calls it. The
names in annotations are defined in `annotations.py`.

`from wsdsl import *` does not import `sum`, `max`, `min`, `abs` and `round`: in a kernel the
builtins of that name have the same meaning. Import them for type checkers; outside of kernels they
call the builtins. `bool` shadows the builtin as well; `boolean` does not.
"""

import builtins
import math
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, Final, Generic, ParamSpec, SupportsAbs, TypeVar, overload

from wsdsl.annotations import (
    Dim,
    Scalar,
    Tile,
    bf16,
    boolean,
    f4e2m1,
    f6e2m3,
    f6e3m2,
    f8e4m3,
    f8e5m2,
    f8e8m0,
    f16,
    f32,
    i4,
    i8,
    i16,
    i32,
    not_python,
    tf32,
    u4,
    u8,
    u16,
    u32,
)
from wsdsl.annotations import bool as bool  # shadows the builtin; not in `__all__`
from wsdsl.diagnostics import WsdslError

__all__ = [
    "Dim",
    "Function",
    "argmax",
    "argmin",
    "bf16",
    "bitcast",
    "boolean",
    "cast",
    "cos",
    "cumsum",
    "dims",
    "each",
    "end",
    "erf",
    "exp",
    "exp2",
    "f4e2m1",
    "f6e2m3",
    "f6e3m2",
    "f8e4m3",
    "f8e5m2",
    "f8e8m0",
    "f16",
    "f32",
    "floor",
    "fma",
    "full",
    "function",
    "gelu",
    "i4",
    "i8",
    "i16",
    "i32",
    "index",
    "inf",
    "log",
    "log2",
    "lookup",
    "mulhi",
    "popcount",
    "relu",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "sqrt",
    "tanh",
    "tf32",
    "tiles",
    "topk",
    "u4",
    "u8",
    "u16",
    "u32",
    "where",
    "zeros",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def dims(names: str) -> Any:
    """`M, N, K = dims("M N K")`: one `Dim` per name; a single name gives the `Dim` itself."""
    found = str(names).replace(",", " ").split()
    bad = [n for n in found if not (n.isidentifier() and n.isascii())]
    if bad or not found:
        raise WsdslError(f"WS0014 dims({names!r}): expected names, as in dims('M N K')")
    made = tuple(Dim(n) for n in found)
    return made[0] if len(made) == 1 else made


inf: Final = math.inf


def _pythons(
    name: str, builtin: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Call the builtin of a function that a file imports from here and calls outside of kernels."""
    if "over" in options:
        raise not_python(f"{name}(…, over=…)")
    return builtin(*args, **options)


def tiles(*bounds: Any, of: Any = None, by: int = 0) -> Iterator[Any]:
    """`for m, n in tiles(M, N):` traverses dimensions in tiles of the schedule's size; `m` is the
    name of an axis. `tiles(start, stop, of=M)` traverses part of one dimension; `tiles(N, by=128)`
    has tiles of that size under every schedule."""
    raise not_python("tiles")


def each(*dimensions: Any) -> Iterator[Any]:
    """`for b, h in each(B, H):` traverses dimensions index by index; `b` is a scalar."""
    raise not_python("each")


def end(axis: Any) -> Tile:
    """One past the last index of an axis' current tile."""
    raise not_python("end")


def zeros(tile: Any) -> Tile:
    """`zeros(f32[m, n])`: a new tile of zeros."""
    raise not_python("zeros")


def full(tile: Any, value: Tile | Scalar) -> Tile:
    """`full(f32[m], -inf)`: a new tile with the same value everywhere."""
    raise not_python("full")


def index(axis: Any) -> Tile:
    """The global index of each element along an axis, i32."""
    raise not_python("index")


def cast(x: Tile | Scalar, dtype: Any) -> Tile:
    """Convert the values to another element type."""
    raise not_python("cast")


def bitcast(x: Tile, dtype: Any) -> Tile:
    """Reinterpret the bits as another element type of the same width."""
    raise not_python("bitcast")


def where(cond: Tile | Scalar, a: Tile | Scalar, b: Tile | Scalar) -> Tile:
    """`a` where the condition holds, else `b`."""
    raise not_python("where")


def lookup(table: Tile, i: Tile) -> Tile:
    """`table[i]` for each element of the integer tile `i`; the table is a 1-D tensor."""
    raise not_python("lookup")


@overload
def sum(x: Tile, /, *, over: Any, per: int = 0) -> Tile: ...
@overload
def sum(x: Iterable[Any], /, start: Any = 0) -> Any: ...
def sum(*args: Any, **options: Any) -> Any:
    """Sum over one axis; with `per=32`, over each block of 32 elements of it, broadcast to the
    block. Outside of kernels it is the builtin.
    """
    return _pythons("sum", builtins.sum, args, options)


@overload
def max(x: Tile, /, *, over: Any, per: int = 0) -> Tile: ...
@overload
def max(x: Tile, y: Tile | Scalar, /, *others: Tile | Scalar) -> Tile: ...
@overload
def max(x: Scalar, y: Tile, /, *others: Tile | Scalar) -> Tile: ...
@overload
def max(*args: Any, key: Any = None, default: Any = None) -> Any: ...
def max(*args: Any, **options: Any) -> Any:
    """`max(s, over=t)`: the largest along one axis; `max(s, over=t, per=32)`: of each block of 32;
    `max(a, b)`: elementwise. Outside of kernels it is the builtin.
    """
    return _pythons("max", builtins.max, args, options)


@overload
def min(x: Tile, /, *, over: Any, per: int = 0) -> Tile: ...
@overload
def min(x: Tile, y: Tile | Scalar, /, *others: Tile | Scalar) -> Tile: ...
@overload
def min(x: Scalar, y: Tile, /, *others: Tile | Scalar) -> Tile: ...
@overload
def min(*args: Any, key: Any = None, default: Any = None) -> Any: ...
def min(*args: Any, **options: Any) -> Any:
    """`min(s, over=t)`: the smallest along one axis; `min(s, over=t, per=32)`: of each block of 32;
    `min(a, b)`: elementwise. Outside of kernels it is the builtin.
    """
    return _pythons("min", builtins.min, args, options)


def argmax(x: Tile, *, over: Any) -> Tile:
    """Where along the axis the largest is, i32: the least such index, or that of the first NaN."""
    raise not_python("argmax")


def argmin(x: Tile, *, over: Any) -> Tile:
    """Where along the axis the smallest is, i32: the least such index, or that of the first NaN."""
    raise not_python("argmin")


def cumsum(x: Tile, *, over: Any) -> Tile:
    """Compute the inclusive prefix sum along the axis."""
    raise not_python("cumsum")


def topk(x: Tile, k: Any, /, *, over: Any) -> tuple[Tile, Tile]:
    """`v, i = topk(x, K, over=n)`: the K largest along the axis, in descending order, and their
    indices, i32; of equal ones the least index first, NaN before all. K is a dimension.
    """
    raise not_python("topk")


def fma(a: Tile | Scalar, b: Tile | Scalar, c: Tile | Scalar) -> Tile:
    """a * b + c, rounded once."""
    raise not_python("fma")


def mulhi(a: Tile | Scalar, b: Tile | Scalar) -> Tile:
    """Compute the upper 32 bits of the 64-bit product, of two u32 or two i32."""
    raise not_python("mulhi")


def popcount(x: Tile | Scalar) -> Tile:
    """How many bits of an integer of any width are set, i32; of a bool 0 or 1."""
    raise not_python("popcount")


def exp(x: Tile | Scalar) -> Tile:
    raise not_python("exp")


def exp2(x: Tile | Scalar) -> Tile:
    raise not_python("exp2")


def log(x: Tile | Scalar) -> Tile:
    raise not_python("log")


def log2(x: Tile | Scalar) -> Tile:
    raise not_python("log2")


def sqrt(x: Tile | Scalar) -> Tile:
    raise not_python("sqrt")


def rsqrt(x: Tile | Scalar) -> Tile:
    """1 / sqrt(x)."""
    raise not_python("rsqrt")


def sin(x: Tile | Scalar) -> Tile:
    raise not_python("sin")


def cos(x: Tile | Scalar) -> Tile:
    raise not_python("cos")


def tanh(x: Tile | Scalar) -> Tile:
    raise not_python("tanh")


def sigmoid(x: Tile | Scalar) -> Tile:
    raise not_python("sigmoid")


def relu(x: Tile | Scalar) -> Tile:
    raise not_python("relu")


def gelu(x: Tile | Scalar) -> Tile:
    """The exact one, by erf."""
    raise not_python("gelu")


def silu(x: Tile | Scalar) -> Tile:
    raise not_python("silu")


@overload
def abs(x: Tile, /) -> Tile: ...
@overload
def abs(x: SupportsAbs[T], /) -> T: ...
def abs(x: Any, /) -> Any:
    """Outside of kernels it is the builtin."""
    return builtins.abs(x)


def floor(x: Tile | Scalar) -> Tile:
    raise not_python("floor")


@overload
def round(x: Tile, /) -> Tile: ...
@overload
def round(x: Any, /, ndigits: int | None = None) -> Any: ...
def round(*args: Any, **options: Any) -> Any:
    """To the nearest whole number, halves to the even one; still of x's type. Outside of kernels it
    is Python's.
    """
    return _pythons("round", builtins.round, args, options)


def erf(x: Tile | Scalar) -> Tile:
    raise not_python("erf")


class Function(Generic[P, R]):
    """A @function: kept as Python wrote it, for the kernels that inline it."""

    def __init__(self, python: Callable[P, R]) -> None:
        self.python = python
        self.__name__ = getattr(python, "__name__", "?")
        self.__doc__ = python.__doc__

    def __call__(self, *_: P.args, **__: P.kwargs) -> R:
        raise not_python(self.__name__)

    def __repr__(self) -> str:
        return f"<wsdsl function {self.__name__}>"


def function(python: Callable[P, R]) -> Function[P, R]:
    """Mark a Python function whose body is inlined where a kernel calls it."""
    if not isinstance(python, FunctionType):
        raise WsdslError(f"WS0015 {python!r} is not a function", hint="write @function above a def")
    return Function(python)
