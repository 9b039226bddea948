"""The untyped syntax tree: what was written, and where. Locations take no part in equality."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from wsdsl.diagnostics import Loc


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    loc: Loc = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name(Node):
    name: str


@dataclass(frozen=True, slots=True)
class Number(Node):
    value: int | float | bool


@dataclass(frozen=True, slots=True)
class Unary(Node):
    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Comparisons too; `op_loc` is the operator's place, for errors about both sides."""

    op: str
    left: Expr
    right: Expr
    op_loc: Loc = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Keyword(Node):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Node):
    function: Expr
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()


@dataclass(frozen=True, slots=True)
class Colon(Node):
    """`:` as an index: the whole dimension."""


@dataclass(frozen=True, slots=True)
class Subscript(Node):
    base: Expr
    entries: tuple[Expr | Colon, ...]


@dataclass(frozen=True, slots=True)
class TupleExpr(Node):
    items: tuple[Expr, ...]


Expr = Name | Number | Unary | Binary | Call | Subscript | TupleExpr


@dataclass(frozen=True, slots=True)
class Assign(Node):
    targets: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Augmented(Node):
    """`target op= value`; `op` without the `=`."""

    target: Expr
    op: str
    value: Expr
    op_loc: Loc = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class For(Node):
    """`loc` is the header's."""

    targets: tuple[Name, ...]
    source: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If(Node):
    """`loc` is the header's; an `elif` is an `If` alone in `orelse`."""

    cond: Expr
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class ExprStatement(Node):
    expr: Expr


@dataclass(frozen=True, slots=True)
class Return(Node):
    value: Expr | None


Statement = Assign | Augmented | For | If | ExprStatement | Return


@dataclass(frozen=True, slots=True)
class Param(Node):
    name: str
    annotation: Expr | None


@dataclass(frozen=True, slots=True)
class Definition(Node):
    """A kernel or a function; `loc` is the name's, on the `def` line."""

    kind: Literal["kernel", "function"]
    name: str
    params: tuple[Param, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Module:
    """A file: its definitions by name, and the names that `dims(…)` and plain constants gave."""

    definitions: dict[str, Definition]
    dims: dict[str, str]
    constants: dict[str, int | float | bool]
