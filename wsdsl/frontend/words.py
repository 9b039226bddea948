"""Calls of the language's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wsdsl.diagnostics import counted
from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed
from wsdsl.frontend.entities import (
    POISON,
    Entity,
    Literal,
    Poison,
    TileType,
    TypeName,
    Value,
)
from wsdsl.frontend.reduction_words import OVER, axis_of, cumsum, position, reduction, topk
from wsdsl.frontend.typed import TensorRef
from wsdsl.ir.tile_ops import UNARY_FUNCTIONS
from wsdsl.ir.types import BOOL, DTYPES, I32, DType, Tile

if TYPE_CHECKING:
    from wsdsl.frontend.expressions import Expressions

Word = Callable[["Expressions", s.Call], Entity]


def call_word(e: Expressions, name: str, node: s.Call) -> Entity:
    if name in ("tiles", "each"):
        hint = f"for m in {name}(M):"
        return e.report.error(f"`{name}` stands in a for loop alone", node.loc, hint)
    if name == "dims":
        hint = "name the dimension in a parameter's type; that introduces it"
        return e.report.error("`dims` stands outside of kernels", node.loc, hint)
    if node.keywords and name not in OVER:
        return e.report.error(
            f"`{name}` takes no argument by name", node.keywords[0].loc, "give it by position"
        )
    if name in WORDS:
        count, word, usage = WORDS[name]
        if count is not None and len(node.args) != count:
            wanted = counted(count, "argument")
            return e.report.error(f"`{name}` takes {wanted}, not {len(node.args)}", node.loc, usage)
        return word(e, node)
    assert name in UNARY_FUNCTIONS
    if len(node.args) != 1:
        return e.report.error(
            f"`{name}` takes 1 argument, not {len(node.args)}", node.loc, f"{name}(x)"
        )
    return e.ops.function(name, e.value(node.args[0]), node.loc)


def _dtype(e: Expressions, node: s.Expr) -> DType | Poison:
    found = e.entity(node)
    if isinstance(found, TypeName):
        return found.dtype
    if isinstance(found, Poison):
        return found
    return e.report.error("an element type is expected here", node.loc, "f32, bf16, i32, …")


def _tile_type(e: Expressions, node: s.Expr) -> TileType | Poison:
    found = e.entity(node)
    if isinstance(found, TypeName):
        return TileType(found.dtype, ())
    if isinstance(found, (TileType, Poison)):
        return found
    return e.report.error("a tile's type is expected here", node.loc, "as in f32[m, n]")


def _new(e: Expressions, kind: TileType | Poison, value: Value, node: s.Call) -> Value:
    if isinstance(kind, Poison) or isinstance(value, Poison):
        return POISON
    if isinstance(value, Literal):
        made = e.ops.constant(value, kind.dtype, value.loc)
    elif value.type.axes or value.type.dtype != kind.dtype:
        return e.report.error(
            f"full takes a scalar {kind.dtype}, not {value.type}",
            node.args[1].loc,
            "cast it" if not value.type.axes else f"x + zeros({kind.dtype}[…]) broadcasts a tile",
        )
    else:
        made = value
    if isinstance(made, Poison) or not kind.axes:
        return made
    names = tuple(a.name for a in kind.axes)
    return typed.Full(made, kind.axes, type=Tile(kind.dtype, names), loc=node.loc)


def zeros(e: Expressions, node: s.Call) -> Entity:
    kind = _tile_type(e, node.args[0])
    zero: int | float | bool = 0
    if isinstance(kind, TileType):
        zero = False if kind.dtype == BOOL else 0.0 if kind.dtype.is_float else 0
    return _new(e, kind, Literal(zero, loc=node.loc), node)


def full(e: Expressions, node: s.Call) -> Entity:
    return _new(e, _tile_type(e, node.args[0]), e.value(node.args[1]), node)


def index(e: Expressions, node: s.Call) -> Entity:
    axis = axis_of(e, node.args[0])
    if isinstance(axis, Poison):
        return axis
    return typed.Index(axis, type=Tile(I32, (axis.name,)), loc=node.loc)


def end(e: Expressions, node: s.Call) -> Entity:
    axis = axis_of(e, node.args[0])
    return axis if isinstance(axis, Poison) else typed.End(axis, type=Tile(I32), loc=node.loc)


def cast(e: Expressions, node: s.Call) -> Entity:
    x, dtype = e.value(node.args[0]), _dtype(e, node.args[1])
    if isinstance(x, Poison) or isinstance(dtype, Poison):
        return POISON
    if isinstance(x, Literal):
        return e.ops.cast_constant(x, dtype)
    return typed.Cast(x, type=Tile(dtype, x.type.axes), loc=node.loc)


def bitcast(e: Expressions, node: s.Call) -> Entity:
    x, dtype = e.typed(node.args[0]), _dtype(e, node.args[1])
    if isinstance(x, Poison) or isinstance(dtype, Poison):
        return POISON
    if BOOL in (x.type.dtype, dtype) and x.type.dtype != dtype:
        hint = "compare, or cast"
        return e.report.error(f"bitcast of {x.type.dtype} to {dtype}", node.loc, hint)
    if x.type.dtype.bits != dtype.bits:
        held = x.type.dtype
        return e.report.error(
            f"bitcast of {held} ({held.bits} bits) to {dtype} ({dtype.bits} bits)",
            node.loc,
            "bitcast keeps the width; cast converts the value",
        )
    return typed.Bitcast(x, type=Tile(dtype, x.type.axes), loc=node.loc)


def where(e: Expressions, node: s.Call) -> Entity:
    cond = e.typed(node.args[0])
    both = e.ops.common([e.value(a) for a in node.args[1:]], node.loc, "`where`", chosen=True)
    if isinstance(cond, Poison) or isinstance(both, Poison):
        return POISON
    if cond.type.dtype != BOOL:
        return e.report.error(
            f"a condition of {cond.type.dtype}", node.args[0].loc, "compare it: x != 0"
        )
    args, dtype = both
    return e.ops.map("where", [cond, *args], dtype, node.loc)


def fma(e: Expressions, node: s.Call) -> Entity:
    values = [e.value(a) for a in node.args]
    found = e.ops.common(values, node.loc, "`fma`")
    if isinstance(found, Poison):
        return found
    args, dtype = found
    if not dtype.is_float:
        return e.report.error(f"`fma` of {dtype}", node.loc, "write a * b + c")
    return e.ops.rounded_once("fma", args, values, dtype, node.loc)


def mulhi(e: Expressions, node: s.Call) -> Entity:
    found = e.ops.common([e.value(a) for a in node.args], node.loc, "`mulhi`")
    if isinstance(found, Poison):
        return found
    args, dtype = found
    if dtype.bits != 32 or dtype.is_float:
        hint = "it gives the upper half of 64 bits: cast(x, u32) or cast(x, i32) first"
        return e.report.error(f"`mulhi` of {dtype}", node.loc, hint)
    return e.ops.map("mulhi", args, dtype, node.loc)


def popcount(e: Expressions, node: s.Call) -> Entity:
    x = e.typed(node.args[0])
    if isinstance(x, Poison):
        return x
    dtype = x.type.dtype
    if dtype.is_float:
        hint = "it works on bits: bitcast to an integer type first"
        return e.report.error(f"`popcount` of {dtype}", node.loc, hint)
    if dtype.bits < 32 and dtype.kind == "int":
        # Without the sign's copies.
        x = typed.Bitcast(x, type=Tile(DTYPES[f"u{dtype.bits}"], x.type.axes), loc=x.loc)
    return e.ops.map("popcount", [e.ops.cast(x, I32)], I32, node.loc)


def lookup(e: Expressions, node: s.Call) -> Entity:
    table, i = e.entity(node.args[0]), e.typed(node.args[1])
    if isinstance(table, Poison) or isinstance(i, Poison):
        return POISON
    if not isinstance(table, TensorRef) or len(table.type.dims) != 1:
        return e.report.error(
            "lookup takes a 1-D tensor first", node.args[0].loc, "lookup(table, i) is table[i]"
        )
    (size,) = table.type.dims
    if not i.type.dtype.is_integer:
        return e.report.error(f"an index of {i.type.dtype}", node.args[1].loc, "cast(x, i32)")
    if wrong := e.outside(table, size, i, node.args[1].loc):
        return wrong
    return typed.Lookup(table, i, type=Tile(table.type.dtype, i.type.axes), loc=node.loc)


# Number of arguments, if fixed; what it does; how it is called.
WORDS: dict[str, tuple[int | None, Word, str]] = {
    "zeros": (1, zeros, "zeros(f32[m, n])"),
    "full": (2, full, "full(f32[m], -inf)"),
    "index": (1, index, "index(m)"),
    "end": (1, end, "end(m)"),
    "cast": (2, cast, "cast(x, f32)"),
    "bitcast": (2, bitcast, "bitcast(x, bf16)"),
    "where": (3, where, "where(condition, a, b)"),
    "fma": (3, fma, "fma(a, b, c) is a * b + c"),
    "mulhi": (2, mulhi, "mulhi(a, b) is the upper half of the 64 bits of a * b"),
    "popcount": (1, popcount, "popcount(x)"),
    "lookup": (2, lookup, "lookup(table, i)"),
    **{name: (None, reduction(name), "") for name in ("sum", "max", "min")},
    **{name: (None, position(name), "") for name in ("argmax", "argmin")},
    "cumsum": (None, cumsum, ""),
    "topk": (None, topk, ""),
}
