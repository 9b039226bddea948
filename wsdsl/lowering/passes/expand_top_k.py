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

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.types import BOOL, F32, I32, Axis, DType, Tile
from wsdsl.ir.walk import Namer, definitions, rewrite

LOWEST, NAN = -(2**31), 0x7FC00000
"""Keys of what is taken already, and of NaN."""


def expand_top_k(kernel: Kernel) -> Kernel:
    if not kernel.of(t.TopK):
        return kernel
    axes = {v.type.name: v for v in definitions(kernel) if isinstance(v.type, Axis)}
    namer, sizes = Namer.of(kernel), dict(kernel.sizes)

    # What the values and the places of one call have in common is said once, where the first is.
    calls: dict[object, list[t.TopK]] = {}
    for op in kernel.of(t.TopK):
        calls.setdefault((op.x, op.axis, op.into, op.before, op.loc), []).append(op)
    firsts = {each[0].result: each for each in calls.values()}

    def change(op: Op) -> Iterable[Op]:
        if not isinstance(op, t.TopK):
            return (op,)
        call = firsts.get(op.result, [])
        made = _Expansion(namer, op, axes[op.axis])
        return made.ops_of(call, sizes[op.into.as_axis.dim]) if call else ()

    return kernel.with_body(rewrite(kernel.body, change))


@dataclass(frozen=True)
class Source:
    """Elements that are sorted, and where they are."""

    key: Value
    places: Value
    axis: str


class _Expansion:
    def __init__(self, namer: Namer, op: t.TopK, axis: Value) -> None:
        self.namer, self.op, self.ops = namer, op, list[Op]()
        self.rest = tuple(a for a in op.x.as_tile.axes if a != op.axis)
        self.dtype = op.x.as_tile.dtype
        self.lowest, self.nowhere = self.constant(LOWEST), self.constant(t.NOWHERE)
        index = self.fresh("index", I32, (op.axis,))
        self.ops.append(t.Index(result=index, axis=axis, loc=op.loc))
        self.sources = [Source(self.key(op.x), index, op.axis)]
        if op.before:
            values, places = op.before
            self.sources.append(Source(self.key(values), places, op.into.as_axis.name))

    def fresh(self, wish: str, dtype: DType, axes: tuple[str, ...]) -> Value:
        return Value(self.namer.new(wish), Tile(dtype, axes))

    def constant(self, value: int | float, dtype: DType = I32) -> Value:
        made = self.fresh("c", dtype, ())
        self.ops.append(t.Constant(result=made, value=value, loc=self.op.loc))
        return made

    def map(self, fn: str, *args: Value, axes: tuple[str, ...]) -> Value:
        dtype = BOOL if fn in t.COMPARISONS else args[-1].as_tile.dtype
        made = self.fresh(fn, dtype, axes)
        self.ops.append(t.Map(result=made, fn=fn, args=args, wraps=fn == "sub", loc=self.op.loc))
        return made

    def cast(self, x: Value, dtype: DType, axes: tuple[str, ...]) -> Value:
        made = self.fresh("cast", dtype, axes)
        self.ops.append(t.Cast(result=made, x=x, loc=self.op.loc))
        return made

    def bits(self, x: Value, dtype: DType, axes: tuple[str, ...]) -> Value:
        made = self.fresh("bits", dtype, axes)
        self.ops.append(t.Bitcast(result=made, x=x, loc=self.op.loc))
        return made

    def key(self, x: Value) -> Value:
        axes = x.as_tile.axes
        if self.dtype.is_float:
            wide = x if self.dtype == F32 else self.cast(x, F32, axes)
            key = self.mirrored(self.bits(wide, I32, axes), axes)
            is_nan = self.map("ne", wide, wide, axes=axes)
            return self.map("where", is_nan, self.constant(NAN), key, axes=axes)
        if self.dtype.kind == "uint" and self.dtype.bits == 32:
            return self.map("sub", self.bits(x, I32, axes), self.lowest, axes=axes)
        return x if self.dtype == I32 else self.cast(x, I32, axes)

    def mirrored(self, bits: Value, axes: tuple[str, ...]) -> Value:
        """Of floats of less than 0 the magnitude counts the other way round; and back."""
        is_less = self.map("lt", bits, self.constant(0), axes=axes)
        turned = self.map("sub", self.lowest, bits, axes=axes)
        return self.map("where", is_less, turned, bits, axes=axes)

    def value(self, key: Value) -> Value:
        """What a key is of; the lowest value, if nothing was left."""
        axes = self.rest
        if self.dtype.bits == 32 and not self.dtype.is_float:
            is_signed = self.dtype == I32
            own = key if is_signed else self.map("sub", key, self.lowest, axes=axes)
            return own if is_signed else self.bits(own, self.dtype, axes)
        found = self.mirrored(key, axes) if self.dtype.is_float else key
        if self.dtype.is_float:
            found = self.bits(found, F32, axes)
        if self.dtype not in (F32, I32):
            found = self.cast(found, self.dtype, axes)
        is_none = self.map("eq", key, self.lowest, axes=axes)
        low = self.constant(_lowest(self.dtype), self.dtype)
        return self.map("where", is_none, low, found, axes=axes)

    def reduce(self, fn: str, parts: Sequence[tuple[Value, Source]]) -> Value:
        """Of all sources together."""
        made: Value | None = None
        for x, source in parts:
            own = self.fresh("top" if fn == "max" else "at", I32, self.rest)
            self.ops.append(t.Reduce(result=own, fn=fn, x=x, axis=source.axis, loc=self.op.loc))
            made = own if made is None else self.map(fn, made, own, axes=self.rest)
        assert made is not None
        return made

    def ops_of(self, call: Sequence[t.TopK], count: int) -> tuple[Op, ...]:
        into = self.op.into
        place = self.fresh("place", I32, (into.as_axis.name,))
        self.ops.append(t.Index(result=place, axis=into, loc=self.op.loc))
        found = [self.largest() for _ in range(max(1, count))]
        firsts = [
            self.map("ge", place, self.constant(n), axes=place.as_tile.axes)
            for n in range(1, len(found))
        ]
        for op in call:
            every = [at if op.places else self.value(top) for top, at in found]
            made, axes = every[0], op.result.as_tile.axes
            for is_behind, own in zip(firsts, every[1:], strict=True):
                made = self.map("where", is_behind, own, made, axes=axes)
            self.ops.append(t.Map(result=op.result, fn="max", args=(made, made), loc=op.loc))
        return tuple(self.ops)

    def largest(self) -> tuple[Value, Value]:
        """The key of the largest of what is left, and the least place at which it is. It is taken:
        of whole numbers of 32 bits the lowest is one that may be there, so that its place goes.
        """
        top = self.reduce("max", [(source.key, source) for source in self.sources])
        places: list[tuple[Value, Source]] = []
        for source in self.sources:
            axes = source.key.as_tile.axes
            here = self.map("eq", source.key, top, axes=axes)
            at = self.map("where", here, source.places, self.nowhere, axes=axes)
            places.append((at, source))
        at = self.reduce("min", places)
        whole = self.dtype.bits == 32 and not self.dtype.is_float
        if not whole:
            none = self.map("eq", top, self.lowest, axes=self.rest)
            at = self.map("where", none, self.nowhere, at, axes=self.rest)
        self.sources = [self.without(source, at, whole) for source in self.sources]
        return top, at

    def without(self, source: Source, at: Value, whole: bool) -> Source:
        axes, places = source.key.as_tile.axes, source.places
        is_taken = self.map("eq", places, at, axes=axes)
        if whole:
            places = self.map("where", is_taken, self.nowhere, places, axes=axes)
        key = self.map("where", is_taken, self.lowest, source.key, axes=axes)
        return Source(key, places, source.axis)


def _lowest(dtype: DType) -> int | float:
    if dtype.is_float:
        return -math.inf
    return -(1 << dtype.bits - 1) if dtype.kind == "int" else 0
