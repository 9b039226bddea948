"""Entities: the meanings of names and expressions during checks; scopes of names."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from wsdsl.diagnostics import Loc
from wsdsl.frontend import syntax, typed_tree
from wsdsl.frontend.foreign import meant
from wsdsl.frontend.typed_tree import AxisRef, TensorRef
from wsdsl.ir.ops import UNARY_FUNCTIONS
from wsdsl.ir.types import DTYPES, DType

WORDS = (
    "tiles", "each", "end", "zeros", "full", "index", "cast", "bitcast", "where", "lookup", "sum",
    "max", "min", "argmax", "argmin", "cumsum", "topk", "fma", "mulhi", "popcount", "dims",
    *(f for f in UNARY_FUNCTIONS if f not in ("neg", "not")),
)  # fmt: skip

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
    """The values of `return a, b`; without items, of a function that returns nothing."""

    items: tuple[Value, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A captured Python object that means nothing here."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Poison:
    """The result of an error; uses of it cause no further errors."""


POISON = Poison()
Value = typed_tree.Expr | Literal | Poison


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
Capture = Callable[[str], Entity | None]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call, evaluated."""

    entity: Entity
    loc: Loc


@dataclass(frozen=True, eq=False)
class Scope:
    """Names outside a definition's body: those of its file, and those that Python captured."""

    module: syntax.Module
    capture: Capture = field(default=lambda name: None)

    def find(self, name: str, node: syntax.Name) -> Entity | None:
        module = self.module
        if name in module.constants:
            return Literal(module.constants[name], loc=node.loc)
        if name in module.dims:
            return DimName(module.dims[name])
        captured = self.capture(name)
        if isinstance(captured, Literal):
            return Literal(captured.value, loc=node.loc)
        if captured is not None:
            return captured
        definition = module.definitions.get(name)
        if definition is not None and definition.kind == "function":
            return FunctionRef(definition, self)
        if definition is not None:
            hint = "call an @function, which several kernels can share"
            return Foreign(f"WS0137 a kernel cannot use kernel `{name}`", hint)
        if name in DTYPES:
            return TypeName(DTYPES[name])
        if name == "inf":
            return Literal(math.inf, loc=node.loc)
        return Builtin(name) if name in WORDS else None


def suggestion(
    name: str, known: Mapping[str, object], scope: Scope, *, called: bool = False
) -> str:
    """Return a hint for an unknown name: similar names."""
    if hint := meant(name):
        return hint
    functions = (n for n, made in scope.module.definitions.items() if made.kind == "function")
    words = [*known, *WORDS, *DTYPES, *functions, *scope.module.dims]
    close = difflib.get_close_matches(name, words, n=1, cutoff=0.66)
    if close:
        return f"did you mean `{close[0]}`?"
    if called:
        return "use a function of docs/language.md, or define one under @function"
    return "assign it before this line"
