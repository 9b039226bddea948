"""Kernels at random: nests of loops, products, reductions and stores around expressions."""

from __future__ import annotations

import re
from random import Random

from tests.generated.expressions import FLOATS, VALUES, Axis, Local, Scope
from tests.generated.products import PRODUCTS, Products

OUTPUTS = ("f32",) * 6 + ("bf16",) * 4 + ("f16", "f8e4m3", "i32", "i8", "u8", "u16", "bool")
ADDED = ("f32", "f32", "f16", "bf16", "i32", "u32")


def program(seed: int) -> str:
    """The text of a kernel, and of the functions that it calls."""
    return _Program(Random(seed)).text()


class _Program(Products):
    def text(self) -> str:
        self.nest()
        for dim in sorted(self.walked - set(re.findall(r"\w+", " ".join(self.params.values())))):
            # Its size has to come from somewhere.
            self.params[self.fresh("Z")] = f"f32[{dim}]"
        kinds = ", ".join(f"{n}: {k}" for n, k in self.params.items())
        body = "\n".join(self.lines)
        return "\n\n".join((*self.functions, f"@kernel\ndef made({kinds}):\n{body}\n"))

    # Loops ----------------------------------------------------------------------------------------

    def nest(self) -> None:
        scope = Scope()
        if self.chance(0.3):
            scope = self.enter(
                "each", (("b", "B"), ("h", "H"))[: self.rng.choice((1, 1, 2))], scope
            )
        shape = self.rng.random()
        if shape < 0.55:
            scope = self.enter("tiles", (("m", "M"), ("n", "N")), scope)
        elif shape < 0.8:
            scope = self.enter(
                "tiles", (("m", "M"),), scope, self.size() if self.chance(0.1) else None
            )
        elif shape < 0.9:
            scope = self.enter("tiles", (("m", "M"),), scope)
            scope = self.enter("tiles", (("n", "N"),), scope, self.rng.choice((None, self.size())))
        elif not scope.scalars:
            scope = self.enter("each", (("b", "B"),), scope)
        self.block(scope, scope, self.rng.randint(1, 4))
        before = len(self.stored)
        if not self.stored or self.chance(0.7):
            self.store(scope, scope)
        assert len(self.stored) > before or self.stored

    def size(self) -> int:
        """That a loop gives its tiles itself; not all of them fit the tensor cores."""
        return self.rng.choice((64, 64, 128, 128, 192, 16, 24, 72, 5))

    # Statements -----------------------------------------------------------------------------------

    def block(self, scope: Scope, outer: Scope, count: int, depth: int = 2) -> None:
        """`outer` is the scope of the output space, by which every store has to be placed."""
        for _ in range(count):
            kind = self.rng.random()
            if kind < 0.05 and depth == 2 and any(a.name != a.dim for a in scope.axes):
                self.chain(scope)
            elif kind < 0.2:
                self.local(scope)
            elif kind < 0.7 and depth:
                self.sums(scope, depth)
            elif kind < 0.8:
                self.store(scope, outer)
            elif kind < 0.9:
                self.choice(scope, outer)
            elif depth == 2 and scope is outer:
                self.inner_loop(scope, outer, depth)
            else:
                self.local(scope)

    def local(self, scope: Scope) -> None:
        dtype, name = self.rng.choice(VALUES), self.fresh("x")
        axes = tuple(a for a in scope.axes if self.chance(0.8))
        # The tensor cores' tile has two.
        axes = axes if self.chance(0.1) else axes[-2:]
        # With a new tile added, the axes are all of these.
        inner = ", ".join(a.name for a in axes)
        zero = {"bool": "False"}.get(dtype, "0.0" if dtype in FLOATS else "0")
        op = "|" if dtype == "bool" else "+"
        if len(axes) > 1 and dtype in ("f32", "i32") and self.chance(0.1):
            # A reduction over an axis of a parallel loop is one over all of it.
            fn, over = self.rng.choice(("sum", "max", "min")), self.rng.choice(axes)
            value = self.value(dtype, axes, scope, self.rng.randint(1, 3))
            self.line(f"{name} = {fn}(full({dtype}[{inner}], {zero}) + {value}, over={over.name})")
            scope.locals.append(Local(name, dtype, tuple(a for a in axes if a != over)))
            return
        start = f"full({dtype}[{inner}], {zero})" if inner else f"full({dtype}, {zero})"
        value = self.value(dtype, axes, scope, self.rng.randint(1, 4))
        self.line(f"{name} = {start} {op} {value}")
        scope.locals.append(Local(name, dtype, axes))

    def sums(self, scope: Scope, depth: int) -> None:
        """Accumulators, and a loop that adds to them."""
        indent, word = self.indent, "tiles"
        found: list[Local] = []
        pairs = [a for a in scope.axes if a.name != a.dim]
        used = {a.name for a in scope.axes} | {n for n, _ in scope.scalars}
        free = [v for v in (("k", "K"), ("l", "L"), ("k", "K"), ("n", "N")) if v[0] not in used]
        name, dim = self.rng.choice(free)
        if self.chance(0.15) and "e" not in used:
            word, name, dim = "each", "e", "E"
        weights = dict(product=6 if len(pairs) > 1 else 0, sum=2, max=1, softmax=0.5, other=0.3)
        number = self.rng.choice((1, 1, 1, 2, 2, 3))
        plans = self.rng.choices([*weights], [*weights.values()], k=number)
        types: list[tuple[str, str]] = []
        for plan in plans:
            types.append(self.rng.choice(PRODUCTS))
            whole = plan == "product" and types[-1][0] in ("i8", "u8")
            dtype = "i32" if whole else "f32"
            axes = tuple(self.rng.sample(pairs, 2)) if plan == "product" else tuple(pairs[:1])
            start = "-inf" if plan in ("max", "softmax") else "0" if whole else "0.0"
            inner = ", ".join(a.name for a in axes)
            acc = Local(self.fresh("acc"), dtype, axes)
            kind = f"{dtype}[{inner}]" if inner else dtype
            self.line(f"{acc.name} = full({kind}, {start})")
            found.append(acc)
            if plan == "softmax":
                found.append(Local(self.fresh("acc"), "f32", axes))
                self.line(f"{found[-1].name} = full({kind}, 0.0)")
        by = self.rng.choice((16, 32, 64)) if word == "tiles" and self.chance(0.1) else None
        part = self.part(dim, scope) if word == "tiles" and not by and self.chance(0.05) else ""
        odd = word == "tiles" and not by and not part and self.rarely(0.08)
        part = f"{self.seldom.choice(('1', '3', self.scalar('i32')))}, {dim}" if odd else part
        inside = self.enter(word, ((name, dim),), scope, by, part)
        walked = Axis(name, dim, by is not None) if word == "tiles" else None
        if walked and len(pairs) > 1 and depth > 1 and self.chance(0.1):
            # A loop in the loop: products with all that is walked outside of it.
            inside = self.enter("each", (("e", "E"),), inside) if "e" not in used else inside
        if self.chance(0.2):
            self.local(inside)
        if self.chance(0.1):
            self.line(f"if {self.scalar_condition(inside)}:")
            self.indent += 1
        held = iter(found)
        for plan, types_ in zip(plans, types, strict=True):
            acc = next(held)
            if plan == "product":
                self.product(acc, types_, walked, inside)
                continue
            axes = (*acc.axes, walked) if walked else acc.axes
            x = self.value("f32", axes, inside, self.rng.randint(0, 3))
            if odd:
                # Elements of 4 bits from amid a byte on.
                x += f" + cast({self.load(self.seldom.choice(('i4', 'u4')), axes, inside)}, f32)"
            inner = ", ".join(a.name for a in axes)
            x = f"zeros(f32[{inner}]) + {x}" if inner else x
            if plan == "softmax":
                self.softmax(acc, next(held), x, walked)
            elif plan == "other":
                # Right where indices are walked, or tiles whose size is given.
                part = f"sum({x}, over={walked.name})" if walked else x
                form = self.rng.choice(
                    ("{0} = {0} * 0.5 + {1}", "{0} = {1}", "{0} += 1.0", "{0} -= {1}")
                )
                self.line(form.format(acc.name, part))
            elif plan == "max":
                part = f"max({x}, over={walked.name})" if walked else x
                self.line(f"{acc.name} = max({acc.name}, {part})")
            else:
                self.line(f"{acc.name} += " + (f"sum({x}, over={walked.name})" if walked else x))
        self.leave(indent)
        scope.locals.extend(found)
        summed = [v for v in found if len(v.axes) > 1 and v.dtype == "f32"]
        if summed and self.chance(0.15):
            self.reduced(self.rng.choice(summed), scope)

    def reduced(self, held: Local, scope: Scope) -> None:
        """Reduce a value computed from accumulators over an axis of the output."""
        made = self.rng.choice(("{0}", "({0} + 1.0)", "exp(min({0}, 40.0))")).format(held.name)
        over, name = self.rng.choice(held.axes), self.fresh("x")
        self.line(f"{name} = {self.rng.choice(('sum', 'max'))}({made}, over={over.name})")
        scope.locals.append(Local(name, "f32", tuple(a for a in held.axes if a != over)))

    def part(self, dim: str, scope: Scope) -> str:
        """Where a loop over a part of a dimension begins and ends."""
        bounds = [dim, f"{dim} - 1", "0", "3", self.scalar("i32")]
        for name, of in scope.scalars:
            bounds += [name, f"{name} * 16", f"{self.param(f'i32[{of}]', 'rows')}[{name}] + 3"]
        bounds += [f"end({a.name})" for a in scope.axes if a.name != a.dim]
        start, stop = (self.rng.choice(bounds) for _ in range(2))
        return f"{self.rng.choice((start, '0'))}, {self.rng.choice((stop, dim))}"

    def softmax(self, top: Local, total: Local, x: str, walked: Axis | None) -> None:
        over = f", over={walked.name}" if walked else ""
        v, new = self.fresh("x"), self.fresh("top")
        # Of tiles that hold nothing but -inf there is no largest to subtract.
        self.line(f"{v} = max(min({x}, 40.0), -40.0)")
        self.line(f"{new} = max({top.name}, {f'max({v}{over})' if walked else v})")
        part = f"exp({v} - {new})"
        part = f"sum({part}{over})" if walked else part
        self.line(f"{total.name} = {total.name} * exp({top.name} - {new}) + {part}")
        self.line(f"{top.name} = {new}")

    def inner_loop(self, scope: Scope, outer: Scope, depth: int) -> None:
        """A parallel loop in the output space, which stores by itself."""
        indent = self.indent
        used = {a.name for a in scope.axes}
        free = [v for v in (("n", "N"), ("k", "K"), ("l", "L")) if v[0] not in used]
        by = self.size() if self.chance(0.15) else None
        inside = self.enter("tiles", (self.rng.choice(free),), scope, by)
        self.block(inside, inside, self.rng.randint(0, 2), depth - 1)
        self.store(inside, inside)
        self.leave(indent)

    def choice(self, scope: Scope, outer: Scope) -> None:
        """`if` of a scalar, around what is assigned, or stored."""
        known = [v for v in scope.locals if v.dtype in ("f32", "i32")]
        if not known:
            self.local(scope)
            return
        changed = self.rng.choice(known)
        words = ["if", *["elif"] * self.chance(0.15), *["else"] * self.chance(0.5)]
        for word in words:
            self.line(f"{word}:" if word == "else" else f"{word} {self.scalar_condition(scope)}:")
            self.indent += 1
            if self.chance(0.2):
                self.store(scope, outer)
            else:
                value = self.value(changed.dtype, changed.axes, scope, 2)
                op = self.rng.choice(("+=", "-=", "*=", "+="))
                self.line(f"{changed.name} {op} {value}")
            self.indent -= 1

    # Stores ---------------------------------------------------------------------------------------

    def store(self, scope: Scope, outer: Scope) -> None:
        entries = [(a.entry, a.dim) for a in outer.axes] + list(outer.scalars)
        axes = outer.axes
        over = ""
        if self.chance(0.4):
            self.rng.shuffle(entries)
        adds = self.chance(0.15)
        if adds and len(entries) > 1 and self.chance(0.5):
            left_out = self.rng.choice(entries)
            entries.remove(left_out)
            # What tiles add to one place is summed up over each of them: how many they are, a
            # result must not show.
            over = left_out[0] if left_out[0] in [a.name for a in axes] else ""
            axes = tuple(a for a in axes if a.name != left_out[0])
        if self.chance(0.08) and axes:
            at = next(i for i, (e, _) in enumerate(entries) if e == axes[0].name)
            rows = self.param(f"i32[{axes[0].dim}]", "perm")
            entries[at] = f"{rows}[{axes[0].name}]", "T"
        if self.chance(0.05):
            entries.insert(0, ("1", "3"))
        if self.chance(0.06) and len(axes) < 2 and not over:
            # A whole dimension at once.
            entries.insert(self.rng.randint(0, len(entries)), (":", "D"))
            axes = (*axes, Axis("D", "D"))
        elif self.chance(0.05) and axes and not over:
            # One element for each tile.
            at = next((i for i, (e, _) in enumerate(entries) if e == axes[-1].name), None)
            if at is not None and self.chance(0.3):
                entries[at] = f"(end({axes[-1].name}) - 1) // 64", f"{axes[-1].dim}B"
                axes = axes[:-1]
        # Of 16 bits, what tiles sum up to would be rounded for each of them.
        added = tuple(d for d in ADDED if d.endswith("32")) if over else ADDED
        dtype = self.rng.choice(added if adds else OUTPUTS)
        dtype = self.rng.choice(("i4", "u4")) if not adds and self.chance(0.005) else dtype
        name = self.fresh("Y")
        self.params[name] = f"{dtype}[{', '.join(d for _, d in entries)}]"
        held = [v for v in scope.locals if all(a in axes for a in v.axes)]
        if over:
            # Of integers there is no other: sums of tiles would saturate.
            kind = "f32" if dtype in FLOATS else dtype
            zero = "0.0" if dtype in FLOATS else "0"
            inner = ", ".join((*(a.name for a in axes), over))
            added = self.value(kind, outer.axes, scope, self.rng.randint(1, 3))
            text = f"sum(full({kind}[{inner}], {zero}) + {added}, over={over})"
        elif held and self.chance(0.5):
            value = self.rng.choice(held)
            text, kind = value.name, value.dtype
        else:
            kind = dtype if self.chance(0.4) else "f32" if dtype in FLOATS else "i32"
            text = self.value(kind, axes, scope, self.rng.randint(1, 4))
        if (kind in FLOATS) != (dtype in FLOATS) or (kind == "bool") != (dtype == "bool"):
            text = f"cast({text}, {dtype})"
        place = f"{name}[{', '.join(e for e, _ in entries)}]"
        if not adds and not over and dtype in FLOATS and self.chance(0.1):
            # In place: element by element, before the store.
            text = f"cast({text}, f32) + cast({place}, f32)"
            text = f"cast({text}, {dtype})" if dtype == "tf32" else text
        self.line(f"{place} {'+=' if adds else '='} {text}")
        self.stored.append(place)
