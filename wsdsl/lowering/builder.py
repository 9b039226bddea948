"""Appends ops, names their values, and folds the scalar arithmetic that is known already."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any, TypeVar

from wsdsl.diagnostics import Loc
from wsdsl.ir import ops
from wsdsl.ir.op import OneResult, Op, Region, Value, results_of
from wsdsl.ir.ops import COMPARISONS, Cast, Constant, DimSize, If, Map, Yield
from wsdsl.ir.rewriter import Namer, copy_region
from wsdsl.ir.types import BOOL, I32, Barriers, DType, Fragment, Shared, State, Tile, Type

AnyOp = TypeVar("AnyOp", bound=Op)
INT, FLAG = Tile(I32), Tile(BOOL)


def with_dtype(value: Value, dtype: DType) -> Tile | Fragment:
    """The type of a scalar, a tile or a fragment with other elements."""
    kind = value.type
    assert isinstance(kind, Tile | Fragment)
    return replace(kind, dtype=dtype)


class Builder:
    """`ops` is the region being written; `region()` opens an inner one. `declarations` are
    ops at the start of the kernel.
    """

    def __init__(self, namer: Namer) -> None:
        self.namer = namer
        self.ops: list[Op] = []
        self.declarations: list[Op] = []
        self.loc: Loc | None = None
        self.known: dict[Value, int | float | bool] = {}

    def add(self, op: AnyOp) -> AnyOp:
        self.ops.append(op)
        return op

    def value(self, wish: str, type: Type) -> Value:
        return Value(self.namer.new(wish), type)

    def make(self, kind: Callable[..., OneResult], wish: str, type: Type, **fields: Any) -> Value:
        """Append an op of one result, and return this. `fields` are all others of the op."""
        made = kind(result=self.value(wish, type), **{"loc": self.loc, **fields})
        return self.add(made).result

    def copy(self, region: Region, swap: dict[Value, Value]) -> Region:
        """Append the ops with new names for what they make, which `swap` then knows."""
        made = copy_region(region, self.namer, swap)
        for old, new in zip(region, made, strict=True):
            swap |= dict(zip(results_of(old), results_of(new), strict=True))
        self.ops += made
        return made

    @contextmanager
    def region(self) -> Generator[list[Op]]:
        outer, self.ops = self.ops, []
        try:
            yield self.ops
        finally:
            self.ops = outer

    def each(self, region: Region, convert: Callable[[Op], None]) -> Region:
        """Convert the ops one by one; return the ops that this has appended."""
        with self.region() as made:
            for op in region:
                self.loc = op.loc
                convert(op)
        return tuple(made)

    @contextmanager
    def when(self, cond: Value, orelse: Region = ()) -> Generator[None]:
        """Put the ops added meanwhile into an `if`, with `orelse` as its other branch."""
        with self.region() as then:
            yield
        both = ((*then, Yield()), (*orelse, Yield()))
        self.add(If(cond=cond, then=both[0], orelse=both[1], loc=self.loc))

    def integer(self, value: int) -> Value:
        return self.constant(value, INT, f"c{value}" if value >= 0 else f"minus{-value}")

    def flag(self, value: bool) -> Value:
        return self.constant(value, FLAG, str(value).lower())

    def constant(self, value: int | float | bool, type: Type, wish: str = "c") -> Value:
        made = self.make(Constant, wish, type, value=value)
        self.known[made] = value
        return made

    def size(self, dim: str, static: int | None = None) -> Value:
        if static is not None:
            return self.integer(static)
        return self.make(DimSize, f"size_{dim}", INT, dim=dim)

    def map(self, fn: str, *args: Value, type: Type | None = None, wish: str = "t") -> Value:
        """A scalar or fragment op; the type is the first argument's, of bools for comparisons."""
        if type is None:
            type = with_dtype(args[0], BOOL) if fn in COMPARISONS else args[0].type
        return self.make(Map, wish, type, fn=fn, args=args)

    def cast(self, x: Value, dtype: DType, wish: str, **fields: Any) -> Value:
        """Elements of another type; the value itself, if it has them."""
        kind = with_dtype(x, dtype)
        return x if kind == x.type else self.make(Cast, wish, kind, x=x, **fields)

    def joined(self, fn: str, values: Iterable[Value], wish: str) -> Value:
        """All values by a function, from the first one on: each is asked for when it is joined."""
        return reduce(lambda a, b: self.map(fn, a, b, wish=wish), values)

    def plus(self, a: Value, b: int | Value, wish: str = "t") -> Value:
        if isinstance(b, int):
            if b == 0:
                return a
            if a in self.known:
                return self.integer(int(self.known[a]) + b)
            b = self.integer(b)
        elif self.known.get(a) == 0:
            return b
        elif self.known.get(b) == 0:
            return a
        return self.map("add", a, b, wish=wish)

    def times(self, a: Value, b: int, wish: str = "t") -> Value:
        if b == 1:
            return a
        if a in self.known:
            return self.integer(int(self.known[a]) * b)
        return self.map("mul", a, self.integer(b), wish=wish)

    def quotient(self, a: Value, b: int) -> Value:
        if a in self.known:
            return self.integer(int(self.known[a]) // b)
        return self.map("floordiv", a, self.integer(b), wish="block")

    def remainder(self, a: Value, b: int) -> Value:
        if a in self.known:
            return self.integer(int(self.known[a]) % b)
        return self.map("mod", a, self.integer(b), wish="rest")

    def quotient_up(self, a: Value, b: int, wish: str = "t") -> Value:
        """ceil(a / b)."""
        if a in self.known:
            return self.integer(-(-int(self.known[a]) // b))
        return self.map("floordiv", self.plus(a, b - 1), self.integer(b), wish=wish)

    def declared(self, body: Region) -> Region:
        """Return the body of a kernel with the declarations, after the narrowing of its tiles."""
        first = 1 if body and isinstance(body[0], ops.LaunchNarrowing) else 0
        return (*body[:first], *self.declarations, *body[first:])

    def shared(self, wish: str, kind: Shared, label: str = "") -> Value:
        made = self.value(wish, kind)
        self.declarations.append(ops.AllocateShared(result=made, label=label or made.name))
        return made

    def barriers(self, wish: str, num: int, arrivals: int, label: str = "") -> Value:
        made = self.value(wish, Barriers(num))
        declared = ops.AllocateMbarriers(result=made, label=label or made.name, arrivals=arrivals)
        self.declarations.append(declared)
        return made

    def rank(self) -> Value:
        """Return the rank of this CTA in its cluster."""
        return self.make(ops.CtaRank, "rank", INT)

    def warpgroup(self, wish: str = "wg") -> Value:
        return self.make(ops.WarpgroupIndex, wish, INT)

    def wait(self, barriers: Value, state: Value) -> None:
        self.add(ops.MbarrierWait(barriers=barriers, state=state, loc=self.loc))

    def arrive(self, barriers: Value, state: Value, **fields: Any) -> None:
        self.add(ops.MbarrierArrive(barriers=barriers, state=state, loc=self.loc, **fields))

    def expect(self, barriers: Value, state: Value, tx_bytes: int, **fields: Any) -> None:
        where = dict[str, Any](barriers=barriers, state=state, tx_bytes=tx_bytes, loc=self.loc)
        self.add(ops.MbarrierArriveExpectTx(**where, **fields))

    def first_state(self, parity: int = 0) -> Value:
        return self.make(ops.InitialState, "s", State(), parity=parity)

    def next_state(self, state: Value, num: int) -> Value:
        return self.make(ops.Advance, "s", State(), state=state, num=num)

    def sync_threads(self, barrier: int | None, num_warpgroups: int = 0, **fields: Any) -> None:
        """Synchronize warpgroups at a named barrier, or the threads of each warp."""
        if barrier is None:
            self.add(ops.SyncWarp(loc=self.loc))
            return
        where = dict[str, Any](barrier=barrier, num_warpgroups=num_warpgroups, loc=self.loc)
        self.add(ops.NamedBarrierSync(**where, **fields))

    def fence_smem(self, everywhere: bool = False) -> None:
        """Order accesses of the generic proxy before those of the async proxy."""
        self.add(ops.FenceAsyncProxy(everywhere=everywhere, loc=self.loc))

    def fence_tmem(self, after: bool = False) -> None:
        self.add(ops.Tcgen05Fence(after=after, loc=self.loc))

    @contextmanager
    def elected(self, elect: bool = True) -> Generator[None]:
        """Let one thread run the ops added meanwhile, if `elect`."""
        with self.region() as body:
            yield
        self.ops += [ops.Elect(body=tuple(body), loc=self.loc)] if elect else body


class Scalars:
    """The tile scheduler's arithmetic, as ops."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def number(self, x: int, /) -> Value:
        return self.builder.integer(x)

    def apply(self, fn: str, /, *args: Value) -> Value:
        return self.builder.map(fn, *args, type=args[-1].type if fn == "where" else None)
