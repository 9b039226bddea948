"""Loops: the dimensions that they traverse, and the variables that they carry."""

from wsdsl.diagnostics import Loc, counted
from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed_tree
from wsdsl.frontend.entities import POISON, Builtin, DimName, Literal, Poison, Scope
from wsdsl.frontend.expressions import Expressions
from wsdsl.frontend.liveness import Liveness, assigned, loop_variables
from wsdsl.frontend.source import Report
from wsdsl.frontend.typed_tree import AxisRef, TensorRef, Var
from wsdsl.ir.types import I32, Tile
from wsdsl.record import record

Body = tuple[s.Statement, ...]
WALKED = "loop over a whole dimension, for k in tiles(K); mask the rest: where(index(k) < 4, x, 0)"


def read(var: Var, loc: Loc) -> typed_tree.Ref:
    return typed_tree.Ref(var, type=var.type, loc=loc)


@record
class LoopRange:
    """One variable of a loop and its dimension, traversed whole or from `start` to `stop`."""

    target: s.Name
    dim: str
    word: str
    start: typed_tree.Expr | None = None
    stop: typed_tree.Expr | None = None
    by: int = 0


class Loops(Expressions):
    """Checks loops; `block` checks their bodies."""

    live: Liveness

    def __init__(self, report: Report, scope: Scope) -> None:
        super().__init__(report, scope)
        self.axes: set[str] = set()
        self.variables: set[str] = set()
        """Variables of the loops so far, and of all loops in them."""

    def block(self, body: Body) -> tuple[typed_tree.Statement, ...]:
        raise NotImplementedError

    def loop(self, node: s.For) -> None:
        self.variables |= loop_variables((node,))
        walked = self.header(node)
        if walked is not None:
            self.nest(node, walked)
            return
        # The body is checked despite an error in the header.
        outer = dict(self.env)
        for name in (*assigned(node.body), *(t.name for t in node.targets)):
            self.env[name] = POISON
        self.block(node.body)
        self.env = outer | dict.fromkeys(assigned(node.body), POISON)

    def header(self, node: s.For) -> list[LoopRange] | None:
        """Return the range of each variable, or None after an error."""
        source = node.source
        word = self.entity(source.function) if isinstance(source, s.Call) else None
        if isinstance(word, Poison):
            return None
        if (
            not isinstance(source, s.Call)
            or not isinstance(word, Builtin)
            or word.name not in ("tiles", "each")
        ):
            hint = "write `for m, n in tiles(M, N):`, or `for b in each(B):`"
            self.expected("tiles(…) or each(…)", source.loc, hint)
            return None
        for i, target in enumerate(node.targets):
            if target.name in [t.name for t in node.targets[:i]]:
                message = f"WS0152 loop variable `{target.name}` occurs twice"
                self.report.error(message, target.loc, "rename one of them")
                return None
        allowed = ("of", "by") if word.name == "tiles" else ()
        wrong = [k for k in source.keywords if k.name not in allowed]
        if wrong:
            self.no_keyword(word.name, wrong[0], WALKED)
            return None
        named = {k.name: k.value for k in source.keywords}
        if "of" in named:
            return self.part_of_a_dimension(node, source, named)
        if len(source.args) != len(node.targets):
            given, names = len(source.args), [t.name for t in node.targets]
            part = word.name == "tiles" and (given, len(names)) == (2, 1)
            several = f"{counted(len(names), 'variable')} for {counted(given, 'dimension')}"
            self.report.error(
                f"WS0153 a loop has {several}",
                source.loc,
                WALKED if part else f"write one dimension for each of {', '.join(names)}",
            )
            return None
        dims = [self.loop_dimension(a) for a in source.args]
        found = [d for d in dims if not isinstance(d, Poison)]
        if len(found) != len(dims):
            return None
        if "by" not in named:
            return [LoopRange(t, d, word.name) for t, d in zip(node.targets, found)]
        by = named["by"]
        if len(node.targets) != 1:
            hint = "write a separate loop: for n in tiles(N, by=128):"
            message = f"WS0154 `by` sets the tile size of 1 dimension, not of {len(node.targets)}"
            self.report.error(message, by.loc, hint)
            return None
        size = self.positive(by, "tile", by.loc, "write tiles(N, by=128), for example")
        whole = isinstance(size, Poison)
        return None if whole else [LoopRange(node.targets[0], found[0], word.name, by=size)]

    def loop_dimension(self, node: s.Expr) -> str | Poison:
        known = f"use a dimension of the kernel: {', '.join(sorted(self.dims)) or 'none'}"
        free = isinstance(node, s.Name) and node.name not in {*self.env, *self.local}
        if isinstance(node, s.Name) and free and self.scope.find(node.name, node) is None:
            return self.expected("a dimension", node.loc, known)
        found = self.entity(node)
        if isinstance(found, DimName):
            return found.name
        if isinstance(found, Poison):
            return found
        if isinstance(found, Literal):
            known = f"declare a dimension, as K in `A: bf16[M, K]`, or {known}"
        return self.expected("a dimension", node.loc, known)

    def part_of_a_dimension(
        self, node: s.For, source: s.Call, named: dict[str, s.Expr]
    ) -> list[LoopRange] | None:
        if "by" in named:
            hint = "remove one of them: by=… iterates over a whole dimension"
            self.report.error("WS0155 `by` excludes `of`", named["by"].loc, hint)
            return None
        if len(source.args) != 2 or len(node.targets) != 1:
            message = "WS0156 `of` needs one variable, a start and a stop"
            self.report.error(message, source.loc, "write for m in tiles(start, stop, of=M):")
            return None
        start, stop = (self.bound(arg) for arg in source.args)
        dim = self.loop_dimension(named["of"])
        if isinstance(start, Poison) or isinstance(stop, Poison) or isinstance(dim, Poison):
            return None
        return [LoopRange(node.targets[0], dim, "tiles", start, stop)]

    def bound(self, node: s.Expr) -> typed_tree.Expr | Poison:
        found = self.typed(node)
        if isinstance(found, Poison):
            return found
        if found.type.axes or not found.type.dtype.is_integer:
            hint = "use offset[g] with g from each(G), for example"
            return self.wrong_type("a bound", "an integer scalar", found.type, node.loc, hint)
        return self.ops.cast(found, I32)

    def nest(self, node: s.For, loops: list[LoopRange]) -> None:
        """Nest one loop per variable; names that the body rebinds are carried by all."""
        outer, around = dict(self.env), self.live.around[id(node)]
        names = [name for name in assigned(node.body) if name in around and name in outer]
        carried = [n for n in names if not isinstance(outer[n], TensorRef)]
        levels: list[tuple[AxisRef | Var, dict[str, Var], dict[str, typed_tree.Expr]]] = []
        for walked in loops:
            target = walked.target
            inits: dict[str, typed_tree.Expr] = {}
            args: dict[str, Var] = {}
            for name in carried:
                init = self.ops.value(self.as_value(self.env[name], node.loc))
                if not isinstance(init, Poison):
                    inits[name] = init
                    args[name] = Var(name, init.type)
                    self.env[name] = read(args[name], init.loc)
            if walked.word == "tiles":
                index: AxisRef | Var = AxisRef(
                    self.axis_name(target.name), walked.dim, by=walked.by
                )
                self.env[target.name] = index
            else:
                index = Var(target.name, Tile(I32), counts=walked.dim)
                self.env[target.name] = read(index, target.loc)
            levels.append((index, args, inits))
        body = self.block(node.body)
        last = {n: self.carried_on(n, levels[-1][1][n], node) for n in levels[-1][1]}
        inner = dict(self.env)
        self.env = outer
        variables = [w.target.name for w in loops]
        for name in inner:
            if name in variables:
                self.lost[name] = f"use `{name}` within its loop only"
            elif name not in outer:
                self.lost[name] = f"set it before the loop: only the loop sets `{name}`"
        for (index, args, inits), walked in zip(reversed(levels), reversed(loops)):
            results = {n: Var(n, args[n].type) for n in args if n in last}
            moved = tuple(
                typed_tree.Carried(inits[n], args[n], last[n], results[n]) for n in results
            )
            if isinstance(index, AxisRef):
                made: typed_tree.Statement = typed_tree.ForTiles(
                    index, walked.start, walked.stop, moved, body, node.loc
                )
            else:
                made = typed_tree.ForEach(walked.dim, index, moved, body, node.loc)
            body = (made,)
            last = {n: read(results[n], node.loc) for n in results}
        self.out += body
        for name, value in last.items():
            self.env[name] = value
        for name in names:
            if name not in last:
                self.env[name] = POISON

    def carried_on(self, name: str, arg: Var, node: s.For) -> typed_tree.Expr:
        """Return the value of a carried name at the end of the body."""
        fallback = read(arg, node.loc)
        value = self.as_value(self.env[name], node.loc)
        if isinstance(value, Poison):
            return fallback
        if isinstance(value, Literal):
            made = self.ops.constant(value, arg.type.dtype, value.loc)
            if isinstance(made, Poison) or arg.type.axes:
                self._changed(name, arg, None, value.loc)
                return fallback
            return made
        if value.type.dtype != arg.type.dtype or set(value.type.axes) != set(arg.type.axes):
            self._changed(name, arg, value.type, value.loc)
            return fallback
        return self.ops.in_order(value, arg.type.axes)

    def _changed(self, name: str, arg: Var, now: Tile | None, loc: Loc) -> None:
        """Report a carried name that changes its type; `now`: None for a number without a type."""
        more = [axis for axis in now.axes if axis not in arg.type.axes] if now else []
        if more and arg.type.axes and "@" in loc.text:
            hint = f"apply factors along {more[0]}, over which `@` sums, to one of its operands"
        elif more and arg.type.axes:
            hint = f"reduce the added value: sum(x, over={more[0]})"
        elif now and now.axes:
            hint = f"start with {name} = zeros({now}), or assign {arg.type} in the loop"
        else:
            hint = f"start with the same type, or assign {arg.type} in the loop"
        left = f"leaves it as {now or 'a number'}"
        self.report.error(f"WS0157 `{name}` enters the loop as {arg.type} and {left}", loc, hint)

    def axis_name(self, wish: str) -> str:
        """Return a unique name of a loop's axis; the axis of a whole dimension has the dimension's
        name. `lowering.axes.loop_variable` returns the variable of a numbered axis.
        """
        name, number = wish, 0
        numbered = wish.rpartition("__")[2].isdigit()
        taken = self.axes | {*self.dims} | (self.variables - {wish})
        while name in taken or (numbered and not number):
            number += 1
            name = f"{wish}__{number}"
            self.report.written[name] = wish
        self.axes.add(name)
        return name
