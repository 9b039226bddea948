"""The untyped syntax tree: what was written, and where.

Nodes are never compared or changed; without the methods that dataclasses would write for that, a
first compile is some 40 ms quicker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from wsdsl.diagnostics import Loc


@dataclass(kw_only=True, eq=False, repr=False)
class Node:
    loc: Loc = field(compare=False, repr=False)


@dataclass(eq=False, repr=False)
class Name(Node):
    name: str


@dataclass(eq=False, repr=False)
class Number(Node):
    value: int | float | bool


@dataclass(eq=False, repr=False)
class Unary(Node):
    op: str
    operand: Expr


@dataclass(eq=False, repr=False)
class Binary(Node):
    """Comparisons too; `op_loc` is the operator's place, for errors about both sides."""

    op: str
    left: Expr
    right: Expr
    op_loc: Loc = field(compare=False, repr=False)


@dataclass(eq=False, repr=False)
class Keyword(Node):
    name: str
    value: Expr


@dataclass(eq=False, repr=False)
class Call(Node):
    function: Expr
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()


@dataclass(eq=False, repr=False)
class Colon(Node):
    """`:` as an index: the whole dimension."""


@dataclass(eq=False, repr=False)
class Subscript(Node):
    base: Expr
    entries: tuple[Expr | Colon, ...]


@dataclass(eq=False, repr=False)
class TupleExpr(Node):
    items: tuple[Expr, ...]


Expr = Name | Number | Unary | Binary | Call | Subscript | TupleExpr


@dataclass(eq=False, repr=False)
class Assign(Node):
    targets: tuple[Expr, ...]
    value: Expr


@dataclass(eq=False, repr=False)
class Augmented(Node):
    """`target op= value`; `op` without the `=`."""

    target: Expr
    op: str
    value: Expr
    op_loc: Loc = field(compare=False, repr=False)


@dataclass(eq=False, repr=False)
class For(Node):
    """`loc` is the header's."""

    targets: tuple[Name, ...]
    source: Expr
    body: tuple[Statement, ...]


@dataclass(eq=False, repr=False)
class If(Node):
    """`loc` is the header's; an `elif` is an `If` alone in `orelse`."""

    cond: Expr
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...]


@dataclass(eq=False, repr=False)
class ExprStatement(Node):
    expr: Expr


@dataclass(eq=False, repr=False)
class Return(Node):
    value: Expr | None


Statement = Assign | Augmented | For | If | ExprStatement | Return


@dataclass(eq=False, repr=False)
class Param(Node):
    name: str
    annotation: Expr | None


@dataclass(eq=False, repr=False)
class Definition(Node):
    """A kernel or a function; `loc` is the name's, on the `def` line."""

    kind: Literal["kernel", "function"]
    name: str
    params: tuple[Param, ...]
    body: tuple[Statement, ...]


@dataclass(eq=False, repr=False)
class Module:
    """A file: its definitions by name, and the names that `dims(…)` and plain constants gave."""

    definitions: dict[str, Definition]
    dims: dict[str, str]
    constants: dict[str, int | float | bool]
