"""Reduce the precision of functions to the bits that are kept of their results (TILE).

Before:
    %g: f32[m, n] = map(fn="gelu", args=(%x,))
    %wide: f32[m, n] = cast(x=%residual)
    %s: f32[m, n] = map(fn="add", args=(%g, %wide))
    store(tensor=%C, index=(%m, %n), value=%s)
After:
    %g: f32[m, n] = map(fn="gelu", args=(%x,), bits=8)

A relative error passes products, quotients and choices as it is, and is lost where they are rounded
to fewer bits, as those of a tensor. If two such functions are multiplied, their errors add, so each
needs one bit more. An error also passes a sum with a loaded value of no more bits, a residual.
Other sums could cancel, above all a difference of a rounded and an exact value. A reduction of n
elements has an error of n * 2^-24 of their magnitudes: if there are many, each may have the error
that `SUMMED_BITS` allows. Values stored in f32, or used by another reduction or iteration, stay
exact.

Why here: before anything counts instructions.
"""

from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.op import Kernel, Op, Value, operands, with_fields
from wsdsl.ir.ops import Cast, ForTiles, Load, Map, Reduce, Store
from wsdsl.ir.rewriter import rewrite, walk
from wsdsl.ir.types import F32, Tensor, Tile
from wsdsl.lowering.axes import axes_of

RELAXED = ("exp", "gelu", "sigmoid", "silu", "tanh")
"""The functions that have a faster approximation."""
PASSING = ("neg", "abs", "relu", "min", "max", "where")
EXACT = F32.significant_bits
SUMMED_BITS, MANY = 15, 256
"""Bits of each of at least `MANY` elements whose sum may have an error of 2^-16 of their
magnitudes. An approximation to these bits has an error of 2^-17.
"""


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
        """Return the bits of the operand that the op needs."""
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

    # Uses follow definitions, except in the next iteration, which a yield forwards to.
    for op in reversed([*walk(kernel.body)]):
        for value in operands(op):
            needed[value] = max(needed.get(value, 0), min(_bits(value), passed(op, value)))
    return needed


def _long_axes(kernel: Kernel) -> set[str]:
    """Return the axes along which sums have `MANY` elements: in a whole dimension, or in a tile."""
    known = dict(kernel.sizes)
    parts = {op.index.as_axis.name for op in kernel.of(ForTiles) if walks_a_part(op)}
    sizes = {name: axis.size or known.get(axis.dim, 0) for name, axis in axes_of(kernel).items()}
    return {name for name, size in sizes.items() if name not in parts and size >= MANY}


def _relaxable(kernel: Kernel) -> set[Value]:
    """Return the values computed from a function that has an approximation."""
    found: set[Value] = set()
    for op in walk(kernel.body):
        if isinstance(op, Map) and (op.fn in RELAXED or found & {*op.args}):
            found.add(op.result)
    return found


def _bits(value: Value) -> int:
    dtype = value.type.dtype if isinstance(value.type, (Tile, Tensor)) else F32
    return dtype.significant_bits if dtype.is_float else EXACT
