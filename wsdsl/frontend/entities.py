"""What a name or an expression of the source can stand for while it is checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from wsdsl.diagnostics import Loc
from wsdsl.frontend import syntax, typed
from wsdsl.frontend.typed import AxisRef, TensorRef
from wsdsl.ir.types import DType

if TYPE_CHECKING:
    from wsdsl.frontend.scope import Scope

Number = int | float | bool


@dataclass(frozen=True, slots=True)
class Literal:
    """A number without an element type yet: it takes that of the other operand."""

    value: Number
    loc: Loc = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DimName:
    name: str


@dataclass(frozen=True, slots=True)
class TypeName:
    dtype: DType


@dataclass(frozen=True, slots=True)
class TileType:
    """`f32[m, n]`; without axes it is a scalar's."""

    dtype: DType
    axes: tuple[AxisRef, ...]


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function of the language."""

    name: str


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """A @function, and where its free names are looked up."""

    definition: syntax.Definition
    scope: Scope = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Several:
    """What `return a, b` gives; nothing is returned when there are no items."""

    items: tuple[Value, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A captured Python object that means nothing here."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Poison:
    """What an error leaves behind; everything that touches it stays silent."""


POISON = Poison()
Value = typed.Expr | Literal | Poison


class PoisonedError(Exception):
    """An operand is poison, and so is the innermost expression around it."""


T = TypeVar("T")


def sound(value: T | Poison) -> T:
    """Return a value that is not poison."""
    if isinstance(value, Poison):
        raise PoisonedError
    return value


Entity = (
    Value | AxisRef | TensorRef | DimName | TypeName | TileType | Builtin | FunctionRef | Several
    | Foreign
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call, evaluated."""

    entity: Entity
    loc: Loc
