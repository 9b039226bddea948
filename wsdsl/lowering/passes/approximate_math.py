"""Ask of functions no more than what is kept of their results.

Before:
    %g: f32[m, n] = map(fn="gelu", args=(%x,))
    %wide: f32[m, n] = cast(x=%residual)
    %s: f32[m, n] = map(fn="add", args=(%g, %wide))
    store(tensor=%C, index=(%m, %n), value=%s)
After:
    %g: f32[m, n] = map(fn="gelu", args=(%x,), bits=8)

A relative error passes products, quotients and choices as it is, and is lost where they are rounded
to fewer bits, as those of a tensor. Where two such functions are multiplied their errors come
together, for which a bit more is asked of each. It passes a sum with what was loaded of no more,
a residual. Other sums could cancel, a difference of what is rounded and what is not above all. What
is reduced to a sum of n elements is off by n * 2^-24 of their magnitudes: where there are many,
each may be off by as much as `SUMMED_BITS` allow. What f32 keeps, or another reduction or iteration
takes, stays exact.

Why here: before anything counts instructions.
"""

from __future__ import annotations

from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.op import Kernel, Op, Value, operands, with_fields
from wsdsl.ir.ops import Cast, ForTiles, Load, Map, Reduce, Store
from wsdsl.ir.rewriter import rewrite, walk
from wsdsl.ir.types import F32, Tensor, Tile
from wsdsl.lowering.axes import axes_of

RELAXED = ("exp", "gelu", "sigmoid", "silu", "tanh")
"""The functions of which there are quicker ones."""
PASSING = ("neg", "abs", "relu", "min", "max", "where")
EXACT = F32.significant_bits
SUMMED_BITS, MANY = 15, 256
"""Of each of so many elements, whose sum may be off by 2^-16 of their magnitudes. What is relaxed
to so many bits is off by 2^-17."""


def approximate_math(kernel: Kernel) -> Kernel:
    needed = _needed_bits(kernel)

    def relaxed(op: Op) -> tuple[Op]:
        if isinstance(op, Map) and op.fn in RELAXED:
            bits = needed.get(op.result, EXACT)
            op = with_fields(op, bits=bits) if bits < op.bits else op
        return (op,)

    return kernel.with_body(rewrite(kernel.body, relaxed))


def _needed_bits(kernel: Kernel) -> dict[Value, int]:
    """Of a value's significand, by what becomes of it."""
    made, needed = kernel.definers, dict[Value, int]()
    relaxable, long = _relaxable(kernel), _long_axes(kernel)

    def loaded_bits(value: Value) -> int:
        """The bits that a tensor's elements have; all, if this is anything else."""
        match made.get(value):
            case Load():
                return _bits(value)
            case Cast(x=x) if isinstance(made.get(x), Load):
                return _bits(x)
            case _:
                return EXACT

    def passed(op: Op, value: Value) -> int:
        """What the op needs of the operand."""
        match op:
            case Store(tensor=tensor, value=stored) if value == stored:
                return _bits(tensor)
            case Cast(result=result) if _bits(result) < EXACT:
                return needed.get(result, EXACT)
            case Map(fn=fn, result=result) if fn in PASSING:
                return needed.get(result, EXACT)
            case Map(fn="mul" | "div", result=result, args=args):
                return needed.get(result, EXACT) + (sum(a in relaxable for a in args) > 1)
            case Map(fn="add", result=result, args=args):
                bits = needed.get(result, EXACT)
                others = [a for a in args if a != value]
                return bits if others and loaded_bits(others[0]) <= bits else EXACT
            case Reduce(fn="add", axis=axis):
                return SUMMED_BITS if axis in long else EXACT
            case _:
                return EXACT

    # Uses come behind what they use, but those of another iteration, which a yield hands on.
    for op in reversed([*walk(kernel.body)]):
        for value in operands(op):
            needed[value] = max(needed.get(value, 0), min(_bits(value), passed(op, value)))
    return needed


def _long_axes(kernel: Kernel) -> set[str]:
    """Those along which sums have `MANY` elements: of a whole dimension, or of tiles by so many."""
    known = dict(kernel.sizes)
    parts = {op.index.as_axis.name for op in kernel.of(ForTiles) if walks_a_part(op)}
    sizes = {name: axis.size or known.get(axis.dim, 0) for name, axis in axes_of(kernel).items()}
    return {name for name, size in sizes.items() if name not in parts and size >= MANY}


def _relaxable(kernel: Kernel) -> set[Value]:
    """What is made of a function that may be relaxed."""
    found: set[Value] = set()
    for op in walk(kernel.body):
        if isinstance(op, Map) and (op.fn in RELAXED or found & {*op.args}):
            found.add(op.result)
    return found


def _bits(value: Value) -> int:
    dtype = value.type.dtype if isinstance(value.type, (Tile, Tensor)) else F32
    return dtype.significant_bits if dtype.is_float else EXACT
