"""The typed tree: every name resolved, every type known, functions inlined, one assignment a Var.

What is left for `to_ir` is to flatten expressions and to choose names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wsdsl.diagnostics import Loc
from wsdsl.ir.types import Tensor, Tile


@dataclass(eq=False, repr=False)
class Var:
    """A name between two assignments; `hint` is what the source calls it. `value`: what it was
    given, if that is all that it can be; `counts`: of the index of an `each`, the
    dimension.
    """

    hint: str
    type: Tile
    value: Expr | None = None
    counts: str = ""


@dataclass(eq=False, repr=False)
class AxisRef:
    """A loop's axis, by a name that is unique in the kernel, or a whole dimension. `by`: the size
    of its tiles, where the kernel says it.
    """

    name: str
    dim: str
    whole: bool = False
    by: int = 0


@dataclass(eq=False, repr=False)
class TensorRef:
    name: str
    type: Tensor

    def __str__(self) -> str:
        return f"{self.name}: {self.type.dtype}[{', '.join(map(str, self.type.dims))}]"


@dataclass(kw_only=True, eq=False, repr=False)
class Typed:
    """Base of the expressions."""

    type: Tile
    loc: Loc = field(compare=False, repr=False)


@dataclass(eq=False, repr=False)
class Ref(Typed):
    var: Var


@dataclass(eq=False, repr=False)
class Const(Typed):
    value: int | float | bool


@dataclass(eq=False, repr=False)
class Map(Typed):
    fn: str
    args: tuple[Expr, ...]


@dataclass(eq=False, repr=False)
class Cast(Typed):
    x: Expr


@dataclass(eq=False, repr=False)
class Bitcast(Typed):
    x: Expr


@dataclass(eq=False, repr=False)
class Contract(Typed):
    a: Expr
    b: Expr


@dataclass(eq=False, repr=False)
class Reduce(Typed):
    """`per`: of each block of so many elements, or 0."""

    fn: str
    x: Expr
    axis: AxisRef
    per: int = 0


@dataclass(eq=False, repr=False)
class Scan(Typed):
    x: Expr
    axis: AxisRef


@dataclass(eq=False, repr=False)
class TopK(Typed):
    x: Expr
    axis: AxisRef
    into: AxisRef
    before: tuple[Expr, ...]
    places: bool


@dataclass(eq=False, repr=False)
class Full(Typed):
    value: Expr
    axes: tuple[AxisRef, ...]


@dataclass(eq=False, repr=False)
class Index(Typed):
    axis: AxisRef


@dataclass(eq=False, repr=False)
class End(Typed):
    axis: AxisRef


@dataclass(eq=False, repr=False)
class Load(Typed):
    tensor: TensorRef
    index: tuple[Expr | AxisRef, ...]


@dataclass(eq=False, repr=False)
class Lookup(Typed):
    table: TensorRef
    i: Expr


@dataclass(eq=False, repr=False)
class DimSize(Typed):
    dim: str


Expr = (
    Ref | Const | Map | Cast | Bitcast | Contract | Reduce | Scan | TopK | Full | Index | End
    | Load | Lookup | DimSize
)  # fmt: skip
Entry = Expr | AxisRef


@dataclass(eq=False, repr=False)
class Let:
    """A Var of a Ref is another name for the same value."""

    var: Var
    value: Expr


@dataclass(eq=False, repr=False)
class Store:
    tensor: TensorRef
    index: tuple[Entry, ...]
    value: Expr
    accumulate: bool
    loc: Loc


@dataclass(eq=False, repr=False)
class Carried:
    init: Expr
    arg: Var
    next: Expr
    result: Var


@dataclass(eq=False, repr=False)
class ForTiles:
    axis: AxisRef
    start: Expr | None
    stop: Expr | None
    carried: tuple[Carried, ...]
    body: tuple[Statement, ...]
    loc: Loc


@dataclass(eq=False, repr=False)
class ForEach:
    dim: str
    var: Var
    carried: tuple[Carried, ...]
    body: tuple[Statement, ...]
    loc: Loc


@dataclass(eq=False, repr=False)
class Merged:
    then: Expr
    orelse: Expr
    result: Var


@dataclass(eq=False, repr=False)
class If:
    cond: Expr
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...]
    merged: tuple[Merged, ...]
    loc: Loc


Statement = Let | Store | ForTiles | ForEach | If


@dataclass(eq=False, repr=False)
class TypedKernel:
    name: str
    params: tuple[TensorRef | Var, ...]
    body: tuple[Statement, ...]
    loc: Loc
