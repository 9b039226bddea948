"""Loops: what they walk, and which variables they carry from one iteration to the next."""

from __future__ import annotations

from wsdsl.diagnostics import Loc
from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed
from wsdsl.frontend.entities import POISON, Builtin, DimName, Literal, Poison
from wsdsl.frontend.expressions import Expressions
from wsdsl.frontend.liveness import Liveness, assigned
from wsdsl.frontend.report import Report
from wsdsl.frontend.scope import Scope
from wsdsl.frontend.typed import AxisRef, TensorRef, Var
from wsdsl.ir.types import I32, Tile

Body = tuple[s.Statement, ...]
Bound = typed.Expr | Poison | None


def read(var: Var, loc: Loc) -> typed.Ref:
    return typed.Ref(var, type=var.type, loc=loc)


class Loops(Expressions):
    """Checks loops; `block` checks what stands in them."""

    live: Liveness

    def __init__(self, report: Report, scope: Scope) -> None:
        super().__init__(report, scope)
        self.axes: set[str] = set()

    def block(self, body: Body) -> tuple[typed.Statement, ...]:
        raise NotImplementedError

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
        loops: list[tuple[s.Name, str | Poison, Bound, Bound]],
        word: str,
    ) -> None:
        """One loop a variable, each in the one before; what the body rebinds goes through all."""
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
                    self.env[name] = read(args[name], init.loc)
            if word == "tiles":
                index: AxisRef | Var = AxisRef(self.axis_name(target.name), dim)
                self.env[target.name] = index
            else:
                index = Var(target.name, Tile(I32))
                self.env[target.name] = read(index, target.loc)
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
            last = {n: read(results[n], node.loc) for n in results}
        self.out += body
        for name, value in last.items():
            self.env[name] = value
        for name in names:
            if name not in last:
                self.env[name] = POISON

    def carried_on(self, name: str, arg: Var, node: s.For) -> typed.Expr:
        """What a carried name stands for at the end of the body."""
        fallback = read(arg, node.loc)
        value = self.as_value(self.env[name], node.loc)
        if isinstance(value, Poison):
            return fallback
        if isinstance(value, Literal):
            made = self.ops.constant(value, arg.type.dtype, value.loc)
            if isinstance(made, Poison) or arg.type.axes:
                self._changed(name, arg, "a number", value.loc)
                return fallback
            return made
        if (value.type != arg.type and set(value.type.axes) != set(arg.type.axes)) or (
            value.type.dtype != arg.type.dtype
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
