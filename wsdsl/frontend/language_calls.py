"""Calls of the language's own functions."""

from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed_tree
from wsdsl.frontend.entities import Entity, Literal, Poison, TileType, TypeName, Value, sound
from wsdsl.frontend.expressions import Expressions
from wsdsl.frontend.operators import BITCAST_FIRST
from wsdsl.frontend.reduction_words import OVER, Word, cumsum, position, reduction, topk
from wsdsl.frontend.typed_tree import TensorRef
from wsdsl.ir.ops import UNARY_FUNCTIONS
from wsdsl.ir.types import BOOL, DTYPES, I32, DType, Tile


def call_word(e: Expressions, name: str, node: s.Call) -> Entity:
    if name in ("tiles", "each"):
        message = f"WS0179 `{name}` can only be used in the header of a for loop"
        return e.report.error(message, node.loc, f"write for m in {name}(M):")
    if name == "dims":
        hint = "name the dimension in a parameter's type, which introduces it"
        return e.report.error("WS0180 a kernel cannot call `dims`", node.loc, hint)
    if node.keywords and name not in OVER:
        return e.no_keyword(name, node.keywords[0])
    assert name in WORDS or name in UNARY_FUNCTIONS
    count, word, usage = WORDS.get(name, (1, None, f"{name}(x)"))
    if count is not None and len(node.args) != count:
        return e.miscounted(name, count, len(node.args), node.loc, f"write {usage}")
    return word(e, node) if word else e.ops.function(name, e.value(node.args[0]), node.loc)


def _dtype(e: Expressions, node: s.Expr) -> DType | Poison:
    found = e.entity(node)
    if isinstance(found, TypeName | Poison):
        return found if isinstance(found, Poison) else found.dtype
    return e.expected("an element type", node.loc, "write f32, bf16 or i32, for example")


def _tile_type(e: Expressions, node: s.Expr) -> TileType | Poison:
    found = e.entity(node)
    if isinstance(found, TypeName):
        return TileType(found.dtype, ())
    if isinstance(found, (TileType, Poison)):
        return found
    return e.expected("the type of a tile", node.loc, "write f32[m, n], for example")


def _new(e: Expressions, kind: TileType | Poison, value: Value, node: s.Call) -> Value:
    kind, value = sound(kind), sound(value)
    if isinstance(value, Literal):
        made = e.ops.constant(value, kind.dtype, value.loc)
    elif value.type.axes or value.type.dtype != kind.dtype:
        broadcast = f"write x + zeros({kind.dtype}[…]) to broadcast a tile"
        hint = broadcast if value.type.axes else f"write cast(x, {kind.dtype})"
        what, loc = "the second argument of `full`", node.args[1].loc
        return e.wrong_type(what, f"a scalar {kind.dtype}", value.type, loc, hint)
    else:
        made = value
    if isinstance(made, Poison) or not kind.axes:
        return made
    names = tuple(a.name for a in kind.axes)
    return typed_tree.Full(made, kind.axes, type=Tile(kind.dtype, names), loc=node.loc)


def zeros(e: Expressions, node: s.Call) -> Entity:
    kind = _tile_type(e, node.args[0])
    zero: int | float | bool = 0
    if isinstance(kind, TileType):
        zero = False if kind.dtype == BOOL else 0.0 if kind.dtype.is_float else 0
    return _new(e, kind, Literal(zero, loc=node.loc), node)


def full(e: Expressions, node: s.Call) -> Entity:
    return _new(e, _tile_type(e, node.args[0]), e.value(node.args[1]), node)


def index(e: Expressions, node: s.Call) -> Entity:
    axis = sound(e.axis(node.args[0]))
    return typed_tree.Index(axis, type=Tile(I32, (axis.name,)), loc=node.loc)


def end(e: Expressions, node: s.Call) -> Entity:
    return typed_tree.End(sound(e.axis(node.args[0])), type=Tile(I32), loc=node.loc)


def cast(e: Expressions, node: s.Call) -> Entity:
    x, dtype = e.value(node.args[0]), _dtype(e, node.args[1])
    x, dtype = sound(x), sound(dtype)
    if isinstance(x, Literal):
        return e.ops.cast_constant(x, dtype)
    return typed_tree.Cast(x, type=Tile(dtype, x.type.axes), loc=node.loc)


def bitcast(e: Expressions, node: s.Call) -> Entity:
    x, dtype = e.typed(node.args[0]), _dtype(e, node.args[1])
    x, dtype = sound(x), sound(dtype)
    if BOOL in (x.type.dtype, dtype) and x.type.dtype != dtype:
        message = f"WS0181 `bitcast` cannot convert {x.type.dtype} to {dtype}"
        return e.report.error(message, node.loc, "compare, or use cast")
    if x.type.dtype.bits != dtype.bits:
        widths = f"{x.type.dtype} has {x.type.dtype.bits} bits, {dtype} has {dtype.bits}"
        hint = "use cast, which converts the value"
        return e.report.error(f"WS0182 `bitcast` keeps the width: {widths}", node.loc, hint)
    return typed_tree.Bitcast(x, type=Tile(dtype, x.type.axes), loc=node.loc)


def where(e: Expressions, node: s.Call) -> Entity:
    cond = e.typed(node.args[0])
    both = e.ops.common([e.value(a) for a in node.args[1:]], node.loc, "`where`", chosen=True)
    cond, (args, dtype) = sound(cond), sound(both)
    if cond.type.dtype != BOOL:
        found, loc = cond.type.dtype, node.args[0].loc
        return e.wrong_type("the `where` condition", "bool", found, loc, "compare it: x != 0")
    return e.ops.map("where", [cond, *args], dtype, node.loc)


def fma(e: Expressions, node: s.Call) -> Entity:
    values = [e.value(a) for a in node.args]
    args, dtype = sound(e.ops.common(values, node.loc, "`fma`"))
    if not dtype.is_float:
        return e.ops.unsupported("fma", dtype, node.loc, "write a * b + c")
    return e.ops.rounded_once("fma", args, values, dtype, node.loc)


def mulhi(e: Expressions, node: s.Call) -> Entity:
    args, dtype = sound(e.ops.common([e.value(a) for a in node.args], node.loc, "`mulhi`"))
    if dtype.bits != 32 or dtype.is_float:
        hint = "write cast(x, u32) or cast(x, i32): it returns the upper half of 64 bits"
        return e.ops.unsupported("mulhi", dtype, node.loc, hint)
    return e.ops.map("mulhi", args, dtype, node.loc)


def popcount(e: Expressions, node: s.Call) -> Entity:
    x = sound(e.typed(node.args[0]))
    dtype = x.type.dtype
    if dtype.is_float:
        return e.ops.unsupported("popcount", dtype, node.loc, BITCAST_FIRST)
    if dtype.bits < 32 and dtype.kind == "int":
        # Without the sign's copies.
        x = typed_tree.Bitcast(x, type=Tile(DTYPES[f"u{dtype.bits}"], x.type.axes), loc=x.loc)
    return e.ops.map("popcount", [e.ops.cast(x, I32)], I32, node.loc)


def lookup(e: Expressions, node: s.Call) -> Entity:
    table, i = e.entity(node.args[0]), e.typed(node.args[1])
    table, i = sound(table), sound(i)
    if not isinstance(table, TensorRef) or len(table.type.dims) != 1:
        return e.expected("a 1-D tensor", node.args[0].loc, "write lookup(table, i) for table[i]")
    (size,) = table.type.dims
    if wrong := e.outside(table, size, i, node.args[1].loc):
        return wrong
    return typed_tree.Lookup(table, i, type=Tile(table.type.dtype, i.type.axes), loc=node.loc)


# Number of arguments, if fixed; function; usage.
WORDS: dict[str, tuple[int | None, Word, str]] = {
    "zeros": (1, zeros, "zeros(f32[m, n])"),
    "full": (2, full, "full(f32[m], -inf)"),
    "index": (1, index, "index(m)"),
    "end": (1, end, "end(m)"),
    "cast": (2, cast, "cast(x, f32)"),
    "bitcast": (2, bitcast, "bitcast(x, bf16)"),
    "where": (3, where, "where(condition, a, b)"),
    "fma": (3, fma, "fma(a, b, c), which is a * b + c"),
    "mulhi": (2, mulhi, "mulhi(a, b), the upper half of the 64 bits of a * b"),
    "popcount": (1, popcount, "popcount(x)"),
    "lookup": (2, lookup, "lookup(table, i)"),
    **{name: (None, reduction(name), "") for name in ("sum", "max", "min")},
    **{name: (None, position(name), "") for name in ("argmax", "argmin")},
    "cumsum": (None, cumsum, ""),
    "topk": (None, topk, ""),
}
