"""Reductions of an axis: `sum`, `max` and `min`, `argmax` and `argmin`, `cumsum`, `topk`."""

from collections.abc import Callable

from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed_tree
from wsdsl.frontend.element_types import is_small
from wsdsl.frontend.entities import POISON, DimName, Entity, Poison, Several, Value, sound
from wsdsl.frontend.expressions import Expressions
from wsdsl.frontend.typed_tree import AxisRef
from wsdsl.ir.ops import NOWHERE
from wsdsl.ir.types import BOOL, F32, I32, Tile

Word = Callable[[Expressions, s.Call], Entity]
OVER = ("sum", "max", "min", "argmax", "argmin", "cumsum", "topk")
"""Functions with the argument `over=axis`."""


def reduction(name: str) -> Word:
    """`sum`, and `max` and `min`, which without `over` are elementwise."""

    def word(e: Expressions, node: s.Call) -> Entity:
        over = sound(_over(e, name, node))
        if over:
            return _reduce(e, name, node, over)
        if name == "sum" or len(node.args) < 2:
            return _of_what(e, name, node)
        values = [e.value(a) for a in node.args]
        args, dtype = sound(e.ops.common(values, node.loc, f"`{name}`", chosen=True))
        result = args[0]
        for other in args[1:]:
            result = e.ops.map(name, [result, other], dtype, node.loc)
        return result

    return word


def _over(e: Expressions, name: str, node: s.Call) -> s.Keyword | Poison | None:
    known = ("over", "per") if name in ("sum", "max", "min") else ("over",)
    if other := next((k for k in node.keywords if k.name not in known), None):
        return e.no_keyword(name, other, "write over=n, with the name of the axis")
    over = next((k for k in node.keywords if k.name == "over"), None)
    if not over and node.keywords:
        hint = f"write {name}(x, over=n, per=32) for each block of 32 along n"
        message = "WS0183 `per` needs an axis, which `over` names"
        return e.report.error(message, node.keywords[0].loc, hint)
    return over


def _per(e: Expressions, node: s.Call) -> int | Poison:
    """Return the elements of a block; 0 if the whole axis is reduced."""
    per = next((k for k in node.keywords if k.name == "per"), None)
    if per is None:
        return 0
    return e.positive(per.value, "block", per.loc, "write over=n, per=32, for example")


def _of_what(e: Expressions, name: str, node: s.Call) -> Poison:
    hint = f"write {name}(x, over=n), with the name of the axis"
    return e.report.error(f"WS0184 `{name}` needs the argument `over`", node.loc, hint)


def _tile_and_axis(
    e: Expressions, name: str, node: s.Call, over: s.Keyword
) -> tuple[typed_tree.Expr, AxisRef] | Poison:
    if len(node.args) != 1 and name != "topk":
        hint = f"combine them first: {name}(a + b, over=axis)"
        return e.miscounted(f"{name}(…, over=…)", 1, len(node.args), node.loc, hint)
    x, axis = e.typed(node.args[0]), e.axis(over.value)
    if isinstance(x, Poison) or isinstance(axis, Poison):
        return POISON
    if axis.name not in x.type.axes:
        hint = f"use one of its axes: {', '.join(x.type.axes) or 'none'}"
        return e.report.error(f"WS0185 the tile has no axis `{axis.name}`", over.loc, hint)
    if x.type.dtype == BOOL:
        return e.ops.unsupported(name, BOOL, node.loc, "cast to i32 first")
    return x, axis


def _reduce(e: Expressions, name: str, node: s.Call, over: s.Keyword) -> Value:
    x, axis = sound(_tile_and_axis(e, name, node, over))
    per = sound(_per(e, node))
    x = _summed(e, x) if name == "sum" else x
    fn = "add" if name == "sum" else name
    if per == 1:
        return x
    if per:
        return typed_tree.Reduce(fn, x, axis, per, type=x.type, loc=node.loc)
    return _over_axis(fn, x, axis, node)


def _summed(e: Expressions, x: typed_tree.Expr) -> typed_tree.Expr:
    """Accumulate in 32 bits, as matmuls do: partial results are not rounded and do not wrap."""
    dtype = x.type.dtype
    narrow = dtype.is_float or dtype.bits < 32
    return e.ops.cast(x, F32 if dtype.is_float else I32) if narrow else x


def _over_axis(fn: str, x: typed_tree.Expr, axis: AxisRef, node: s.Call) -> typed_tree.Reduce:
    rest = tuple(a for a in x.type.axes if a != axis.name)
    return typed_tree.Reduce(fn, x, axis, type=Tile(x.type.dtype, rest), loc=node.loc)


def _given(e: Expressions, name: str, node: s.Call) -> tuple[typed_tree.Expr, AxisRef] | Poison:
    """Return the tile and the axis of a function that requires `over`."""
    over = _over(e, name, node)
    if isinstance(over, Poison):
        return over
    return _of_what(e, name, node) if over is None else _tile_and_axis(e, name, node, over)


def cumsum(e: Expressions, node: s.Call) -> Entity:
    x, axis = sound(_given(e, "cumsum", node))
    x = _summed(e, x)
    return typed_tree.Scan(x, axis, type=x.type, loc=node.loc)


def position(name: str) -> Word:
    """`argmax` and `argmin`: the smallest index of an extremum, or of a NaN."""

    def word(e: Expressions, node: s.Call) -> Entity:
        x, axis = sound(_given(e, name, node))
        x = e.once("x", e.ops.cast(x, F32) if is_small(x.type.dtype) else x)
        best = _over_axis(name.removeprefix("arg"), x, axis, node)
        here = e.ops.map("eq", [x, best], BOOL, node.loc)
        if x.type.dtype.is_float:
            is_nan = e.ops.map("ne", [x, x], BOOL, node.loc)
            here = e.ops.map("or", [here, is_nan], BOOL, node.loc)
        index = typed_tree.Index(axis, type=Tile(I32, (axis.name,)), loc=node.loc)
        nowhere = typed_tree.Const(NOWHERE, type=Tile(I32), loc=node.loc)
        places = e.ops.map("where", [here, index, nowhere], I32, node.loc)
        return _over_axis("min", e.ops.in_order(places, x.type.axes), axis, node)

    return word


def topk(e: Expressions, node: s.Call) -> Entity:
    """`v, i = topk(x, K, over=n)`: two tiles with the axis K in place of n. With results of
    earlier iterations, `v, i = topk(x, K, v, i, over=n)`.
    """
    usage = "write v, i = topk(x, K, over=n), with a dimension K: V: f32[M, K], V[m, :] = v"
    if len(node.args) not in (2, 4):
        return e.miscounted("topk", "2 or 4", len(node.args), node.loc, usage)
    found, into = _given(e, "topk", node), e.entity(node.args[1])
    before = [e.typed(a) for a in node.args[2:]]
    if isinstance(found, Poison) or isinstance(into, Poison):
        return POISON
    if not isinstance(into, DimName):
        return e.expected("a dimension", node.args[1].loc, usage)
    x, axis = found
    if into.name in x.type.axes:
        message = f"WS0186 the tile already has the axis `{into.name}`"
        return e.report.error(message, node.args[1].loc, usage)
    x = e.once("x", e.ops.cast(x, F32) if is_small(x.type.dtype) else x)
    axes = tuple(into.name if a == axis.name else a for a in x.type.axes)
    kinds = Tile(x.type.dtype, axes), Tile(I32, axes)
    known: list[typed_tree.Expr] = []
    for held, kind, arg in zip(before, kinds, node.args[2:], strict=False):
        if isinstance(held, Poison):
            return held
        if held.type.dtype != kind.dtype or set(held.type.axes) != set(axes):
            message = f"WS0187 the earlier result of `topk` is {held.type}, this one is {kind}"
            start = f"full({kinds[0]}, …), full({kinds[1]}, {NOWHERE})"
            return e.report.error(message, arg.loc, f"write v, i = {start} before the loop")
        known.append(e.once("before", held))
    taken = AxisRef(into.name, into.name, whole=True)
    values, places = (
        typed_tree.TopK(x, axis, taken, tuple(known), where, type=kind, loc=node.loc)
        for where, kind in zip((False, True), kinds, strict=True)
    )
    return Several((values, places), "topk")
