"""Expressions: names, loads, products, calls."""

from __future__ import annotations

from wsdsl.diagnostics import Loc, counted
from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed
from wsdsl.frontend.dtypes import is_small
from wsdsl.frontend.entities import (
    POISON,
    Argument,
    Builtin,
    DimName,
    Entity,
    Foreign,
    FunctionRef,
    Literal,
    Poison,
    Several,
    TileType,
    TypeName,
    Value,
)
from wsdsl.frontend.operators import BINARY, Operators
from wsdsl.frontend.ranges import outside
from wsdsl.frontend.scope import Scope, suggestion
from wsdsl.frontend.source import Report, in_brackets
from wsdsl.frontend.typed import AxisRef, TensorRef
from wsdsl.frontend.words import call_word
from wsdsl.ir.types import F32, I32, Tile
from wsdsl.ir.wgmma import cast_to

WHAT: dict[type, str] = {
    AxisRef: "a loop's axis",
    TensorRef: "a tensor",
    DimName: "a dimension",
    TypeName: "an element type",
    TileType: "a tile's type",
    Builtin: "a function",
    FunctionRef: "a function",
    Several: "several values",
}


def _instead(tensor: TensorRef, dim: str | int) -> str:
    """What to write for an index that is outside."""
    if isinstance(dim, str):
        return f"count from the end with the size: {dim} - 1 is the last one"
    last = f"indices go from 0 to {dim - 1}" if dim > 1 else "its only index is 0"
    return f"{last}; it is declared as {tensor}"


def _one_type(a: typed.Expr, b: typed.Expr) -> str:
    """The hint for operands of `@` of two types."""
    dtype = cast_to(a.type.dtype, b.type.dtype)
    casts = [f"`cast({x.loc.written}, {dtype})`" for x in (a, b) if x.type.dtype.name != dtype]
    wide = [x for x in (a, b) if isinstance(x, typed.Map) and (x.fn, x.type.dtype) == ("mul", F32)]
    summed = {*a.type.axes} & {*b.type.axes}
    behind = ""
    for x in wide:
        (own, factor) = sorted(x.args, key=lambda y: not summed & {*y.type.axes})
        sides = [y.loc.written for y in (own if y is x else y for y in (a, b))]
        fits = isinstance(own, typed.Cast) and not summed & {*factor.type.axes}
        if fits and all(in_brackets(side) == side for side in sides):
            scaled = f"({' @ '.join(sides)}) * {in_brackets(factor.loc.written)}"
            behind = f"scale the product, `{scaled}`, or "
    return f"{behind}write {' and '.join(casts)}"


class Expressions:
    """Checks expressions. `env` holds what the block's names stand for, `out` the statements that
    inlined functions leave behind.
    """

    def __init__(self, report: Report, scope: Scope) -> None:
        self.report, self.scope = report, scope
        self.ops = Operators(report)
        self.env: dict[str, Entity] = {}
        self.lost: dict[str, str] = {}
        """Names that are not visible any more, and why."""
        self.said: set[str] = set()
        self.dead = False
        """In a branch that constants say is never taken."""
        self.local: frozenset[str] = frozenset()
        """Names that the definition assigns; as in Python they never mean one from outside."""
        self.dims: set[str] = set()
        """The dimensions of the kernel's tensors: those whose size is known at launch."""
        self.out: list[typed.Statement] = []

    def inline(self, ref: FunctionRef, args: list[Argument], loc: Loc) -> Entity:
        raise NotImplementedError

    def let(self, name: str, value: typed.Expr) -> typed.Var:
        var = typed.Var(name, value.type, value)
        self.out.append(typed.Let(var, value))
        return var

    def once(self, name: str, value: typed.Expr) -> typed.Expr:
        """A value that is used several times, and computed once."""
        if isinstance(value, typed.Ref):
            return value
        return typed.Ref(self.let(name, value), type=value.type, loc=value.loc)

    # Entities

    def entity(self, node: s.Expr) -> Entity:
        match node:
            case s.Name():
                return self.name(node)
            case s.Number():
                return Literal(node.value, loc=node.loc)
            case s.Unary():
                return self.ops.unary(node.op, self.value(node.operand), node.loc)
            case s.Binary():
                return self.binary(node)
            case s.Call():
                return self.call(node)
            case s.Subscript():
                return self.subscript(node)
            case s.TupleExpr():
                return self.report.error(
                    "several values where one is expected", node.loc, "name them one by one"
                )

    def name(self, node: s.Name, *, called: bool = False) -> Entity:
        if node.name in self.env:
            return self.env[node.name]
        if node.name in self.local:
            hint = f"it is assigned in here, and so never a `{node.name}` from outside"
            hint = self.lost.get(node.name) or hint
            return self.unknown(node, f"`{node.name}` is not known here", hint)
        found = self.scope.find(node.name, node)
        if isinstance(found, DimName) and found.name not in self.dims:
            return self.unknown(
                node,
                f"no tensor parameter has the dimension `{found.name}`",
                f"its size is not known at launch; known: {', '.join(sorted(self.dims)) or 'none'}",
            )
        if found is not None:
            return found
        why = self.lost.get(node.name)
        hint = why or suggestion(node.name, self.env, self.scope, called=called)
        return self.unknown(node, f"`{node.name}` is not defined", hint)

    def unknown(self, node: s.Name, message: str, hint: str) -> Poison:
        """An error that is said once a name."""
        if node.name in self.said:
            return POISON
        self.said.add(node.name)
        return self.report.error(message, node.loc, hint)

    def value(self, node: s.Expr) -> Value:
        """An expression that must be a number, a scalar or a tile."""
        return self.as_value(self.entity(node), node.loc)

    def as_value(self, entity: Entity, loc: Loc) -> Value:
        if isinstance(entity, DimName):
            return typed.DimSize(entity.name, type=Tile(I32), loc=loc)
        if isinstance(entity, Foreign):
            return self.report.error(entity.what, loc, entity.hint)
        if isinstance(entity, Several) and not entity.items:
            hint = "end it with a return, or call it on a line of its own"
            return self.report.error(f"`{entity.name}` returns nothing", loc, hint)
        if isinstance(
            entity, (AxisRef, TensorRef, TypeName, TileType, Builtin, FunctionRef, Several)
        ):
            hints: dict[type, str] = {
                AxisRef: "index(…) gives the indices along it",
                TensorRef: "load a tile of it by an index in brackets",
                Several: "assign them to as many names",
            }
            hint = hints.get(type(entity), "a number, a scalar or a tile is expected here")
            return self.report.error(f"{WHAT[type(entity)]} is no value", loc, hint)
        return entity

    def typed(self, node: s.Expr) -> typed.Expr | Poison:
        """A value with a type; a number alone is an i32, f32 or bool."""
        return self.ops.value(self.value(node))

    def binary(self, node: s.Binary) -> Value:
        a, b = self.value(node.left), self.value(node.right)
        if node.op == "@":
            return self.product(a, b, node)
        if node.op not in BINARY:
            hint = "`@` multiplies and sums over shared axes, `*` by element"
            return self.report.error(f"`{node.op}` is not of the language", node.op_loc, hint)
        return self.ops.binary(node.op, a, b, node.loc)

    def product(self, a: Value, b: Value, node: s.Binary) -> Value:
        if isinstance(a, Poison) or isinstance(b, Poison):
            return POISON
        if isinstance(a, Literal) or isinstance(b, Literal):
            return self.report.error("`@` of a number", node.loc, "`*` multiplies by a number")
        if {a.type.dtype, b.type.dtype} >= {F32} and any(is_small(v.type.dtype) for v in (a, b)):
            # One of them has a factor, and so is f32.
            a, b = self.ops.cast(a, F32), self.ops.cast(b, F32)
        x, y = a.type, b.type
        shared = [axis for axis in x.axes if axis in y.axes]
        if not shared:
            return self.report.error(
                f"`@` of tiles that share no axis: {x} and {y}",
                node.loc,
                "load both with the same loop variable; `*` broadcasts",
            )
        eights = {x.dtype.name, y.dtype.name} <= {"f8e4m3", "f8e5m2"}
        integers = x.dtype.is_integer and y.dtype.is_integer
        if x.dtype != y.dtype and not eights and not integers:
            hint = _one_type(a, b)
            return self.report.error(f"`@` of {x.dtype} and {y.dtype}", node.loc, hint)
        if not (x.dtype.is_float or x.dtype.is_integer):
            hint = f"cast to a number first: `cast({a.loc.written}, i8)`"
            return self.report.error(f"`@` of {x.dtype}", node.loc, hint)
        free = [t for t in x.axes if t not in shared] + [t for t in y.axes if t not in shared]
        kind = Tile(F32 if x.dtype.is_float else I32, tuple(free))
        return typed.Contract(a, b, type=kind, loc=node.loc)

    # Indexing

    def subscript(self, node: s.Subscript) -> Entity:
        base = self.entity(node.base)
        match base:
            case TensorRef():
                return self.load(base, node)
            case TypeName():
                return self.tile_type(base, node)
            case Poison():
                return POISON
            case Foreign():
                return self.report.error(base.what, node.base.loc, base.hint)
            case _:
                what = WHAT.get(type(base), "a value")
                return self.report.error(
                    f"{what} can not be indexed", node.loc, "only tensor parameters are loaded from"
                )

    def tile_type(self, base: TypeName, node: s.Subscript) -> TileType | Poison:
        axes: list[AxisRef] = []
        for entry in node.entries:
            found = POISON if isinstance(entry, s.Colon) else self.entity(entry)
            if isinstance(found, AxisRef):
                axes.append(found)
            elif isinstance(found, DimName):
                axes.append(AxisRef(found.name, found.name, whole=True))
            elif not isinstance(found, Poison) or isinstance(entry, s.Colon):
                hint = "a loop variable, or a dimension to take it whole"
                return self.report.error("an axis is expected here", entry.loc, hint)
            else:
                return POISON
        return self.twice([a.name for a in axes], node) or TileType(base.dtype, tuple(axes))

    def load(self, tensor: TensorRef, node: s.Subscript) -> Value:
        index = self.index(tensor, node)
        if isinstance(index, Poison):
            return index
        axes: list[str] = []
        for entry in index:
            axes += [entry.name] if isinstance(entry, AxisRef) else entry.type.axes
        kind = Tile(tensor.type.dtype, tuple(dict.fromkeys(axes)))
        return typed.Load(tensor, index, type=kind, loc=node.loc)

    def index(self, tensor: TensorRef, node: s.Subscript) -> tuple[typed.Entry, ...] | Poison:
        dims = tensor.type.dims
        if len(node.entries) != len(dims):
            return self.report.error(
                f"`{tensor.name}` has {counted(len(dims), 'dimension')}, not {len(node.entries)}",
                node.loc,
                f"it is declared as {tensor}",
            )
        entries = [self.entry(tensor, d, e) for d, e in zip(dims, node.entries, strict=True)]
        found = [e for e in entries if not isinstance(e, Poison)]
        twice = self.twice([e.name for e in found if isinstance(e, AxisRef)], node)
        return twice or (tuple(found) if len(found) == len(entries) else POISON)

    def twice(self, axes: list[str], node: s.Subscript) -> Poison | None:
        repeated = next((a for i, a in enumerate(axes) if a in axes[:i]), None)
        if repeated is None:
            return None
        hint = "a tile has each axis once; index(…) as an entry walks along with another axis"
        return self.report.error(f"the axis `{repeated}` occurs twice", node.loc, hint)

    def entry(
        self, tensor: TensorRef, dim: str | int, node: s.Expr | s.Colon
    ) -> typed.Entry | Poison:
        if isinstance(node, s.Colon):
            if isinstance(dim, int):
                hint = f"name it in the declaration: {tensor.name}: …[…, D]"
                return self.report.error("`:` takes a dimension by its name", node.loc, hint)
            return AxisRef(dim, dim, whole=True)
        found = self.entity(node)
        if isinstance(found, AxisRef):
            if found.dim != str(dim):
                return self.report.error(
                    f"`{found.name}` walks {found.dim}, this dimension of `{tensor.name}` is {dim}",
                    node.loc,
                    f"it is declared as {tensor}",
                )
            return found
        if isinstance(found, DimName):
            return self.report.error(
                f"`{found.name}` is a size here, one past the last index",
                node.loc,
                "`:` takes the whole dimension",
            )
        value = self.ops.value(self.as_value(found, node.loc))
        if isinstance(value, Poison):
            return value
        if not value.type.dtype.is_integer:
            return self.report.error(
                f"an index of {value.type.dtype}", node.loc, "indices are integers: cast(x, i32)"
            )
        if wrong := self.outside(tensor, dim, value, node.loc):
            return wrong
        wide = value.type.dtype.bits < 32
        return self.ops.cast(value, I32) if wide else value

    def outside(
        self, tensor: TensorRef, dim: str | int, index: typed.Expr, loc: Loc
    ) -> Poison | None:
        """An error for an index that is outside whatever the sizes."""
        beyond = outside(index, dim)
        if not beyond or self.dead:
            return None
        named = isinstance(dim, str) and beyond.startswith("-")
        has = "no negative indices" if named else f"the size {dim}"
        return self.report.error(
            f"{beyond} outside of this dimension of `{tensor.name}`, which has {has}",
            loc,
            _instead(tensor, dim),
        )

    # Calls

    def call(self, node: s.Call) -> Entity:
        name = node.function
        function = self.name(name, called=True) if isinstance(name, s.Name) else self.entity(name)
        match function:
            case Builtin():
                return call_word(self, function.name, node)
            case FunctionRef():
                if node.keywords:
                    return self.report.error(
                        "functions are called by position", node.keywords[0].loc, "drop the name"
                    )
                args = [Argument(self.entity(a), a.loc) for a in node.args]
                if any(isinstance(a.entity, Poison) for a in args):
                    return POISON
                return self.inline(function, args, node.loc)
            case Poison():
                return POISON
            case TypeName():
                hint = (
                    f"cast(x, {function.dtype}) converts; zeros({function.dtype}[m]) makes a tile"
                )
                return self.report.error("an element type is no function", node.loc, hint)
            case Foreign():
                return self.report.error(function.what, node.function.loc, function.hint)
            case _:
                hint = "functions of the language and @functions can be called"
                return self.report.error("this is no function", node.function.loc, hint)
