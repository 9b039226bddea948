"""Expressions: names, loads, products, calls."""

from wsdsl.diagnostics import Loc, counted
from wsdsl.frontend import entities as e
from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed_tree
from wsdsl.frontend.element_types import is_small
from wsdsl.frontend.entities import Scope, suggestion
from wsdsl.frontend.operators import Operators
from wsdsl.frontend.ranges import outside
from wsdsl.frontend.source import Report, in_brackets
from wsdsl.frontend.typed_tree import AxisRef, TensorRef
from wsdsl.ir.hardware.wgmma_shapes import cast_to
from wsdsl.ir.types import F32, I32, Tile

KINDS: dict[type, str] = {
    AxisRef: "a loop's axis",
    TensorRef: "a tensor",
    e.DimName: "a dimension",
    e.TypeName: "an element type",
    e.TileType: "a tile's type",
    e.Builtin: "a function",
    e.FunctionRef: "a function",
    e.Several: "several values",
}


def _instead(tensor: TensorRef, dim: str | int) -> str:
    """Return a hint for an index that is outside."""
    if isinstance(dim, str):
        return f"count from the end with the size: {dim} - 1 is the last index"
    last = f"use indices 0 to {dim - 1}" if dim > 1 else "use index 0"
    return f"{last} of {tensor}"


def _one_type(a: typed_tree.Expr, b: typed_tree.Expr) -> str:
    """Return the hint for operands of `@` of two types."""
    dtype = cast_to(a.type.dtype, b.type.dtype)
    casts = [f"`cast({x.loc.written}, {dtype})`" for x in (a, b) if x.type.dtype.name != dtype]
    wide = [
        x for x in (a, b) if isinstance(x, typed_tree.Map) and (x.fn, x.type.dtype) == ("mul", F32)
    ]
    summed = {*a.type.axes} & {*b.type.axes}
    behind = ""
    for x in wide:
        (own, factor) = sorted(x.args, key=lambda y: not summed & {*y.type.axes})
        sides = [y.loc.written for y in (own if y is x else y for y in (a, b))]
        fits = isinstance(own, typed_tree.Cast) and not summed & {*factor.type.axes}
        if fits and all(in_brackets(side) == side for side in sides):
            scaled = f"({' @ '.join(sides)}) * {in_brackets(factor.loc.written)}"
            behind = f"scale the matmul, `{scaled}`, or "
    return f"{behind}write {' and '.join(casts)}"


class Expressions:
    """Checks expressions. `env` has the entities of the block's names, `out` the statements of
    inlined functions.
    """

    def __init__(self, report: Report, scope: Scope) -> None:
        self.report, self.scope = report, scope
        self.ops = Operators(report)
        self.env: dict[str, e.Entity] = {}
        self.lost: dict[str, str] = {}
        """Names that are no longer visible, and why."""
        self.said: set[str] = set()
        self.dead = False
        """Whether constants show that this branch is never taken."""
        self.local: frozenset[str] = frozenset()
        """Names that the definition assigns; as in Python they never mean one from outside."""
        self.dims: set[str] = set()
        """The dimensions of the kernel's tensors: those whose size is known at launch."""
        self.out: list[typed_tree.Statement] = []

    def inline(self, ref: e.FunctionRef, args: list[e.Argument], loc: Loc) -> e.Entity:
        raise NotImplementedError

    def word(self, name: str, node: s.Call) -> e.Entity:
        raise NotImplementedError

    def let(self, name: str, value: typed_tree.Expr) -> typed_tree.Var:
        var = typed_tree.Var(name, value.type, value)
        self.out.append(typed_tree.Let(var, value))
        return var

    def once(self, name: str, value: typed_tree.Expr) -> typed_tree.Expr:
        """Name a value that is used several times, so that it is computed once."""
        if isinstance(value, typed_tree.Ref):
            return value
        return typed_tree.Ref(self.let(name, value), type=value.type, loc=value.loc)

    # Entities

    def entity(self, node: s.Expr) -> e.Entity:
        try:
            return self._entity(node)
        except e.PoisonedError:
            return e.POISON

    def _entity(self, node: s.Expr) -> e.Entity:
        match node:
            case s.Name():
                return self.name(node)
            case s.Number():
                return e.Literal(node.value, loc=node.loc)
            case s.Unary():
                return self.ops.unary(node.op, self.value(node.operand), node.loc)
            case s.Binary():
                return self.binary(node)
            case s.Call():
                return self.call(node)
            case s.Subscript():
                return self.subscript(node)
            case s.TupleExpr():
                message = "WS0158 a tuple cannot be used as a value"
                return self.report.error(message, node.loc, "assign each value to a name")

    def name(self, node: s.Name, *, called: bool = False) -> e.Entity:
        if node.name in self.env:
            return self.env[node.name]
        if node.name in self.local:
            hint = f"assign it before this line; an assigned name hides the outer `{node.name}`"
            hint = self.lost.get(node.name) or hint
            return self.unknown(node, f"WS0159 `{node.name}` is not defined at this line", hint)
        found = self.scope.find(node.name, node)
        if isinstance(found, e.DimName) and found.name not in self.dims:
            message = f"WS0160 no tensor parameter has the dimension `{found.name}`"
            known = ", ".join(sorted(self.dims)) or "none"
            return self.unknown(node, message, f"use a dimension of known size; known: {known}")
        if found is not None:
            return found
        why = self.lost.get(node.name)
        hint = why or suggestion(node.name, self.env, self.scope, called=called)
        return self.unknown(node, f"WS0161 `{node.name}` is not defined", hint)

    def unknown(self, node: s.Name, message: str, hint: str) -> e.Poison:
        """Report an error once per name."""
        if node.name in self.said:
            return e.POISON
        self.said.add(node.name)
        return self.report.error(message, node.loc, hint)

    def value(self, node: s.Expr) -> e.Value:
        """An expression that must be a number, a scalar or a tile."""
        return self.as_value(self.entity(node), node.loc)

    def as_value(self, entity: e.Entity, loc: Loc) -> e.Value:
        if isinstance(entity, e.DimName):
            return typed_tree.DimSize(entity.name, type=Tile(I32), loc=loc)
        if isinstance(entity, e.Foreign):
            return self.report.error(entity.what, loc, entity.hint)
        if isinstance(entity, e.Several) and not entity.items:
            hint = "end it with a return, or call it without using a result"
            return self.report.error(f"WS0162 `{entity.name}` returns nothing", loc, hint)
        if isinstance(
            entity,
            (AxisRef, TensorRef, e.TypeName, e.TileType, e.Builtin, e.FunctionRef, e.Several),
        ):
            hints: dict[type, str] = {
                AxisRef: "use index(…) for the indices along it",
                TensorRef: "load a tile of it by an index in brackets",
                e.Several: "assign each value to a name",
            }
            hint = hints.get(type(entity), "use a number, a scalar or a tile")
            message = f"WS0163 {KINDS[type(entity)]} cannot be used as a value"
            return self.report.error(message, loc, hint)
        return entity

    def typed(self, node: s.Expr) -> typed_tree.Expr | e.Poison:
        """A value with a type; a number alone is an i32, f32 or bool."""
        return self.ops.value(self.value(node))

    def binary(self, node: s.Binary) -> e.Value:
        a, b = self.value(node.left), self.value(node.right)
        if node.op == "@":
            return self.product(a, b, node)
        return self.ops.binary(node.op, a, b, node.loc)

    def product(self, a: e.Value, b: e.Value, node: s.Binary) -> e.Value:
        a, b = e.sound(a), e.sound(b)
        if isinstance(a, e.Literal) or isinstance(b, e.Literal):
            hint = "use `*` to multiply by a number"
            return self.report.error("WS0164 `@` cannot multiply a number", node.loc, hint)
        if {a.type.dtype, b.type.dtype} >= {F32} and any(is_small(v.type.dtype) for v in (a, b)):
            # One of them has a factor, and so is f32.
            a, b = self.ops.cast(a, F32), self.ops.cast(b, F32)
        x, y = a.type, b.type
        shared = [axis for axis in x.axes if axis in y.axes]
        if not shared:
            hint = "load both with the same loop variable, or use `*`, which broadcasts"
            message = f"WS0165 operands of `@` share no axis: {x} and {y}"
            return self.report.error(message, node.loc, hint)
        eights = {x.dtype.name, y.dtype.name} <= {"f8e4m3", "f8e5m2"}
        integers = x.dtype.is_integer and y.dtype.is_integer
        if x.dtype != y.dtype and not eights and not integers:
            return self.ops.differ("`@`", x.dtype, y.dtype, node.loc, _one_type(a, b))
        if not (x.dtype.is_float or x.dtype.is_integer):
            hint = f"cast to a number first: `cast({a.loc.written}, i8)`"
            return self.ops.unsupported("@", x.dtype, node.loc, hint)
        free = [t for t in x.axes if t not in shared] + [t for t in y.axes if t not in shared]
        kind = Tile(F32 if x.dtype.is_float else I32, tuple(free))
        return typed_tree.Contract(a, b, type=kind, loc=node.loc)

    # Indexing

    def subscript(self, node: s.Subscript) -> e.Entity:
        base = e.sound(self.entity(node.base))
        match base:
            case TensorRef():
                return self.load(base, node)
            case e.TypeName():
                return self.tile_type(base, node)
            case e.Foreign():
                return self.report.error(base.what, node.base.loc, base.hint)
            case _:
                message = f"WS0166 {KINDS.get(type(base), 'a value')} cannot be indexed"
                return self.report.error(message, node.loc, "index a tensor parameter")

    def tile_type(self, base: e.TypeName, node: s.Subscript) -> e.TileType | e.Poison:
        axes = [e.sound(self.axis(entry)) for entry in node.entries]
        return self.twice([a.name for a in axes], node) or e.TileType(base.dtype, tuple(axes))

    def axis(self, node: s.Expr | s.Colon) -> AxisRef | e.Poison:
        found = None if isinstance(node, s.Colon) else self.entity(node)
        if isinstance(found, e.DimName):
            return AxisRef(found.name, found.name, whole=True)
        if isinstance(found, (AxisRef, e.Poison)):
            return found
        hint = "use the variable of a tiles loop, or a dimension to take it whole"
        return self.expected("an axis", node.loc, hint, ":" if isinstance(node, s.Colon) else "")

    def load(self, tensor: TensorRef, node: s.Subscript) -> e.Value:
        index = e.sound(self.index(tensor, node))
        axes: list[str] = []
        for entry in index:
            axes += [entry.name] if isinstance(entry, AxisRef) else entry.type.axes
        kind = Tile(tensor.type.dtype, tuple(dict.fromkeys(axes)))
        return typed_tree.Load(tensor, index, type=kind, loc=node.loc)

    def index(
        self, tensor: TensorRef, node: s.Subscript
    ) -> tuple[typed_tree.Entry, ...] | e.Poison:
        dims = tensor.type.dims
        if len(node.entries) != len(dims):
            has = f"`{tensor.name}` has {counted(len(dims), 'dimension')}"
            message = f"WS0167 {has}, not {len(node.entries)}"
            return self.report.error(message, node.loc, f"match the declaration {tensor}")
        entries = [self.entry(tensor, dim, at) for dim, at in zip(dims, node.entries, strict=True)]
        found = [x for x in entries if not isinstance(x, e.Poison)]
        twice = self.twice([x.name for x in found if isinstance(x, AxisRef)], node)
        return twice or (tuple(found) if len(found) == len(entries) else e.POISON)

    def twice(self, axes: list[str], node: s.Subscript) -> e.Poison | None:
        repeated = next((a for i, a in enumerate(axes) if a in axes[:i]), None)
        if repeated is None:
            return None
        hint = f"use each axis once; an index may have index({repeated}) as another entry"
        return self.report.error(f"WS0168 the axis `{repeated}` occurs twice", node.loc, hint)

    def entry(
        self, tensor: TensorRef, dim: str | int, node: s.Expr | s.Colon
    ) -> typed_tree.Entry | e.Poison:
        if isinstance(node, s.Colon):
            if isinstance(dim, int):
                hint = f"name it in the declaration: {tensor.name}: …[…, D]"
                message = f"WS0169 `:` needs a named dimension; this one is {dim}"
                return self.report.error(message, node.loc, hint)
            return AxisRef(dim, dim, whole=True)
        found = self.entity(node)
        if isinstance(found, AxisRef):
            if found.dim != str(dim):
                has = f"`{found.name}` iterates over {found.dim}"
                message = f"WS0170 {has}; this dimension of `{tensor.name}` is {dim}"
                return self.report.error(message, node.loc, f"match the declaration {tensor}")
            return found
        if isinstance(found, e.DimName):
            message = f"WS0171 `{found.name}` is a size, one past the last index"
            return self.report.error(message, node.loc, "use `:` for the whole dimension")
        value = self.ops.value(self.as_value(found, node.loc))
        if isinstance(value, e.Poison):
            return value
        if wrong := self.outside(tensor, dim, value, node.loc):
            return wrong
        wide = value.type.dtype.bits < 32
        return self.ops.cast(value, I32) if wide else value

    def outside(
        self, tensor: TensorRef, dim: str | int, index: typed_tree.Expr, loc: Loc
    ) -> e.Poison | None:
        """Report an index that is not an integer, or is outside for all sizes."""
        if not index.type.dtype.is_integer:
            return self.wrong_type("an index", "an integer", index.type.dtype, loc, "cast to i32")
        beyond = outside(index, dim)
        if not beyond or self.dead:
            return None
        named = isinstance(dim, str) and beyond.startswith("-")
        has = "no negative indices" if named else f"the size {dim}"
        message = f"WS0172 {beyond} outside this dimension of `{tensor.name}`, which has {has}"
        return self.report.error(message, loc, _instead(tensor, dim))

    # Calls

    def call(self, node: s.Call) -> e.Entity:
        name = node.function
        named = isinstance(name, s.Name)
        function = e.sound(self.name(name, called=True) if named else self.entity(name))
        match function:
            case e.Builtin():
                return self.word(function.name, node)
            case e.FunctionRef():
                if node.keywords:
                    return self.no_keyword(function.definition.name, node.keywords[0])
                args = [e.Argument(self.entity(a), a.loc) for a in node.args]
                for a in args:
                    e.sound(a.entity)
                return self.inline(function, args, node.loc)
            case e.TypeName():
                kind = function.dtype
                hint = f"write cast(x, {kind}) to convert, or zeros({kind}[m]) for a tile"
                return self.report.error("WS0173 an element type cannot be called", node.loc, hint)
            case e.Foreign():
                return self.report.error(function.what, node.function.loc, function.hint)
            case _:
                hint = "call a function of the language or an @function"
                return self.expected("a function", node.function.loc, hint)

    def expected(self, kind: str, loc: Loc, hint: str, found: str = "") -> e.Poison:
        """Report an expression of another kind."""
        found = found or loc.text[loc.column - 1 : loc.end - 1]
        return self.report.error(f"WS0174 expected {kind}, found `{found}`", loc, hint)

    def wrong_type(self, what: str, kind: str, found: object, loc: Loc, hint: str) -> e.Poison:
        return self.report.error(f"WS0175 {what} must be {kind}, not {found}", loc, hint)

    def no_keyword(self, function: str, given: s.Keyword, hint: str = "") -> e.Poison:
        message = f"WS0176 `{function}` has no keyword argument `{given.name}`"
        return self.report.error(message, given.loc, hint or "pass it by position")

    def miscounted(self, name: str, count: int | str, given: int, loc: Loc, hint: str) -> e.Poison:
        wanted = f"{count} argument{'s' * (count != 1)}"
        message = f"WS0177 `{name}` takes {wanted}, not {given}"
        return self.report.error(message, loc, hint)

    def positive(self, node: s.Expr, size_of: str, loc: Loc, hint: str) -> int | e.Poison:
        """The value of a positive integer literal."""
        size = self.value(node)
        if isinstance(size, e.Poison):
            return size
        if isinstance(size, e.Literal) and type(size.value) is int and size.value > 0:
            return size.value
        message = f"WS0178 the size of a {size_of} must be a positive integer"
        return self.report.error(message, loc, hint)
