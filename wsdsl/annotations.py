"""Objects of a kernel's annotations: dimensions, and element types, which are Python classes, so
that `A: bf16[M, K]` is a legal annotation and editors find the operators of tiles.
"""

# ruff: noqa: N801 - element types are spelled as in a kernel.

from __future__ import annotations

import builtins
import typing
from typing import Any, ClassVar

from wsdsl.diagnostics import WsdslError
from wsdsl.record import record

__all__ = [
    "Dim",
    "bf16",
    "boolean",
    "f4e2m1",
    "f6e2m3",
    "f6e3m2",
    "f8e4m3",
    "f8e5m2",
    "f8e8m0",
    "f16",
    "f32",
    "i4",
    "i8",
    "i16",
    "i32",
    "tf32",
    "u4",
    "u8",
    "u16",
    "u32",
]
Scalar = builtins.bool | int | float


def not_python(name: str) -> WsdslError:
    message = f"WS0001 Python cannot call {name}, which has a meaning only inside a @kernel"
    return WsdslError(
        message, hint="call it in a @kernel or @function, whose source wsdsl compiles"
    )


@record
class Dim:
    """A dimension's name; its size comes with the arrays of a call."""

    name: str

    def __repr__(self) -> str:
        return self.name


@record
class TensorType:
    """Value of `bf16[M, K]` in Python: an element type and dimensions."""

    element: type[Tile]
    dims: tuple[Dim | int, ...]

    def __repr__(self) -> str:
        return f"{self.element.__name__}[{', '.join(map(repr, self.dims))}]"


def _as_tuple(x: object) -> tuple[object, ...]:
    return typing.cast("tuple[object, ...]", x) if isinstance(x, tuple) else (x,)


class Tile:
    """Type of a kernel's tensors, tiles and scalars, for editors and type checkers."""

    def __class_getitem__(cls, dimensions: Any) -> Any:
        found: list[Dim | int] = []
        for d in _as_tuple(dimensions):
            if not isinstance(d, Dim | int) or isinstance(d, builtins.bool):
                message = f"WS0002 {cls.__name__}[…]: {d!r} is not a dimension"
                raise WsdslError(message, hint='give an int, or a name of `M, N = dims("M N")`')
            found.append(d)
        return TensorType(cls, tuple(found))

    def __init__(self, *_: Any) -> None:
        raise not_python(type(self).__name__)

    def __getitem__(self, index: Any) -> Tile: ...
    def __setitem__(self, index: Any, value: Tile | Scalar) -> None: ...
    def __add__(self, other: Tile | Scalar) -> Tile: ...
    def __radd__(self, other: Scalar) -> Tile: ...
    def __sub__(self, other: Tile | Scalar) -> Tile: ...
    def __rsub__(self, other: Scalar) -> Tile: ...
    def __mul__(self, other: Tile | Scalar) -> Tile: ...
    def __rmul__(self, other: Scalar) -> Tile: ...
    def __truediv__(self, other: Tile | Scalar) -> Tile: ...
    def __rtruediv__(self, other: Scalar) -> Tile: ...
    def __floordiv__(self, other: Tile | Scalar) -> Tile: ...
    def __rfloordiv__(self, other: Scalar) -> Tile: ...
    def __mod__(self, other: Tile | Scalar) -> Tile: ...
    def __rmod__(self, other: Scalar) -> Tile: ...
    def __pow__(self, other: Tile | Scalar) -> Tile: ...
    def __rpow__(self, other: Scalar) -> Tile: ...
    def __matmul__(self, other: Tile) -> Tile: ...
    def __and__(self, other: Tile | Scalar) -> Tile: ...
    def __rand__(self, other: Scalar) -> Tile: ...
    def __or__(self, other: Tile | Scalar) -> Tile: ...
    def __ror__(self, other: Scalar) -> Tile: ...
    def __xor__(self, other: Tile | Scalar) -> Tile: ...
    def __rxor__(self, other: Scalar) -> Tile: ...
    def __lshift__(self, other: Tile | Scalar) -> Tile: ...
    def __rlshift__(self, other: Scalar) -> Tile: ...
    def __rshift__(self, other: Tile | Scalar) -> Tile: ...
    def __rrshift__(self, other: Scalar) -> Tile: ...
    def __lt__(self, other: Tile | Scalar) -> Tile: ...
    def __le__(self, other: Tile | Scalar) -> Tile: ...
    def __gt__(self, other: Tile | Scalar) -> Tile: ...
    def __ge__(self, other: Tile | Scalar) -> Tile: ...
    def __neg__(self) -> Tile: ...
    def __pos__(self) -> Tile: ...
    def __invert__(self) -> Tile: ...
    def __abs__(self) -> Tile: ...
    def __round__(self) -> Tile: ...

    # Only the type of `==` differs from object's; an override at run time would cost the hash.
    __hash__: ClassVar[Any] = object.__hash__


class f32(Tile): ...


class tf32(Tile): ...


class f16(Tile): ...


class bf16(Tile): ...


class f8e4m3(Tile): ...


class f8e5m2(Tile): ...


class f8e8m0(Tile): ...


class f6e2m3(Tile): ...


class f6e3m2(Tile): ...


class f4e2m1(Tile): ...


class i32(Tile): ...


class i16(Tile): ...


class i8(Tile): ...


class i4(Tile): ...


class u32(Tile): ...


class u16(Tile): ...


class u8(Tile): ...


class u4(Tile): ...


class bool(Tile): ...


boolean = bool
"""`bool` under a name that hides nothing, for annotations such as `boolean[M, N]`."""
