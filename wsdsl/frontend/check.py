"""Statements: what is assigned, carried by loops, merged after ifs, stored. All errors at once."""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.diagnostics import Loc, TypeCheckError
from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed
from wsdsl.frontend.entities import (
    POISON,
    Argument,
    Builtin,
    DimName,
    Entity,
    FunctionRef,
    Literal,
    Poison,
    Several,
    TypeName,
)
from wsdsl.frontend.expressions import Expressions
from wsdsl.frontend.liveness import Liveness, assigned
from wsdsl.frontend.report import Report
from wsdsl.frontend.scope import Scope
from wsdsl.frontend.typed import AxisRef, TensorRef, Var
from wsdsl.ir.types import BOOL, I32, Tensor, Tile

Body = tuple[s.Statement, ...]


def check(definition: s.Definition, scope: Scope) -> typed.TypedKernel:
    """The typed kernel. TypeCheckError with everything that is wrong, in source order."""
    report = Report()
    checker = Checker(report, scope, definition)
    kernel = checker.kernel()
    if len(report):
        raise TypeCheckError(report.in_order())
    return kernel


class Checker(Expressions):
    """One definition: a kernel, or a function where it is inlined."""

    def __init__(self, report: Report, scope: Scope, definition: s.Definition) -> None:
        super().__init__(report, scope)
        self.definition = definition
        self.live = Liveness(definition)
        self.axes: set[str] = set()
        self.calling: tuple[str, ...] = ()
        self.returned: Entity | None = None

    def kernel(self) -> typed.TypedKernel:
        params: list[TensorRef | Var] = []
        for p in self.definition.params:
            made = self.param(p)
            self.env[p.name] = made if isinstance(made, (TensorRef, Poison)) else _ref(made, p.loc)
            if not isinstance(made, Poison):
                params.append(made)
        body = self.block(self.definition.body)
        if not len(self.report) and not _stores(body):
            self.report.error(
                f"`{self.definition.name}` stores nothing",
                self.definition.loc,
                "assign to a tile of a tensor parameter: C[m, n] = x",
            )
        return typed.TypedKernel(self.definition.name, tuple(params), body, self.definition.loc)

    def param(self, p: s.Param) -> TensorRef | Var | Poison:
        hint = f"{p.name}: bf16[M, K], or {p.name}: f32"
        if p.annotation is None:
            return self.report.error(f"`{p.name}` has no type", p.loc, hint)
        base = p.annotation.base if isinstance(p.annotation, s.Subscript) else p.annotation
        kind = self.entity(base)
        if isinstance(kind, Poison):
            return kind
        if not isinstance(kind, TypeName):
            return self.report.error("an element type is expected here", base.loc, hint)
        if not isinstance(p.annotation, s.Subscript):
            return Var(p.name, Tile(kind.dtype))
        dims: list[str | int] = []
        for entry in p.annotation.entries:
            dim = self.dimension(entry)
            if isinstance(dim, Poison):
                return dim
            dims.append(dim)
        return TensorRef(p.name, Tensor(kind.dtype, tuple(dims)))

    def dimension(self, node: s.Expr | s.Colon) -> str | int | Poison:
        """A dimension's name, introduced here if nothing else bears it, or a fixed size."""
        if isinstance(node, s.Number) and isinstance(node.value, int) and node.value > 0:
            return node.value
        if isinstance(node, s.Name):
            found = self.scope.find(node.name, node)
            if isinstance(found, DimName):
                return found.name
            if isinstance(found, Literal) and isinstance(found.value, int):
                return found.value
            if found is None or isinstance(found, (Builtin, FunctionRef)):
                self.scope.module.dims[node.name] = node.name
                return node.name
        return self.report.error(
            "a dimension is a name or a positive number", node.loc, "as in bf16[M, 64]"
        )

    # Blocks

    def block(self, body: Body) -> tuple[typed.Statement, ...]:
        outer, self.out = self.out, []
        for statement in body:
            self.statement(statement)
        made, self.out = self.out, outer
        return tuple(made)

    def statement(self, node: s.Statement) -> None:
        match node:
            case s.Assign():
                self.assign(node)
            case s.Augmented():
                self.augmented(node)
            case s.For():
                self.loop(node)
            case s.If():
                self.branch(node)
            case s.ExprStatement():
                found = self.entity(node.expr)
                silent = isinstance(found, Poison) or (
                    isinstance(found, Several) and not found.items
                )
                if not silent:
                    self.report.error(
                        "this has no effect", node.loc, "assign it, or store it to a tensor"
                    )
            case s.Return():
                self.give_back(node)

    def assign(self, node: s.Assign) -> None:
        if len(node.targets) == 1:
            self.bind(node.targets[0], self.entity(node.value), node.value.loc)
            return
        if isinstance(node.value, s.TupleExpr):
            found: Sequence[Entity] = [self.entity(item) for item in node.value.items]
            locs = [item.loc for item in node.value.items]
        else:
            several = self.entity(node.value)
            found = several.items if isinstance(several, Several) else [several]
            locs = [node.value.loc] * len(found)
            if isinstance(several, Poison):
                found = [POISON] * len(node.targets)
                locs = [node.value.loc] * len(found)
        if len(found) != len(node.targets):
            self.report.error(
                f"{len(found)} values for {len(node.targets)} names", node.loc, "one for each"
            )
            found, locs = [POISON] * len(node.targets), [node.loc] * len(node.targets)
        for target, entity, loc in zip(node.targets, found, locs, strict=True):
            self.bind(target, entity, loc)

    def bind(self, target: s.Expr, entity: Entity, loc: Loc) -> None:
        if isinstance(target, s.Subscript):
            self.store(target, entity, loc, accumulate=False)
        elif isinstance(target, s.Name):
            self.env[target.name] = self.kept(target.name, entity, loc)
        else:
            self.report.error("this can not be assigned to", target.loc, "a name, or C[m, n]")

    def kept(self, name: str, entity: Entity, loc: Loc) -> Entity:
        """An entity under a name: what is computed is computed once."""
        if isinstance(self.env.get(name), TensorRef):
            return self.report.error(
                f"`{name}` is a tensor parameter", loc, f"store to a tile of it: {name}[…] = x"
            )
        entity = self.as_value(entity, loc)
        if isinstance(entity, (Literal, Poison)):
            return entity
        return _ref(self.let(name, entity), loc)

    def let(self, name: str, value: typed.Expr) -> Var:
        var = Var(name, value.type)
        self.out.append(typed.Let(var, value))
        return var

    def augmented(self, node: s.Augmented) -> None:
        if isinstance(node.target, s.Subscript):
            if node.op != "+":
                self.report.error(
                    f"`{node.op}=` on a tensor", node.op_loc, "only `+=` adds to global memory"
                )
                return
            self.store(node.target, self.entity(node.value), node.value.loc, accumulate=True)
        elif isinstance(node.target, s.Name):
            whole = s.Binary(node.op, node.target, node.value, loc=node.loc, op_loc=node.op_loc)
            self.env[node.target.name] = self.kept(node.target.name, self.entity(whole), node.loc)
        else:
            self.report.error("this can not be assigned to", node.target.loc, "a name, or C[m, n]")

    def store(self, target: s.Subscript, entity: Entity, loc: Loc, *, accumulate: bool) -> None:
        tensor = self.entity(target.base)
        value = self.as_value(entity, loc)
        if isinstance(tensor, Poison) or isinstance(value, Poison):
            return
        if not isinstance(tensor, TensorRef):
            self.report.error(
                "only tensors are stored to", target.base.loc, "a parameter of type …[…]"
            )
            return
        index = self.index(tensor, target)
        if isinstance(index, Poison):
            return
        if isinstance(value, Literal):
            made = self.ops.constant(value, tensor.type.dtype, value.loc)
            if isinstance(made, Poison):
                return
            value = made
        known = {a for e in index for a in ([e.name] if isinstance(e, AxisRef) else e.type.axes)}
        missing = [a for a in value.type.axes if a not in known]
        if missing:
            self.report.error(
                f"the value has the axis `{missing[0]}`, which the index lacks",
                loc,
                f"reduce it first: sum(x, over={missing[0]})",
            )
            return
        kinds = (value.type.dtype, tensor.type.dtype)
        if BOOL in kinds and kinds[0] != kinds[1]:
            self.report.error(f"a store of {kinds[0]} to {kinds[1]}", loc, "cast it")
            return
        self.out.append(typed.Store(tensor, index, value, accumulate, target.loc))

    # Loops

    def loop(self, node: s.For) -> None:
        source = node.source
        word = self.entity(source.function) if isinstance(source, s.Call) else None
        if (
            not isinstance(source, s.Call)
            or not isinstance(word, Builtin)
            or word.name
            not in (
                "tiles",
                "each",
            )
        ):
            hint = "for m, n in tiles(M, N):, or for b in each(B):"
            self.report.error("a loop walks tiles(…) or each(…)", source.loc, hint)
            return
        if word.name == "tiles" and any(k.name == "of" for k in source.keywords):
            self.part_of_a_dimension(node, source)
            return
        if source.keywords:
            self.report.error(f"`{word.name}` knows no `{source.keywords[0].name}`",
                              source.keywords[0].loc, "tiles(start, stop, of=M)")  # fmt: skip
            return
        if len(source.args) != len(node.targets):
            hint = f"one for each: {', '.join(t.name for t in node.targets)}"
            self.report.error(
                f"{len(source.args)} dimensions for {len(node.targets)} variables", source.loc, hint
            )
            return
        dims = [self.loop_dimension(a) for a in source.args]
        self.nest(node, [(t, d, None, None) for t, d in zip(node.targets, dims)], word.name)

    def loop_dimension(self, node: s.Expr) -> str | Poison:
        found = self.entity(node)
        if isinstance(found, DimName):
            return found.name
        if isinstance(found, Poison):
            return found
        hint = "the name of a dimension; tiles(start, stop, of=M) walks a part of one"
        return self.report.error("a dimension is expected here", node.loc, hint)

    def part_of_a_dimension(self, node: s.For, source: s.Call) -> None:
        others = [k for k in source.keywords if k.name != "of"]
        if others or len(source.args) != 2 or len(node.targets) != 1:
            hint = "for m in tiles(start, stop, of=M):"
            self.report.error("a part of one dimension has a start and a stop", source.loc, hint)
            return
        dim = self.loop_dimension(source.keywords[0].value)
        bounds: list[typed.Expr | Poison] = []
        for arg in source.args:
            bound = self.typed(arg)
            if not isinstance(bound, Poison) and (
                bound.type.axes or not bound.type.dtype.is_integer
            ):
                bound = self.report.error(
                    f"a bound of type {bound.type}", arg.loc, "bounds are integer scalars"
                )
            bounds.append(bound if isinstance(bound, Poison) else self.ops.cast(bound, I32))
        if not any(isinstance(b, Poison) for b in (dim, *bounds)):
            self.nest(node, [(node.targets[0], dim, bounds[0], bounds[1])], "tiles")

    def nest(
        self,
        node: s.For,
        loops: list[
            tuple[s.Name, str | Poison, typed.Expr | Poison | None, typed.Expr | Poison | None]
        ],
        word: str,
    ) -> None:
        """One loop a variable, each inside the one before; what the body rebinds goes through all."""
        if any(isinstance(dim, Poison) for _, dim, _, _ in loops):
            return
        outer = dict(self.env)
        names = [
            name
            for name in assigned(node.body)
            if name in self.live.around[id(node)] and name in outer
        ]
        carried = [n for n in names if not isinstance(outer[n], TensorRef)]
        levels: list[tuple[AxisRef | Var, dict[str, Var], dict[str, typed.Expr]]] = []
        for target, dim, _, _ in loops:
            assert isinstance(dim, str)
            inits: dict[str, typed.Expr] = {}
            args: dict[str, Var] = {}
            for name in carried:
                init = self.ops.value(self.as_value(self.env[name], node.loc))
                if not isinstance(init, Poison):
                    inits[name] = init
                    args[name] = Var(name, init.type)
                    self.env[name] = _ref(args[name], init.loc)
            if word == "tiles":
                index: AxisRef | Var = AxisRef(self.axis_name(target.name), dim)
                self.env[target.name] = index
            else:
                index = Var(target.name, Tile(I32))
                self.env[target.name] = _ref(index, target.loc)
            levels.append((index, args, inits))
        body = self.block(node.body)
        last = {n: self.carried_on(n, levels[-1][1][n], node) for n in levels[-1][1]}
        inner = dict(self.env)
        self.env = outer
        for name in inner:
            if name not in outer:
                self.lost[name] = f"`{name}` is known inside its loop alone; set it before the loop"
        for (index, args, inits), (_, dim, start, stop) in zip(reversed(levels), reversed(loops)):
            results = {n: Var(n, args[n].type) for n in args if n in last}
            moved = tuple(typed.Carried(inits[n], args[n], last[n], results[n]) for n in results)
            assert isinstance(dim, str)
            if isinstance(index, AxisRef):
                first = None if isinstance(start, Poison) else start
                end = None if isinstance(stop, Poison) else stop
                made: typed.Statement = typed.ForTiles(index, first, end, moved, body, node.loc)
            else:
                made = typed.ForEach(dim, index, moved, body, node.loc)
            body = (made,)
            last = {n: _ref(results[n], node.loc) for n in results}
        self.out += body
        for name, value in last.items():
            self.env[name] = value
        for name in names:
            if name not in last:
                self.env[name] = POISON

    def carried_on(self, name: str, arg: Var, node: s.For) -> typed.Expr:
        """What a carried name stands for at the end of the body."""
        fallback = _ref(arg, node.loc)
        value = self.as_value(self.env[name], node.loc)
        if isinstance(value, Poison):
            return fallback
        if isinstance(value, Literal):
            made = self.ops.constant(value, arg.type.dtype, value.loc)
            if isinstance(made, Poison) or arg.type.axes:
                self._changed(name, arg, "a number", value.loc)
                return fallback
            return made
        if (
            value.type != arg.type
            and set(value.type.axes) != set(arg.type.axes)
            or (value.type.dtype != arg.type.dtype)
        ):
            self._changed(name, arg, str(value.type), value.loc)
            return fallback
        return value

    def _changed(self, name: str, arg: Var, now: str, loc: Loc) -> None:
        self.report.error(
            f"`{name}` goes into the loop as {arg.type} and comes out as {now}",
            loc,
            f"start with the type that it ends with, or cast(…, {arg.type.dtype})",
        )

    def axis_name(self, wish: str) -> str:
        name, number = wish, 0
        while name in self.axes:
            number += 1
            name = f"{wish}_{number}"
        self.axes.add(name)
        return name

    # Branches

    def branch(self, node: s.If) -> None:
        cond = self.typed(node.cond)
        if not isinstance(cond, Poison) and (cond.type.axes or cond.type.dtype != BOOL):
            hint = "where(cond, a, b) chooses by element" if cond.type.axes else "compare it"
            self.report.error(f"a condition of type {cond.type}", node.cond.loc, hint)
        outer = dict(self.env)
        then = self.block(node.then)
        after_then, self.env = self.env, dict(outer)
        orelse = self.block(node.orelse)
        after_else, self.env = self.env, dict(outer)
        merged: list[typed.Merged] = []
        for name in {**assigned(node.then), **assigned(node.orelse)}:
            if name not in self.live.after[id(node)]:
                self.env.pop(name, None) if name not in outer else None
                continue
            if name not in after_then or name not in after_else:
                self.lost[name] = f"`{name}` is set in one branch alone; set it before the if"
                continue
            self.env[name] = self.merge(name, after_then[name], after_else[name], node, merged)
        if not isinstance(cond, Poison):
            self.out.append(typed.If(cond, then, orelse, tuple(merged), node.loc))

    def merge(
        self, name: str, a: Entity, b: Entity, node: s.If, merged: list[typed.Merged]
    ) -> Entity:
        if a == b and not isinstance(a, typed.Ref):
            return a
        x, y = self.as_value(a, node.loc), self.as_value(b, node.loc)
        found = self.ops.common([x, y], node.loc, f"`{name}`")
        if isinstance(found, Poison):
            return POISON
        (p, q), _ = found
        same = not isinstance(x, Literal) and not isinstance(y, Literal) and x.type != y.type
        if p.type != q.type or same:
            return self.report.error(
                f"`{name}` is {p.type} in one branch and {q.type} in the other", node.loc, "cast it"
            )
        result = Var(name, p.type)
        merged.append(typed.Merged(p, q, result))
        return _ref(result, node.loc)

    # Functions

    def give_back(self, node: s.Return) -> None:
        if self.definition.kind == "kernel":
            self.report.error("a kernel returns nothing", node.loc, "store to a tensor parameter")
        elif node is not self.definition.body[-1]:
            self.report.error(
                "a return ends its function", node.loc, "use where(…), or assign in the branches"
            )
        elif isinstance(node.value, s.TupleExpr):
            items = tuple(self.value(item) for item in node.value.items)
            self.returned = Several(items, self.definition.name)
        elif node.value is not None:
            self.returned = self.entity(node.value)

    def inline(self, ref: FunctionRef, args: list[Argument], loc: Loc) -> Entity:
        definition = ref.definition
        if definition.name in self.calling:
            return self.report.error(f"`{definition.name}` calls itself", loc, "write a loop")
        if len(args) != len(definition.params):
            wanted = len(definition.params)
            return self.report.error(
                f"`{definition.name}` takes {wanted} arguments, not {len(args)}", loc
            )
        inner = Checker(self.report, ref.scope, definition)
        inner.axes, inner.out = self.axes, self.out
        inner.calling = (*self.calling, definition.name)
        with self.report.inside(definition.name, loc):
            for param, arg in zip(definition.params, args, strict=True):
                entity = arg.entity
                keep = isinstance(entity, (typed.Typed, Literal, DimName))
                if keep and not isinstance(entity, Literal):
                    value = self.as_value(entity, arg.loc)
                    assert not isinstance(value, (Literal, Poison))
                    entity = _ref(inner.let(param.name, value), arg.loc)
                inner.env[param.name] = entity
            for statement in definition.body:
                inner.statement(statement)
        return inner.returned or Several((), definition.name)


def _ref(var: Var, loc: Loc) -> typed.Ref:
    return typed.Ref(var, type=var.type, loc=loc)


def _stores(body: Sequence[typed.Statement]) -> bool:
    return any(
        isinstance(x, typed.Store)
        or (isinstance(x, (typed.ForTiles, typed.ForEach)) and _stores(x.body))
        or (isinstance(x, typed.If) and (_stores(x.then) or _stores(x.orelse)))
        for x in body
    )
