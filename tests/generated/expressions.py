"""Expressions at random: each has the type that is asked for, by construction."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

FLOATS = ("f32", "bf16", "f16", "f8e4m3", "f8e5m2", "tf32")
INTEGERS = ("i32", "u32", "i16", "u16", "i8", "u8")
VALUES = ("f32",) * 8 + ("bf16",) * 3 + ("f16",) * 2 + ("i32",) * 3 + (*FLOATS, *INTEGERS, "bool")
"""What a value's type is drawn from."""
UNARY = (
    "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "relu", "gelu",
    "silu", "abs", "floor", "round", "erf",
)  # fmt: skip
WIDER = {"f32": ("f32", "bf16", "f16"), "bf16": ("bf16", "f8e4m3"), "f16": ("f16", "f8e5m2")}
"""Types that may stand beside one without changing it."""
BITS = {"f32": "i32", "i32": "f32", "u32": "i32", "bf16": "u16", "u16": "f16", "i8": "f8e5m2"}
"""What is read as another type."""


@dataclass(frozen=True)
class Axis:
    """A variable of `tiles`, or a dimension that is taken whole: then both names are one."""

    name: str
    dim: str
    given: bool = False
    """Whether the kernel says how large its tiles are: then an expression may tell it, too."""

    @property
    def entry(self) -> str:
        """How an index takes it."""
        return ":" if self.name == self.dim else self.name


@dataclass(frozen=True)
class Local:
    """A name that holds a tile."""

    name: str
    dtype: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Scope:
    """What may be named at a place: axes of the loops around it, their scalars, locals."""

    axes: tuple[Axis, ...] = ()
    scalars: tuple[tuple[str, str], ...] = ()
    locals: list[Local] = field(default_factory=list)
    closed: bool = False
    """That of a @function, which sees its parameters alone."""

    def inside(
        self, axes: tuple[Axis, ...] = (), scalars: tuple[tuple[str, str], ...] = ()
    ) -> Scope:
        return Scope((*self.axes, *axes), (*self.scalars, *scalars), list(self.locals))


@dataclass
class Expressions:
    """Writes expressions, and keeps the parameters that they need."""

    rng: Random
    params: dict[str, str] = field(default_factory=dict)
    """Declarations by name: `bf16[M, K]`, or `f32` of a scalar."""
    functions: list[str] = field(default_factory=list)
    names: int = 0

    def __post_init__(self) -> None:
        # Rare constructs have their own generator, so that they change no other program.
        self.seldom = Random(self.rng.getstate()[1][1])

    def rarely(self, probability: float) -> bool:
        return self.seldom.random() < probability

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def param(self, kind: str, prefix: str = "X") -> str:
        """A parameter of that type; often one that is there."""
        known = [n for n, k in self.params.items() if k == kind and n.startswith(prefix)]
        if known and self.chance(0.5):
            return self.rng.choice(known)
        name = self.fresh(prefix)
        self.params[name] = kind
        return name

    # Values ---------------------------------------------------------------------------------------

    def value(self, dtype: str, axes: tuple[Axis, ...], scope: Scope, depth: int) -> str:
        """Of axes among the given ones."""
        if depth <= 0 or self.chance(0.15):
            return self.leaf(dtype, axes, scope)
        if self.chance(0.12):
            other = self.rng.choice(VALUES)
            return f"cast({self.value(other, axes, scope, depth - 1)}, {dtype})"
        if self.chance(0.08):
            cond = self.value("bool", axes, scope, depth - 1)
            first = self.value(dtype, axes, scope, depth - 1)
            second = self.literal(dtype) if self.chance(0.4) else self.value(
                dtype, axes, scope, depth - 1)  # fmt: skip
            return f"where({cond}, {first}, {second})"
        if dtype == "bool":
            return self.condition(axes, scope, depth)
        if self.chance(0.04) and dtype in BITS:
            return f"bitcast({self.value(BITS[dtype], axes, scope, depth - 1)}, {dtype})"
        if not scope.closed and self.chance(0.07):
            return self.whole_reduction(dtype, axes, scope, depth)
        if self.chance(0.05):
            return self.call(dtype, axes, scope, depth)
        return (self.of_floats if dtype in FLOATS else self.of_integers)(dtype, axes, scope, depth)

    def of_floats(self, dtype: str, axes: tuple[Axis, ...], scope: Scope, depth: int) -> str:
        a = self.value(dtype, axes, scope, depth - 1)
        if self.chance(0.3):
            return f"{self.rng.choice(UNARY)}({a})"
        if self.chance(0.05):
            return f"(-{a})"
        if self.chance(0.25):
            b = self.literal(dtype)
        else:
            b = self.value(self.rng.choice(WIDER.get(dtype, (dtype,))), axes, scope, depth - 1)
        if self.chance(0.2):
            return f"{self.rng.choice(('max', 'min'))}({a}, {b})"
        if self.chance(0.05):
            return f"fma({a}, {b}, {self.value(dtype, axes, scope, depth - 2)})"
        if self.chance(0.03):
            return f"(abs({a}) ** {self.rng.choice((0.5, 2.0))})"
        op = self.rng.choice(("+", "+", "-", "*", "*", "/", "//", "%"))
        return f"({a} {op} {b})" if self.chance(0.8) else f"({b} {op} {a})"

    def of_integers(self, dtype: str, axes: tuple[Axis, ...], scope: Scope, depth: int) -> str:
        a = self.value(dtype, axes, scope, depth - 1)
        if self.chance(0.1):
            signed = dtype.startswith("i")
            if dtype == "i32" and self.chance(0.3):
                return f"popcount({self.value(self.rng.choice(INTEGERS), axes, scope, depth - 1)})"
            made = (f"abs({a})", f"relu({a})", f"(-{a})" if signed else f"(~{a})", f"(~{a})")
            return self.rng.choice(made)
        if self.chance(0.25):
            op, by = self.rng.choice(("//", "%", "<<", ">>")), self.rng.choice((1, 2, 3, 7))
            return f"({a} {op} {by})"
        b = self.literal(dtype) if self.chance(0.3) else self.value(dtype, axes, scope, depth - 1)
        if self.chance(0.2):
            known = ("max", "min", "mulhi") if dtype in ("i32", "u32") else ("max", "min")
            return f"{self.rng.choice(known)}({a}, {b})"
        return f"({a} {self.rng.choice(('+', '-', '*', '&', '|', '^'))} {b})"

    def condition(self, axes: tuple[Axis, ...], scope: Scope, depth: int) -> str:
        if self.chance(0.2):
            a, b = (self.value("bool", axes, scope, depth - 1) for _ in range(2))
            return f"({a} {self.rng.choice(('&', '|', '^'))} {b})"
        if self.chance(0.1):
            return f"(~{self.value('bool', axes, scope, depth - 1)})"
        dtype = self.rng.choice(("f32", "f32", "bf16", "i32", "i32"))
        a = self.value(dtype, axes, scope, depth - 1)
        b = self.literal(dtype) if self.chance(0.5) else self.value(dtype, axes, scope, depth - 1)
        return f"({a} {self.rng.choice(('<', '<=', '==', '!=', '>', '>='))} {b})"

    def whole_reduction(self, dtype: str, axes: tuple[Axis, ...], scope: Scope, depth: int) -> str:
        """Over a dimension that is taken whole."""
        whole = Axis("D", "D")
        x = self.load(dtype, (*axes[:1], whole), scope, must=True)
        if self.chance(0.4) and dtype in FLOATS:
            x = f"({x} * {self.value(dtype, axes, scope, depth - 1)})"
        if dtype == "i32" and self.chance(0.3):
            x = self.load(self.rng.choice(VALUES[:-1]), (*axes[:1], whole), scope, must=True)
            return f"{self.rng.choice(('argmax', 'argmin'))}({x}, over=D)"
        fn = self.rng.choice(("sum", "max", "min"))
        if self.chance(0.15):
            x = f"{fn}({x}, over=D, per={self.rng.choice((2, 4, 16, 64))})"
            x = f"cast({x}, {dtype})" if fn == "sum" else x
            fn = self.rng.choice(("max", "min"))
        if self.chance(0.1):
            x = f"cumsum({x}, over=D)"
            x = x if dtype in ("f32", "i32") else f"cast({x}, {dtype})"
            fn = self.rng.choice(("max", "min"))
        # A sum is of 32 bits.
        narrow = fn == "sum" and dtype not in ("f32", "i32")
        return f"cast(sum({x}, over=D), {dtype})" if narrow else f"{fn}({x}, over=D)"

    def call(self, dtype: str, axes: tuple[Axis, ...], scope: Scope, depth: int) -> str:
        """A @function of one or two values, whose body is written as it is needed."""
        name = self.fresh("fn")
        given = ["a", "b"][: self.rng.choice((1, 2))]
        own = Scope(locals=[Local(n, dtype, ()) for n in given], closed=True)
        body = self.value(dtype, (), own, 2)
        self.functions.append(f"@function\ndef {name}({', '.join(given)}):\n    return {body}\n")
        return f"{name}({', '.join(self.value(dtype, axes, scope, depth - 1) for _ in given)})"

    # Leaves ---------------------------------------------------------------------------------------

    def leaf(self, dtype: str, axes: tuple[Axis, ...], scope: Scope) -> str:
        known = [
            v.name for v in scope.locals if v.dtype == dtype and all(a in axes for a in v.axes)
        ]
        if known and self.chance(0.7):
            return self.rng.choice(known)
        if scope.closed:
            return f"full({dtype}, {self.literal(dtype)})"
        named = [a for a in axes if a.name != a.dim]
        if dtype == "i32" and self.chance(0.3) and any(a.given for a in scope.axes):
            return f"end({self.rng.choice([a.name for a in scope.axes if a.given])})"
        if dtype in INTEGERS and axes and self.chance(0.01):
            return f"cast({self.load(self.rng.choice(('i4', 'u4')), axes, scope)}, {dtype})"
        if dtype == "i32" and self.chance(0.5):
            positions = [f"index({a.name})" for a in axes]
            found = positions + [n for n, _ in scope.scalars]
            return self.rng.choice(found) if found else self.scalar("i32")
        if axes and self.chance(0.9):
            return self.load(dtype, axes, scope)
        if dtype in ("f32", "i32") and self.chance(0.5):
            return self.scalar(dtype)
        inner = ", ".join(a.name for a in named if self.chance(0.5))
        kind = f"{dtype}[{inner}]" if inner else dtype
        return f"full({kind}, {self.literal(dtype)})"

    def scalar(self, dtype: str) -> str:
        return self.param(dtype, "n" if dtype == "i32" else "alpha")

    def literal(self, dtype: str) -> str:
        if dtype == "bool":
            return self.rng.choice(("True", "False"))
        if dtype in FLOATS and self.rarely(0.1):
            # Some types hold few of their digits, or nothing.
            return self.seldom.choice(("1.3333334", "0.044715", "0.1", "-2.718281828", "1e-9"))
        if dtype in FLOATS:
            usual = ("0.0", "1.0", "0.5", "-2.0", "3.0")
            return self.rng.choice(usual * 3 + (("-inf",) if "f8" not in dtype else ()))
        return self.rng.choice(("0", "1", "2", "5", "-3" if dtype.startswith("i") else "7"))

    def load(self, dtype: str, axes: tuple[Axis, ...], scope: Scope, must: bool = False) -> str:
        """Of some of the axes (of all, if it `must`), in any order, and perhaps of scalars."""
        chosen = list(axes) if must else self.rng.sample(axes, self.rng.randint(1, len(axes)))
        self.rng.shuffle(chosen)
        entries = [self.along(a) for a in chosen]
        if self.chance(0.03):
            # The diagonal.
            entries.append((f"index({chosen[0].name})", chosen[0].dim))
        if self.chance(0.25):
            entries.insert(self.rng.randint(0, len(entries)), self.scalar_entry(scope))
        dims = ", ".join(dim for _, dim in entries)
        name = self.param(f"{dtype}[{dims}]")
        if len(entries) == 1 and entries[0][0].startswith("rows") and self.chance(0.5):
            return f"lookup({name}, {entries[0][0]})"
        return f"{name}[{', '.join(e for e, _ in entries)}]"

    def along(self, axis: Axis) -> tuple[str, str]:
        """An index along an axis, and the dimension that it goes into."""
        if axis.name == axis.dim or self.chance(0.85):
            return axis.entry, axis.dim
        if self.chance(0.1):
            shift = self.rng.choice(("", "", " + 1", " - 1"))
            return f"index({axis.name}){shift}", axis.dim
        if self.chance(0.5):
            by = self.rng.choice((2, 16, 128))
            return f"index({axis.name}) // {by}", f"{axis.dim}B"
        rows = self.param(f"i32[{axis.dim}]", "rows")
        return f"{rows}[{axis.name}]", "T"

    def scalar_entry(self, scope: Scope) -> tuple[str, str]:
        """An index without an axis."""
        if scope.scalars and self.chance(0.7):
            name, dim = self.rng.choice(scope.scalars)
            kind = self.rng.random()
            if kind < 0.7:
                return name, dim
            if kind < 0.85:
                return self.rng.choice((f"{name} + 1", f"{name} // 2", f"{name} * 2 - 1")), dim
            where = self.param(f"i32[{dim}]", "rows")
            return f"{where}[{name}]", "T"
        if self.chance(0.3):
            return self.scalar("i32"), "T"
        at = self.rng.choice((0, 1, 1, 2))
        return str(at), "3"
