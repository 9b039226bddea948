"""Products at random: of what is loaded, of what threads make, and of other products."""

from __future__ import annotations

from random import Random

from tests.generated.expressions import FLOATS, Axis, Expressions, Local, Scope

PRODUCTS = (
    ("bf16", "bf16"), ("bf16", "bf16"), ("f16", "f16"), ("tf32", "tf32"), ("f8e4m3", "f8e4m3"),
    ("f8e5m2", "f8e4m3"), ("i8", "i8"), ("u8", "i8"),
)  # fmt: skip
NARROW = ("bf16", "f16")
"""Of operands that threads make."""


class Products(Expressions):
    """Writes lines, and keeps what was stored and walked."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.lines: list[str] = []
        self.indent = 1
        self.stored: list[str] = []
        self.walked: set[str] = set()

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def enter(
        self,
        word: str,
        loops: tuple[tuple[str, str], ...],
        scope: Scope,
        by: int | None = None,
        part: str = "",
    ) -> Scope:
        """One loop over all of them, or one in the other. `part`: of a dimension, where."""
        groups = [loops] if by is None and self.chance(0.8) else [(one,) for one in loops]
        for group in groups:
            names, dims = (", ".join(held) for held in zip(*group, strict=True))
            self.walked |= {dim for _, dim in group}
            given = f"{part}, of={dims}" if part else f"{dims}, by={by}" if by else dims
            self.line(f"for {names} in {word}({given}):")
            self.indent += 1
        if word == "each":
            return scope.inside(scalars=loops)
        return scope.inside(axes=tuple(Axis(*one, by is not None) for one in loops))

    def leave(self, indent: int) -> None:
        self.indent = indent

    def scalar_condition(self, scope: Scope) -> str:
        kind = self.rng.random()
        if kind < 0.3:
            dim = self.rng.choice("MNK")
            self.walked.add(dim)
            return f"{dim} > {self.rng.choice((1, 16, 64))}"
        if kind < 0.35 and scope.axes:
            return f"end({self.rng.choice(scope.axes).name}) > {self.rng.choice((1, 32))}"
        if kind < 0.5:
            return f"{self.scalar('i32')} {self.rng.choice(('>', '<', '=='))} 2"
        if kind < 0.8 and scope.scalars:
            name, dim = self.rng.choice(scope.scalars)
            flags = self.param(f"i32[{dim}]", "rows")
            return self.rng.choice((f"{name} > 0", f"{flags}[{name}] > 1", f"{name} % 2 == 0"))
        return f"{self.scalar('f32')} > 0.5"

    def product(
        self, acc: Local, types: tuple[str, str], walked: Axis | None, scope: Scope
    ) -> None:
        shared = walked or Axis("D", "D")
        if self.chance(0.05):
            shared = Axis("D", "D")
        sides: list[str] = []
        eights = all(t.startswith("f8") for t in types)
        wide = self.seldom.choice(NARROW) if eights and self.rarely(0.4) else ""
        for dtype, free in zip(types, acc.axes, strict=True):
            order = [free, shared]
            if (dtype in ("bf16", "f16") and self.chance(0.3)) or (wide and self.rarely(0.4)):
                order.reverse()
            entries = [(a.entry, a.dim) for a in order]
            if self.chance(0.3):
                entries.insert(self.rng.choice((0, 0, 0, 1)), self.scalar_entry(scope))
            name = self.param(f"{dtype}[{', '.join(d for _, d in entries)}]")
            side = f"{name}[{', '.join(e for e, _ in entries)}]"
            side = f"cast({side}, {wide})" if wide else side
            if self.chance(0.1) and dtype in FLOATS:
                by = f"index({shared.name}) // 128"
                # Finite, as below.
                rows = f"{self.param(f'{dtype}[{free.dim}]', 'scale')}[{free.name}]"
                blocks = f"{self.param(f'{dtype}[{shared.dim}B]', 'scale')}[{by}]"
                factor = self.rng.choice((rows, "2.0", blocks))
                side = f"({side} * {factor})"
                side = f"cast({side}, {wide})" if wide else side
            if dtype in NARROW and self.chance(0.2):
                side = self.computed(dtype, (free, shared), side, scope)
            if self.chance(0.2):
                held = self.fresh("a")
                self.line(f"{held} = {side}")
                side = held
            sides.append(side)
        made = " @ ".join(sides if self.chance(0.8) else reversed(sides))
        if self.chance(0.15):
            # Finite: how many sums an infinite one is multiplied by is the schedule's choice.
            scale = self.param(f"{acc.dtype}[{', '.join(a.dim for a in acc.axes)}]", "scale")
            made = f"({made}) * {scale}[{', '.join(a.name for a in acc.axes)}]"
        self.add(acc.name, made)

    def computed(self, dtype: str, axes: tuple[Axis, Axis], side: str, scope: Scope) -> str:
        """An operand that threads make, perhaps of one that is loaded."""
        kind = self.rng.random()
        if kind < 0.25:
            of = self.rng.choice(("i8", "u8", "f8e4m3", "f32", "bf16", "i32"))
            return f"cast({self.load(of, axes, scope, must=True)}, {dtype})"
        if kind < 0.45:
            op, other = self.rng.choice("+-*"), self.value(dtype, axes, scope, 1)
            # Finite, as above.
            other = f"max(min({other}, 40.0), -40.0)" if op == "*" else other
            return f"{self.rng.choice(('', 'relu', 'abs'))}({side} {op} {other})"
        if kind < 0.6:
            at = self.rng.choice([f"index({a.name})" for a in axes if a.name != a.dim])
            test = f"{at} {self.rng.choice(('<', '>='))} {self.rng.choice((1, 5, 40, 'alphas'))}"
            test = test.replace("alphas", self.scalar("i32"))
            return f"where({test}, {side}, {self.value(dtype, axes, scope, 0)})"
        if kind < 0.8:
            held = self.fresh("a")
            self.line(f"{held} = {side} + {self.value(dtype, axes, scope, 1)}")
            self.line(f"if {self.scalar_condition(scope)}:")
            changed = self.value(dtype, axes, scope, 1)
            self.line(f"    {held} = {held} {self.rng.choice('+-*')} {changed}")
            return held
        inner = ", ".join(a.name for a in axes)
        return f"(full({dtype}[{inner}], 0.0) + {self.value(dtype, axes, scope, 3)})"

    def chain(self, scope: Scope) -> None:
        """Products of products: with sums that are scaled anew as their largest term is known, and
        without."""
        indent, pairs = self.indent, [a for a in scope.axes if a.name != a.dim]
        used = {a.name for a in scope.axes}
        rows = self.rng.choice(pairs)
        others = [a for a in pairs if a != rows] * 2 + [Axis("D", "D")]
        columns = self.rng.choice(others)
        free = [name for name in "lns" if name not in used]
        walked = Axis(name := self.rng.choice(free), name.upper())
        dtype, flash = self.rng.choice(NARROW), self.chance(0.4)
        acc, top, total = self.fresh("acc"), self.fresh("acc"), self.fresh("acc")
        self.line(f"{acc} = zeros(f32[{rows.name}, {columns.name}])")
        if flash:
            self.line(f"{top}, {total} = full(f32[{rows.name}], -inf), zeros(f32[{rows.name}])")
        inside = self.enter("tiles", ((walked.name, walked.dim),), scope)
        names = [self.fresh("s") for _ in range(self.rng.choice((1, 1, 2)))]
        k = Axis("k", "K") if self.chance(0.5) else Axis("D", "D")
        for name in names:
            if k.name == "k":
                self.line(f"{name} = zeros(f32[{rows.name}, {walked.name}])")
        if k.name == "k":
            deep = self.enter("tiles", (("k", "K"),), inside)
        else:
            deep = inside
        for name in names:
            made = " @ ".join(
                self.operand(dtype, (free, k), deep, self.chance(0.1)) for free in (rows, walked)
            )
            self.line(f"{name} {'+=' if k.name == 'k' else '='} {made}")
        self.indent = indent + 1
        value = Local(self.fresh("x"), "f32", (rows, walked))
        factor = self.rng.choice(("0.25", self.scalar("f32")))
        self.line(f"{value.name} = {' * '.join(names)} * {factor}")
        if self.chance(0.3):
            test = f"index({walked.name}) <= index({rows.name})"
            self.line(f"{value.name} = where({test}, {value.name}, {self.rng.choice('01')}.0)")
        if self.chance(0.5):
            # One number for each tile.
            blocks = self.param(f"f32[{walked.dim}B]", "scale")
            op, by = self.rng.choice("*+"), self.rng.choice((64, 64, 128))
            self.line(f"{value.name} = {value.name} {op} {blocks}[index({walked.name}) // {by}]")
        part, less = value.name, ""
        if flash:
            self.line(f"{part} = max(min({part}, 40.0), -40.0)")
            new, part, less = (self.fresh(x) for x in ("top", "p", "x"))
            fn = self.rng.choice(("exp", "exp2"))
            self.line(f"{new} = max({top}, max({value.name}, over={walked.name}))")
            self.line(f"{part}, {less} = {fn}({value.name} - {new}), {fn}({top} - {new})")
            self.line(f"{total} = {total} * {less} + sum({part}, over={walked.name})")
            self.line(f"{top} = {new}")
        elif self.chance(0.5):
            part = f"{self.rng.choice(('relu', 'abs', 'tanh', 'silu'))}({part})"
        # Finite where it is scaled: an infinite one shows which factors are too small to be told
        # from 0 before the largest is known.
        right = self.operand(
            dtype,
            (columns, walked),
            inside,
            not flash and self.chance(0.15),
            "scale" * flash or "X",
        )
        made = f"cast({part}, {dtype}) @ {right}"
        self.line(f"{acc} = {acc} * {less} + {made}" if flash else f"{acc} += {made}")
        self.leave(indent)
        if columns.name == columns.dim:
            out = self.fresh("Y")
            entries = [(a.entry, a.dim) for a in scope.axes if a in (rows, columns)]
            entries += [(columns.entry, columns.dim), *scope.scalars]
            entries += [(a.entry, a.dim) for a in pairs if a != rows]
            if len(pairs) == 1:
                self.params[out] = f"f32[{', '.join(d for _, d in entries)}]"
                value_ = f"{acc} / {total}" if flash else acc
                self.line(f"{out}[{', '.join(e for e, _ in entries)}] = {value_}")
                self.stored.append(out)
            return
        scope.locals.append(Local(acc, "f32", (rows, columns)))

    def operand(
        self, dtype: str, axes: tuple[Axis, Axis], scope: Scope, computed: bool, prefix: str = "X"
    ) -> str:
        order = list(axes)
        if self.chance(0.4):
            order.reverse()
        entries = [(a.entry, a.dim) for a in order]
        if scope.scalars and self.chance(0.3):
            entries.insert(0, self.scalar_entry(scope))
        name = self.param(f"{dtype}[{', '.join(d for _, d in entries)}]", prefix)
        side = f"{name}[{', '.join(e for e, _ in entries)}]"
        return self.computed(dtype, axes, side, scope) if computed else side

    def add(self, name: str, value: str) -> None:
        form = self.rng.choice(
            ("{0} += {1}", "{0} += {1}", "{0} += {1}", "{0} = {0} + {1}", "{0} -= {1}")
        )
        self.line(form.format(name, value))
