"""Say the largest elements of rows as maxima, one after the other.

Before:
    %v: f32[m, K] = top_k(x=%x, axis="n", into=%K)
    %i: i32[m, K] = top_k(x=%x, axis="n", into=%K, places=True)
After, for K of 2:
    %top: f32[m] = reduce(fn="max", x=%x, axis="n")
    %at: i32[m] = ...             the least index at which it is
    %left: bool[m, n] = ...       what is smaller, or as large and behind it
    %rest: f32[m, n] = map(fn="where", args=(%left, %x, %low))
    %top_1: f32[m] = reduce(fn="max", x=%rest, axis="n")
    %at_1: i32[m] = ...
    %v: f32[m, K] = map(fn="where", args=(%first, %top, %top_1))
    %i: i32[m, K] = map(fn="where", args=(%first, %at, %at_1))

What is left follows from the last one alone, so that nothing is kept for each element of a row.

Why here: sizes are known, and everything behind knows reductions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.tile_ops import COMPARISONS, NOWHERE, Constant, Index, Map, Reduce, TopK
from wsdsl.ir.types import BOOL, I32, Axis, DType, Tile
from wsdsl.ir.walk import Namer, definitions, rewrite


def expand_top_k(kernel: Kernel) -> Kernel:
    if not kernel.of(TopK):
        return kernel
    axes = {v.type.name: v for v in definitions(kernel) if isinstance(v.type, Axis)}
    namer, sizes = Namer.of(kernel), dict(kernel.sizes)

    # What the values and the places of one call have in common is said once, where the first is.
    calls: dict[object, list[TopK]] = {}
    for op in kernel.of(TopK):
        calls.setdefault((op.x, op.axis, op.into, op.before, op.loc), []).append(op)
    firsts = {each[0].result: each for each in calls.values()}

    def change(op: Op) -> Iterable[Op]:
        if not isinstance(op, TopK):
            return (op,)
        call = firsts.get(op.result, [])
        made = _Expansion(namer, op, axes[op.axis])
        return made.ops_of(call, sizes[op.into.as_axis.dim]) if call else ()

    return dataclasses.replace(kernel, body=rewrite(kernel.body, change))


@dataclass(frozen=True)
class Source:
    """Elements that are sorted, and where they are."""

    x: Value
    places: Value
    axis: str


class _Expansion:
    def __init__(self, namer: Namer, op: TopK, axis: Value) -> None:
        self.namer, self.op, self.ops = namer, op, list[Op]()
        self.rest = tuple(a for a in op.x.as_tile.axes if a != op.axis)
        self.dtype = op.x.as_tile.dtype
        index = self.fresh("index", I32, (op.axis,))
        self.ops.append(Index(result=index, axis=axis, loc=op.loc))
        self.sources = [Source(op.x, index, op.axis)]
        if op.before:
            values, places = op.before
            self.sources.append(Source(values, places, op.into.as_axis.name))
        self.low = self.constant(_lowest(self.dtype), self.dtype)
        self.nowhere = self.constant(NOWHERE, I32)

    def fresh(self, wish: str, dtype: DType, axes: tuple[str, ...]) -> Value:
        return Value(self.namer.new(wish), Tile(dtype, axes))

    def constant(self, value: int | float, dtype: DType) -> Value:
        made = self.fresh("c", dtype, ())
        self.ops.append(Constant(result=made, value=value, loc=self.op.loc))
        return made

    def map(self, fn: str, *args: Value, axes: tuple[str, ...]) -> Value:
        dtype = BOOL if fn in COMPARISONS else args[-1].as_tile.dtype
        made = self.fresh(fn, dtype, axes)
        self.ops.append(Map(result=made, fn=fn, args=args, loc=self.op.loc))
        return made

    def reduce(self, fn: str, parts: Sequence[tuple[Value, Source]]) -> Value:
        """Of all sources together."""
        made: Value | None = None
        for x, source in parts:
            own = self.fresh("top" if fn == "max" else "at", x.as_tile.dtype, self.rest)
            self.ops.append(Reduce(result=own, fn=fn, x=x, axis=source.axis, loc=self.op.loc))
            made = own if made is None else self.map(fn, made, own, axes=self.rest)
        assert made is not None
        return made

    def ops_of(self, call: Sequence[TopK], count: int) -> tuple[Op, ...]:
        into = self.op.into
        place = self.fresh("place", I32, (into.as_axis.name,))
        self.ops.append(Index(result=place, axis=into, loc=self.op.loc))
        found: list[tuple[Value, Value]] = []
        for _ in range(max(1, count)):
            found.append(self.largest(*found[-1:]))
        firsts = [
            self.map("ge", place, self.constant(n, I32), axes=place.as_tile.axes)
            for n in range(1, len(found))
        ]
        for op in call:
            every = [pair[op.places] for pair in found]
            made, axes = every[0], op.result.as_tile.axes
            for is_behind, own in zip(firsts, every[1:], strict=True):
                made = self.map("where", is_behind, own, made, axes=axes)
            self.ops.append(Map(result=op.result, fn="max", args=(made, made), loc=op.loc))
        return tuple(self.ops)

    def largest(self, *last: tuple[Value, Value]) -> tuple[Value, Value]:
        """Of all elements, or of those behind the last one: the largest, or NaN; and the least
        place at which it is.
        """
        lefts = [self.behind(source, *pair) for source in self.sources for pair in last]
        every = [*zip(self.sources, lefts or [None] * len(self.sources), strict=True)]
        top = self.reduce("max", [(self.those(left, s.x, self.low, s), s) for s, left in every])
        places: list[tuple[Value, Source]] = []
        for source, left in every:
            axes = source.x.as_tile.axes
            here = self.map("eq", source.x, top, axes=axes)
            if self.dtype.is_float:
                is_nan = self.map("ne", source.x, source.x, axes=axes)
                here = self.map("or", here, is_nan, axes=axes)
            here = here if left is None else self.map("and", here, left, axes=axes)
            places.append((self.those(here, source.places, self.nowhere, source), source))
        return top, self.reduce("min", places)

    def those(self, chosen: Value | None, x: Value, rest: Value, source: Source) -> Value:
        if chosen is None:
            return x
        return self.map("where", chosen, x, rest, axes=source.x.as_tile.axes)

    def behind(self, source: Source, top: Value, at: Value) -> Value:
        """Which elements come behind one in order: smaller ones, and equal ones further on."""
        x, axes = source.x, source.x.as_tile.axes
        further = self.map("gt", source.places, at, axes=axes)
        equal = self.map("and", self.map("eq", x, top, axes=axes), further, axes=axes)
        left = self.map("or", self.map("lt", x, top, axes=axes), equal, axes=axes)
        if not self.dtype.is_float:
            return left
        # Behind NaN comes NaN further on, and then everything else.
        was_nan = self.map("ne", top, top, axes=self.rest)
        behind_nan = self.map("or", self.map("eq", x, x, axes=axes), further, axes=axes)
        return self.map("or", left, self.map("and", was_nan, behind_nan, axes=axes), axes=axes)


def _lowest(dtype: DType) -> int | float:
    if dtype.is_float:
        return -math.inf
    return -(1 << dtype.bits - 1) if dtype.kind == "int" else 0
