"""The untyped syntax tree, with locations.

Nodes are never compared or changed; without the methods that dataclasses generate for that, a first
compile is some 40 ms faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, dataclass_transform

from wsdsl.diagnostics import Loc


@dataclass_transform(eq_default=False)
class Tree:
    """Base of the trees' dataclasses."""

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(cls, kw_only=kw_only, eq=False, repr=False)


class Node(Tree, kw_only=True):
    loc: Loc


class Name(Node):
    name: str


class Number(Node):
    value: int | float | bool


class Unary(Node):
    op: str
    operand: Expr


class Binary(Node):
    """Comparisons too; `op_loc` is the operator's location, for errors about both operands."""

    op: str
    left: Expr
    right: Expr
    op_loc: Loc


class Keyword(Node):
    name: str
    value: Expr


class Call(Node):
    function: Expr
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()


class Colon(Node):
    """`:` as an index: the whole dimension."""


class Subscript(Node):
    base: Expr
    entries: tuple[Expr | Colon, ...]


class TupleExpr(Node):
    items: tuple[Expr, ...]


Expr = Name | Number | Unary | Binary | Call | Subscript | TupleExpr


class Assign(Node):
    targets: tuple[Expr, ...]
    value: Expr


class Augmented(Node):
    """`target op= value`; `op` without the `=`."""

    target: Expr
    op: str
    value: Expr
    op_loc: Loc


class For(Node):
    """`loc` is the header's."""

    targets: tuple[Name, ...]
    source: Expr
    body: tuple[Statement, ...]


class If(Node):
    """`loc` is the header's; an `elif` is an `If` alone in `orelse`."""

    cond: Expr
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...]


class ExprStatement(Node):
    expr: Expr


class Return(Node):
    value: Expr | None


Statement = Assign | Augmented | For | If | ExprStatement | Return


class Param(Node):
    name: str
    annotation: Expr | None


class Definition(Node):
    """A kernel or a function; `loc` is the name's, on the `def` line."""

    kind: Literal["kernel", "function"]
    name: str
    params: tuple[Param, ...]
    body: tuple[Statement, ...]


class Module(Tree):
    """A file: its definitions by name, and the names that `dims(…)` and plain constants gave."""

    definitions: dict[str, Definition]
    dims: dict[str, str]
    constants: dict[str, int | float | bool]
