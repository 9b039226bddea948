"""Say the largest elements of rows as maxima, one after the other.

Before:
    %v: f32[m, K] = top_k(x=%x, axis="n", into=%K)
    %i: i32[m, K] = top_k(x=%x, axis="n", into=%K, places=True)
After, for K of 2:
    %key: i32[m, n] = ...         in the order of the elements; NaN is the largest
    %top: i32[m] = reduce(fn="max", x=%key, axis="n")
    %at: i32[m] = ...             the least index at which it is
    %rest: i32[m, n] = ...        the keys, but for the one there, which is the lowest now
    %top_1: i32[m] = reduce(fn="max", x=%rest, axis="n")
    %at_1: i32[m] = ...
    %v: f32[m, K] = ...           of the keys what they are of
    %i: i32[m, K] = map(fn="where", args=(%first, %at, %at_1))

Whole numbers are equal or not: no comparison has to think of NaN, for each of K.

Why here: sizes are known, and everything behind knows reductions.
"""

from collections.abc import Iterable, Sequence

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.rewriter import Namer, definitions, rewrite
from wsdsl.ir.types import BOOL, F32, I32, Axis, DType, Tile
from wsdsl.lowering.builder import INT, Builder, with_dtype
from wsdsl.record import record

LOWEST, NAN = -(2**31), 0x7FC00000
"""Keys of what is taken already, and of NaN."""


def expand_top_k(kernel: Kernel) -> Kernel:
    if not kernel.of(ops.TopK):
        return kernel
    axes = {v.type.name: v for v in definitions(kernel) if isinstance(v.type, Axis)}
    namer, sizes = Namer.of(kernel), dict(kernel.sizes)

    # What the values and the places of one call have in common is said once, where the first is.
    calls: dict[object, list[ops.TopK]] = {}
    for op in kernel.of(ops.TopK):
        calls.setdefault((op.x, op.axis, op.into, op.before, op.loc), []).append(op)
    firsts = {each[0].result: each for each in calls.values()}

    def change(op: Op) -> Iterable[Op]:
        if not isinstance(op, ops.TopK):
            return (op,)
        call = firsts.get(op.result, [])
        made = _Expansion(namer, op, axes[op.axis])
        return made.ops_of(call, sizes[op.into.as_axis.dim]) if call else ()

    return kernel.with_body(rewrite(kernel.body, change))


@record
class Source:
    """Elements that are sorted, and where they are."""

    key: Value
    places: Value
    axis: str


class _Expansion(Builder):
    def __init__(self, namer: Namer, op: ops.TopK, axis: Value) -> None:
        super().__init__(namer)
        self.op, self.loc = op, op.loc
        self.rest = tuple(a for a in op.x.as_tile.axes if a != op.axis)
        self.dtype = op.x.as_tile.dtype
        self.lowest, self.nowhere = self.constant(LOWEST, INT), self.constant(ops.NOWHERE, INT)
        index = self.make(ops.Index, "index", Tile(I32, (op.axis,)), axis=axis)
        self.sources = [Source(self.key(op.x), index, op.axis)]
        if op.before:
            values, places = op.before
            self.sources.append(Source(self.key(values), places, op.into.as_axis.name))

    def apply(self, fn: str, *args: Value, axes: tuple[str, ...] | None = None) -> Value:
        """`axes`: the result's, if no argument has all of them."""
        axes = axes or max((v.as_tile.axes for v in args), key=len)
        kind = Tile(BOOL if fn in ops.COMPARISONS else args[-1].as_tile.dtype, axes)
        return self.make(ops.Map, fn, kind, fn=fn, args=args, wraps=fn == "sub")

    def bits(self, x: Value, dtype: DType) -> Value:
        return self.make(ops.Bitcast, "bits", with_dtype(x, dtype), x=x)

    def key(self, x: Value) -> Value:
        if self.dtype.is_float:
            wide = self.cast(x, F32, "cast")
            key = self.mirrored(self.bits(wide, I32))
            is_nan = self.apply("ne", wide, wide)
            return self.apply("where", is_nan, self.constant(NAN, INT), key)
        if self.dtype.kind == "uint" and self.dtype.bits == 32:
            return self.apply("sub", self.bits(x, I32), self.lowest)
        return self.cast(x, I32, "cast")

    def mirrored(self, bits: Value) -> Value:
        """Of floats of less than 0 the magnitude counts the other way round; and back."""
        is_less = self.apply("lt", bits, self.constant(0, INT))
        return self.apply("where", is_less, self.apply("sub", self.lowest, bits), bits)

    def element(self, key: Value) -> Value:
        """What a key is of; the lowest value, if nothing was left."""
        if self.dtype.bits == 32 and not self.dtype.is_float:
            is_signed = self.dtype == I32
            return key if is_signed else self.bits(self.apply("sub", key, self.lowest), self.dtype)
        found = self.bits(self.mirrored(key), F32) if self.dtype.is_float else key
        found = self.cast(found, self.dtype, "cast")
        is_none = self.apply("eq", key, self.lowest)
        low = self.constant(self.dtype.limits[0], Tile(self.dtype))
        return self.apply("where", is_none, low, found)

    def reduce(self, fn: str, parts: Sequence[tuple[Value, Source]]) -> Value:
        """Of all sources together."""
        made: Value | None = None
        for x, source in parts:
            wish, kind = "top" if fn == "max" else "at", Tile(I32, self.rest)
            own = self.make(ops.Reduce, wish, kind, fn=fn, x=x, axis=source.axis)
            made = own if made is None else self.apply(fn, made, own)
        assert made is not None
        return made

    def ops_of(self, call: Sequence[ops.TopK], count: int) -> tuple[Op, ...]:
        into = self.op.into
        place = self.make(ops.Index, "place", Tile(I32, (into.as_axis.name,)), axis=into)
        found = [self.largest() for _ in range(max(1, count))]
        firsts = [self.apply("ge", place, self.constant(n, INT)) for n in range(1, len(found))]
        for op in call:
            every = [at if op.places else self.element(top) for top, at in found]
            made, axes = every[0], op.result.as_tile.axes
            for is_behind, own in zip(firsts, every[1:], strict=True):
                made = self.apply("where", is_behind, own, made, axes=axes)
            self.ops.append(ops.Map(result=op.result, fn="max", args=(made, made), loc=op.loc))
        return tuple(self.ops)

    def largest(self) -> tuple[Value, Value]:
        """The key of the largest of what is left, and the least place at which it is. It is taken:
        of whole numbers of 32 bits the lowest is one that may be there, so that its place goes.
        """
        top = self.reduce("max", [(source.key, source) for source in self.sources])
        places: list[tuple[Value, Source]] = []
        for source in self.sources:
            here = self.apply("eq", source.key, top)
            places.append((self.apply("where", here, source.places, self.nowhere), source))
        at = self.reduce("min", places)
        whole = self.dtype.bits == 32 and not self.dtype.is_float
        if not whole:
            at = self.apply("where", self.apply("eq", top, self.lowest), self.nowhere, at)
        self.sources = [self.without(source, at, whole) for source in self.sources]
        return top, at

    def without(self, source: Source, at: Value, whole: bool) -> Source:
        places = source.places
        is_taken = self.apply("eq", places, at, axes=source.key.as_tile.axes)
        if whole:
            places = self.apply("where", is_taken, self.nowhere, places)
        key = self.apply("where", is_taken, self.lowest, source.key)
        return Source(key, places, source.axis)
