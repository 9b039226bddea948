"""Check statements: assignments, names that loops carry, merges after ifs, stores."""

from collections.abc import Hashable, Sequence
from typing import Any

from wsdsl.diagnostics import Loc, TypeCheckError, counted, did_you_mean
from wsdsl.frontend import entities as e
from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed_tree
from wsdsl.frontend.entities import Scope
from wsdsl.frontend.foreign import meant
from wsdsl.frontend.language_calls import call_word
from wsdsl.frontend.liveness import Liveness, assigned, used
from wsdsl.frontend.loops import Body, Loops, read
from wsdsl.frontend.source import Report, in_brackets
from wsdsl.frontend.typed_tree import AxisRef, TensorRef, Var
from wsdsl.ir.types import BOOL, DTYPES, Tensor, Tile


def check(definition: s.Definition, scope: Scope) -> typed_tree.TypedKernel:
    """Return the typed kernel. TypeCheckError with all errors, in source order."""
    report = Report()
    kernel = Checker(report, scope, definition).kernel()
    if len(report):
        raise TypeCheckError(report.in_order())
    return kernel


MAX_CALLS = 4096
"""Calls of functions in one kernel; more calls compile for too long."""


class Checker(Loops):
    """Checks one definition: a kernel, or a function where it is inlined."""

    def __init__(self, report: Report, scope: Scope, definition: s.Definition) -> None:
        super().__init__(report, scope)
        self.definition = definition
        self.live = Liveness(definition)
        self.local = frozenset(assigned(definition.body))
        self.calling: tuple[Loc, ...] = ()
        self.returned: e.Entity | None = None
        self.calls = [0]
        """Number of functions that were inlined in the kernel, shared by its checkers."""
        self.known: dict[Any, tuple[e.Entity, Any]] = {}
        """Results of this function's calls by their arguments, with the objects whose ids the keys
        contain."""

    def kernel(self) -> typed_tree.TypedKernel:
        params: list[TensorRef | Var] = []
        for p in self.definition.params:
            made = self.param(p)
            self.env[p.name] = (
                made if isinstance(made, (TensorRef, e.Poison)) else read(made, p.loc)
            )
            if not isinstance(made, e.Poison):
                params.append(made)
        body = self.block(self.definition.body)
        if not len(self.report) and not _stores(body):
            message = f"WS0138 kernel `{self.definition.name}` stores nothing"
            hint = "assign to a tile of a tensor parameter: C[m, n] = x"
            self.report.error(message, self.definition.loc, hint)
        return typed_tree.TypedKernel(
            self.definition.name, tuple(params), body, self.definition.loc
        )

    def param(self, p: s.Param) -> TensorRef | Var | e.Poison:
        hint = f"write {p.name}: bf16[M, K], or {p.name}: f32"
        if p.annotation is None:
            return self.report.error(f"WS0139 parameter `{p.name}` has no type", p.loc, hint)
        base = p.annotation.base if isinstance(p.annotation, s.Subscript) else p.annotation
        entries = p.annotation.entries if isinstance(p.annotation, s.Subscript) else ()
        # First, so that an error does not cause others about uses of the dimensions.
        found = [self.dimension(entry) for entry in entries]
        dims = [d for d in found if not isinstance(d, e.Poison)]
        self.dims.update(d for d in dims if isinstance(d, str))
        if isinstance(base, s.Name) and self.scope.find(base.name, base) is None:
            hint = meant(base.name) or did_you_mean(base.name, DTYPES)
            return self.unknown(base, f"WS0140 `{base.name}` is not an element type", hint)
        kind = self.entity(base)
        if isinstance(kind, e.Poison):
            return kind
        if not isinstance(kind, e.TypeName):
            return self.expected("an element type", base.loc, hint)
        if not isinstance(p.annotation, s.Subscript):
            return Var(p.name, Tile(kind.dtype))
        if len(dims) != len(found):
            return e.POISON
        last = found[-1] if found else 0
        if kind.dtype.bits == 4 and isinstance(last, int) and last % 2:
            message = f"WS0141 rows of {last} {kind.dtype} elements end within a byte"
            hint = f"make the last dimension of a 4-bit tensor even: {last + 1}"
            return self.report.error(message, p.annotation.entries[-1].loc, hint)
        return TensorRef(p.name, Tensor(kind.dtype, tuple(dims)))

    def dimension(self, node: s.Expr | s.Colon) -> str | int | e.Poison:
        """Return a dimension's name, introduced here if it is new, or a fixed size."""
        size = node.value if isinstance(node, s.Number) else None
        if isinstance(node, s.Name):
            found = self.scope.find(node.name, node)
            if isinstance(found, e.DimName):
                return found.name
            if isinstance(found, e.Literal):
                size = found.value
            is_kernel = node.name in self.scope.module.definitions
            if found is None or is_kernel or isinstance(found, (e.Builtin, e.FunctionRef)):
                self.scope.module.dims[node.name] = node.name
                return node.name
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 1 << 31:
            return size
        meant = dict.fromkeys(sorted(used(node)))
        self.dims.update(meant)  # avoids errors about their uses
        self.scope.module.dims.update((name, name) for name in meant)
        dimension = "the name of a dimension, or its size from 1 to 2147483647"
        return self.expected(dimension, node.loc, "write bf16[M, 64], for example")

    # Blocks

    def block(self, body: Body) -> tuple[typed_tree.Statement, ...]:
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
                nothing = isinstance(found, e.Several) and not found.items
                if not (nothing or isinstance(found, e.Poison)):
                    hint = "assign it to a name, or store it to a tensor"
                    self.report.error("WS0142 this statement has no effect", node.loc, hint)
            case s.Return():
                self.return_(node)

    def assign(self, node: s.Assign) -> None:
        if len(node.targets) == 1:
            self.bind(node.targets[0], self.entity(node.value), node.value.loc)
            return
        if isinstance(node.value, s.TupleExpr):
            found: Sequence[e.Entity] = [self.entity(item) for item in node.value.items]
            locs = [item.loc for item in node.value.items]
        else:
            several = self.entity(node.value)
            found = several.items if isinstance(several, e.Several) else [several]
            if isinstance(several, e.Poison):
                found = [e.POISON] * len(node.targets)
            locs = [node.value.loc] * len(found)
        if len(found) != len(node.targets):
            given, names = counted(len(found), "value"), counted(len(node.targets), "name")
            message = f"WS0143 {given} cannot be assigned to {names}"
            self.report.error(message, node.loc, "write one name per value")
            found, locs = [e.POISON] * len(node.targets), [node.loc] * len(node.targets)
        for target, entity, loc in zip(node.targets, found, locs, strict=True):
            self.bind(target, entity, loc)

    def bind(self, target: s.Expr, entity: e.Entity, loc: Loc) -> None:
        if isinstance(target, s.Subscript):
            self.store(target, entity, loc, accumulate=False)
        elif isinstance(target, s.Name) and not self.is_tensor(target):
            self.env[target.name] = self.bound_once(target.name, entity, loc)

    def is_tensor(self, target: s.Name) -> bool:
        """A tensor parameter's name cannot be given to another value."""
        if not isinstance(self.env.get(target.name), TensorRef):
            return False
        message = f"WS0144 tensor parameter `{target.name}` cannot be assigned to"
        self.report.error(message, target.loc, f"store to a tile of it: {target.name}[…] = x")
        return True

    def bound_once(self, name: str, entity: e.Entity, loc: Loc) -> e.Entity:
        """Bind a computed entity to a name, so that it is computed once."""
        before = self.env.get(name)
        entity = self.as_value(entity, loc)
        if isinstance(entity, (e.Literal, e.Poison)):
            return entity
        if isinstance(entity, typed_tree.Map) and isinstance(before, typed_tree.Ref):
            axes = before.type.axes
            if set(axes) == set(entity.type.axes):
                entity = self.ops.in_order(entity, axes)
        return read(self.let(name, entity), loc)

    def augmented(self, node: s.Augmented) -> None:
        if isinstance(node.target, s.Subscript):
            if node.op != "+":
                element, value = node.target.loc.written, in_brackets(node.value.loc.written)
                instead = f" = {element} {node.op} {value}" if node.op != "-" else f" += -{value}"
                hint = f"only `+=` adds to global memory: write `{element}{instead}`"
                message = f"WS0145 `{node.op}=` cannot update a tensor"
                self.report.error(message, node.op_loc, hint)
                return
            self.store(node.target, self.entity(node.value), node.value.loc, accumulate=True)
        elif isinstance(node.target, s.Name) and not self.is_tensor(node.target):
            whole = s.Binary(node.op, node.target, node.value, loc=node.loc, op_loc=node.op_loc)
            self.env[node.target.name] = self.bound_once(
                node.target.name, self.entity(whole), node.loc
            )

    def store(self, target: s.Subscript, entity: e.Entity, loc: Loc, *, accumulate: bool) -> None:
        tensor = self.entity(target.base)
        value = self.as_value(entity, loc)
        if isinstance(tensor, e.Poison) or isinstance(value, e.Poison):
            return
        if not isinstance(tensor, TensorRef):
            self.expected("a tensor parameter", target.base.loc, "declare it, as in C: f32[M, N]")
            return
        index = self.index(tensor, target)
        if isinstance(index, e.Poison):
            return
        if isinstance(value, e.Literal):
            made = self.ops.constant(value, tensor.type.dtype, value.loc)
            if isinstance(made, e.Poison):
                return
            value = made
        known = {a for x in index for a in ([x.name] if isinstance(x, AxisRef) else x.type.axes)}
        missing = [a for a in value.type.axes if a not in known]
        if missing:
            message = f"WS0146 the value has the axis `{missing[0]}`, which the index lacks"
            self.report.error(message, loc, f"reduce it first: sum(x, over={missing[0]})")
            return
        kinds = (value.type.dtype, tensor.type.dtype)
        if BOOL in kinds and kinds[0] != kinds[1]:
            hint = f"write cast(x, {kinds[1]})" if kinds[0] == BOOL else "compare it, as in x != 0"
            self.report.error(f"WS0147 {kinds[0]} cannot be stored as {kinds[1]}", loc, hint)
            return
        if accumulate and kinds[1] == BOOL:
            message = "WS0148 `+=` cannot add to a bool tensor"
            self.report.error(message, loc, "add to an integer tensor")
            return
        self.out.append(typed_tree.Store(tensor, index, value, accumulate, target.loc))

    # Branches

    def branch(self, node: s.If) -> None:
        given = self.value(node.cond)
        cond = self.ops.value(given)
        known = given.value if isinstance(given, e.Literal) else None
        was_dead = self.dead
        if not isinstance(cond, e.Poison) and (cond.type.axes or cond.type.dtype != BOOL):
            choose = "choose by element: where(cond, a, b)"
            hint = choose if cond.type.axes else "compare it, as in x != 0"
            self.wrong_type("the `if` condition", "a bool scalar", cond.type, node.cond.loc, hint)
            cond = e.POISON
        outer = dict(self.env)
        self.dead = was_dead or known is False
        then = self.block(node.then)
        self.dead = was_dead or known is True
        after_then, self.env = self.env, dict(outer)
        orelse = self.block(node.orelse)
        self.dead = was_dead
        after_else, self.env = self.env, dict(outer)
        merged: list[typed_tree.Merged] = []
        for name in {**assigned(node.then), **assigned(node.orelse)}:
            if name not in self.live.after[id(node)]:
                continue
            if name not in after_then or name not in after_else:
                self.lost[name] = f"set it before the if: only one branch sets `{name}`"
                continue
            self.env[name] = self.merge(name, after_then[name], after_else[name], node, merged)
        if not isinstance(cond, e.Poison):
            self.out.append(typed_tree.If(cond, then, orelse, tuple(merged), node.loc))

    def merge(
        self, name: str, a: e.Entity, b: e.Entity, node: s.If, merged: list[typed_tree.Merged]
    ) -> e.Entity:
        if a == b and not isinstance(a, typed_tree.Ref):
            return a
        x, y = self.as_value(a, node.loc), self.as_value(b, node.loc)
        if isinstance(x, e.Poison) or isinstance(y, e.Poison):
            return e.POISON
        if (
            not isinstance(x, e.Literal)
            and not isinstance(y, e.Literal)
            and (x.type.dtype != y.type.dtype or set(x.type.axes) != set(y.type.axes))
        ):
            hint = "use the same axes and the same element type in both branches"
            return self._differ(name, x.type, y.type, node.loc, hint)
        found = self.ops.common([x, y], node.loc, f"`{name}`")
        if isinstance(found, e.Poison):
            return e.POISON
        p, q = found[0][0], found[0][1]
        if set(p.type.axes) == set(q.type.axes):
            q = self.ops.in_order(q, p.type.axes)
        if p.type != q.type:
            hint = "write zeros(…) or full(…) in place of the number"
            return self._differ(name, p.type, q.type, node.loc, hint)
        result = Var(name, p.type)
        merged.append(typed_tree.Merged(p, q, result))
        return read(result, node.loc)

    def _differ(self, name: str, a: Tile, b: Tile, loc: Loc, hint: str) -> e.Poison:
        message = f"WS0149 `{name}` is {a} in one branch and {b} in the other"
        return self.report.error(message, loc, hint)

    # Functions

    def return_(self, node: s.Return) -> None:
        if isinstance(node.value, s.TupleExpr):
            items = tuple(self.value(item) for item in node.value.items)
            self.returned = e.Several(items, self.definition.name)
        elif node.value is not None:
            self.returned = self.entity(node.value)

    def word(self, name: str, node: s.Call) -> e.Entity:
        return call_word(self, name, node)

    def inline(self, ref: e.FunctionRef, args: list[e.Argument], loc: Loc) -> e.Entity:
        definition = ref.definition
        if definition.loc in self.calling:
            message = f"WS0150 function `{definition.name}` calls itself"
            return self.report.error(message, loc, "use a loop in place of the recursion")
        if len(args) != (count := len(definition.params)):
            call = f"{definition.name}({', '.join(p.name for p in definition.params)})"
            return self.miscounted(definition.name, count, len(args), loc, f"call it as {call}")
        same = _same_call(definition, args, id(self.out)) if self.calling else None
        if same is not None and same in self.known:
            return self.known[same][0]
        self.calls[0] += 1
        if self.calls[0] > MAX_CALLS:
            if self.calls[0] > MAX_CALLS + 1:
                return e.POISON
            return self.report.error(
                f"WS0151 this is call {self.calls[0]} of a function; the limit is {MAX_CALLS}",
                loc,
                "assign a result that is used twice to a name and pass that, or use a loop",
            )
        inner = Checker(self.report, ref.scope, definition)
        inner.calls = self.calls
        inner.axes, inner.dims, inner.out = self.axes, self.dims, self.out
        inner.dead = self.dead
        inner.calling = (*self.calling, definition.loc)
        with self.report.inside(definition.name, loc):
            for param, arg in zip(definition.params, args, strict=True):
                entity = arg.entity
                keep = isinstance(entity, (typed_tree.Typed, e.Literal, e.DimName))
                if keep and not isinstance(entity, e.Literal):
                    value = self.as_value(entity, arg.loc)
                    assert not isinstance(value, (e.Literal, e.Poison))
                    entity = read(inner.let(param.name, value), arg.loc)
                inner.env[param.name] = entity
            for statement in definition.body:
                inner.statement(statement)
        returned = inner.returned or e.Several((), definition.name)
        if same is not None:
            if isinstance(returned, typed_tree.Typed) and not isinstance(returned, typed_tree.Ref):
                returned = read(self.let(definition.name, returned), loc)
            self.known[same] = returned, (self.out, args)
        return returned


def _same_call(definition: s.Definition, args: Sequence[e.Argument], block: int) -> Hashable | None:
    """Return a key that is equal for two calls in one block with equal variables and numbers; None
    for other arguments. It contains ids of variables: the cache references the arguments, too.
    Without it n functions that each call the next one twice would be inlined 2^n times.
    """
    key: list[Hashable] = [definition.loc, block]
    for arg in args:
        match arg.entity:
            case typed_tree.Ref():
                key.append(id(arg.entity.var))
            case e.Literal():
                key.append((type(arg.entity.value), repr(arg.entity.value)))
            case _:
                return None
    return tuple(key)


def _stores(body: Sequence[typed_tree.Statement]) -> bool:
    return any(
        isinstance(x, typed_tree.Store)
        or (isinstance(x, (typed_tree.ForTiles, typed_tree.ForEach)) and _stores(x.body))
        or (isinstance(x, typed_tree.If) and (_stores(x.then) or _stores(x.orelse)))
        for x in body
    )
