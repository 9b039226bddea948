"""The typed tree: every name resolved, every type known, functions inlined, one assignment a Var.

What is left for `to_ir` is to flatten expressions and to choose names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wsdsl.diagnostics import Loc
from wsdsl.ir.types import Tensor, Tile


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A name between two assignments; `hint` is what the source calls it."""

    hint: str
    type: Tile


@dataclass(frozen=True, slots=True)
class AxisRef:
    """A loop's axis, by a name that is unique in the kernel, or a whole dimension."""

    name: str
    dim: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class TensorRef:
    name: str
    type: Tensor

    def __str__(self) -> str:
        return f"{self.name}: {self.type.dtype}[{', '.join(map(str, self.type.dims))}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """Base of the expressions."""

    type: Tile
    loc: Loc = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Ref(Typed):
    var: Var


@dataclass(frozen=True, slots=True)
class Const(Typed):
    value: int | float | bool


@dataclass(frozen=True, slots=True)
class Map(Typed):
    fn: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Cast(Typed):
    x: Expr


@dataclass(frozen=True, slots=True)
class Bitcast(Typed):
    x: Expr


@dataclass(frozen=True, slots=True)
class Contract(Typed):
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True)
class Reduce(Typed):
    fn: str
    x: Expr
    axis: AxisRef


@dataclass(frozen=True, slots=True)
class Full(Typed):
    value: Expr
    axes: tuple[AxisRef, ...]


@dataclass(frozen=True, slots=True)
class Index(Typed):
    axis: AxisRef


@dataclass(frozen=True, slots=True)
class End(Typed):
    axis: AxisRef


@dataclass(frozen=True, slots=True)
class Load(Typed):
    tensor: TensorRef
    index: tuple[Expr | AxisRef, ...]


@dataclass(frozen=True, slots=True)
class Lookup(Typed):
    table: TensorRef
    i: Expr


@dataclass(frozen=True, slots=True)
class DimSize(Typed):
    dim: str


Expr = (
    Ref | Const | Map | Cast | Bitcast | Contract | Reduce | Full | Index | End | Load | Lookup
    | DimSize
)  # fmt: skip
Entry = Expr | AxisRef


@dataclass(frozen=True, slots=True)
class Let:
    """A Var of a Ref is another name for the same value."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    tensor: TensorRef
    index: tuple[Entry, ...]
    value: Expr
    accumulate: bool
    loc: Loc


@dataclass(frozen=True, slots=True)
class Carried:
    init: Expr
    arg: Var
    next: Expr
    result: Var


@dataclass(frozen=True, slots=True)
class ForTiles:
    axis: AxisRef
    start: Expr | None
    stop: Expr | None
    carried: tuple[Carried, ...]
    body: tuple[Statement, ...]
    loc: Loc


@dataclass(frozen=True, slots=True)
class ForEach:
    dim: str
    var: Var
    carried: tuple[Carried, ...]
    body: tuple[Statement, ...]
    loc: Loc


@dataclass(frozen=True, slots=True)
class Merged:
    then: Expr
    orelse: Expr
    result: Var


@dataclass(frozen=True, slots=True)
class If:
    cond: Expr
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...]
    merged: tuple[Merged, ...]
    loc: Loc


Statement = Let | Store | ForTiles | ForEach | If


@dataclass(frozen=True, slots=True)
class TypedKernel:
    name: str
    params: tuple[TensorRef | Var, ...]
    body: tuple[Statement, ...]
    loc: Loc
