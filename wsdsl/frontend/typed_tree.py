"""The typed tree: every name resolved, every type known, functions inlined, one assignment a Var.

`to_ir` flattens expressions and chooses names.
"""

from __future__ import annotations

from wsdsl.diagnostics import Loc
from wsdsl.frontend.syntax import Tree
from wsdsl.ir.types import Tensor, Tile


class Var(Tree):
    """A name between two assignments; `hint` is its name in the source. `value`: its only value, if
    it has one; `counts`: the dimension, of the index of an `each`.
    """

    hint: str
    type: Tile
    value: Expr | None = None
    counts: str = ""


class AxisRef(Tree):
    """A loop's axis, by a name that is unique in the kernel, or a whole dimension. `by`: the size
    of its tiles, if the source fixes it.
    """

    name: str
    dim: str
    whole: bool = False
    by: int = 0


class TensorRef(Tree):
    name: str
    type: Tensor

    def __str__(self) -> str:
        return f"{self.name}: {self.type.dtype}[{', '.join(map(str, self.type.dims))}]"


class Typed(Tree, kw_only=True):
    """Base of the expressions."""

    type: Tile
    loc: Loc


class Ref(Typed):
    var: Var


class Const(Typed):
    value: int | float | bool


class Map(Typed):
    fn: str
    args: tuple[Expr, ...]


class Cast(Typed):
    x: Expr


class Bitcast(Typed):
    x: Expr


class Contract(Typed):
    a: Expr
    b: Expr


class Reduce(Typed):
    """`per`: the number of elements of each reduced block, or 0."""

    fn: str
    x: Expr
    axis: AxisRef
    per: int = 0


class Scan(Typed):
    x: Expr
    axis: AxisRef


class TopK(Typed):
    x: Expr
    axis: AxisRef
    into: AxisRef
    before: tuple[Expr, ...]
    places: bool


class Full(Typed):
    value: Expr
    axes: tuple[AxisRef, ...]


class Index(Typed):
    axis: AxisRef


class End(Typed):
    axis: AxisRef


class Load(Typed):
    tensor: TensorRef
    index: tuple[Expr | AxisRef, ...]


class Lookup(Typed):
    table: TensorRef
    i: Expr


class DimSize(Typed):
    dim: str


Expr = (
    Ref | Const | Map | Cast | Bitcast | Contract | Reduce | Scan | TopK | Full | Index | End
    | Load | Lookup | DimSize
)  # fmt: skip
Entry = Expr | AxisRef


class Let(Tree):
    """A Var of a Ref is another name for the same value."""

    var: Var
    value: Expr


class Store(Tree):
    tensor: TensorRef
    index: tuple[Entry, ...]
    value: Expr
    accumulate: bool
    loc: Loc


class Carried(Tree):
    init: Expr
    arg: Var
    next: Expr
    result: Var


class ForTiles(Tree):
    axis: AxisRef
    start: Expr | None
    stop: Expr | None
    carried: tuple[Carried, ...]
    body: tuple[Statement, ...]
    loc: Loc


class ForEach(Tree):
    dim: str
    var: Var
    carried: tuple[Carried, ...]
    body: tuple[Statement, ...]
    loc: Loc


class Merged(Tree):
    then: Expr
    orelse: Expr
    result: Var


class If(Tree):
    cond: Expr
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...]
    merged: tuple[Merged, ...]
    loc: Loc


Statement = Let | Store | ForTiles | ForEach | If


class TypedKernel(Tree):
    name: str
    params: tuple[TensorRef | Var, ...]
    body: tuple[Statement, ...]
    loc: Loc
