"""How many instructions of the machine code ops come to, for each element of what they compute."""

from wsdsl.ir import ops
from wsdsl.ir.op import Op
from wsdsl.ir.types import DType, Fragment, Tile, Type

COUNTED = {
    "exp": 8, "exp2": 8, "log": 27, "log2": 31, "sqrt": 5, "rsqrt": 5, "sin": 25, "cos": 25,
    "tanh": 20, "sigmoid": 16, "silu": 16, "erf": 25, "gelu": 11, "div": 9, "floordiv": 9,
    "mod": 9, "pow": 78, "max": 2, "min": 2, "popcount": 8, "mulhi": 2, "byte_of": 1.6, "join": 0.5,
    "byte_of_8": 0.6,
}  # fmt: skip
"""In the machine code of f32 functions, or 8 for each that is special, of which an SM has 16 a
cycle, and 2 for those of which it has 64; of others, that are one, nothing is said here. """
SPECIAL, SPECIAL_LANES = {
    "exp": 1, "exp2": 1, "log": 1, "log2": 1, "sqrt": 1, "rsqrt": 1, "tanh": 2, "sigmoid": 2,
    "silu": 2, "erf": 1, "gelu": 1, "div": 1, "pow": 2,
}, 8  # fmt: skip
"""Of these so many that are special, each counted as 8; and what is in front of and behind it."""
BESIDE_SPECIAL = 2.0
OF_BITS, IN_WORD = ("and", "or", "xor", "shl", "shr"), 4
"""Of u8 these are made four at a time, and so are bytes of nibbles."""
IN_PAIRS = ("add", "sub", "mul", "fma")
"""Of floats of 16 bits these are made two at a time."""
RELAXED = {"gelu": {8: 8, 11: 9}, "tanh": {8: 8}}
"""By the bits that count, where that makes a difference."""
FROM_BYTES = {4: 2.3, 8: 3.0}
"""A conversion to 16 bits, from 8 or from 4 and fewer, with what brings them to registers: in the
machine code of packed weights 1.9 of i4, 2.3 of i8 and 4.0 of f8e4m3, of others 2.7, 3.8 and 3.3.
"""
LOADED, LOADED_NARROW = 6.0, 13.0
"""An element that threads load by themselves: masks, addresses and loads; of less than 32 bits,
which are loaded in pairs where a row lets them, and else singly."""
LOADED_VECTOR = 1.0
"""The same where lanes hold vectors, of 4 to 16 elements a load."""
SINGLY, SINGLY_NARROW = 2.0, 4.0
"""An element that is loaded or stored by itself where rows begin anywhere: a mask, the access, and
what puts two of less than 32 bits into a register. In the machine code of rmsnorm 16384 x 4099 an
access takes 3, and 5 in a cluster, which has more masks.
"""
TURNED = 1.0
"""An element that goes through SMEM to change rows for columns: half a `prmt`, half a store or
less, and an eighth of a load."""
SCANNED = 3.0
"""Of an element that is added to those before it: in its vector, and what is in front of that."""
REDUCED = {"add": 1.0, "max": 2.0, "min": 2.0}
"""Of an element that is reduced; the few shuffles of a row are not counted."""


def of_load(kind: DType, vectors: bool = False) -> float:
    """Instructions for an element that threads load by themselves."""
    if vectors:
        return LOADED_VECTOR
    return LOADED if kind.bits >= 32 else LOADED_NARROW


def of_access(op: ops.Load | ops.Store, striped: bool) -> float:
    """Instructions for an element that threads which hold vectors load or store."""
    if striped:
        return SINGLY if op.dtype.bits >= 32 else SINGLY_NARROW
    return LOADED_VECTOR if isinstance(op, ops.Load) else 0.0


def instructions(op: Op) -> tuple[float, tuple[str, ...]] | None:
    """For each element, and the axes along which these lie; None if an op computes no tile."""
    counted = per_element(op)
    axes = counted[1].axes if counted and isinstance(counted[1], Tile) else ()
    return (counted[0], axes) if counted and axes else None


def by_unit(op: Op, counted: float) -> tuple[float, float]:
    """What an op is counted as, as instructions that are issued, and those of the exp unit among
    them: where other warps run meanwhile, the larger share of the two is the limit.
    """
    special = SPECIAL.get(op.fn, 0) if isinstance(op, ops.Map) else 0
    others = max(counted - SPECIAL_LANES * special, BESIDE_SPECIAL * special)
    return (others + special, special) if special else (counted, 0)


def per_element(op: Op) -> tuple[float, Type] | None:
    """For each element, and what has these. A conversion to 16 bits makes two elements."""
    match op:
        case ops.Map(fn=fn, result=result) if fn in OF_BITS and _is_u8(result.type):
            return 1 / IN_WORD, result.type
        case ops.Map(fn=fn, result=result) if fn in IN_PAIRS and _is_half(result.type):
            return 0.5, result.type
        case ops.Cast(x=x, result=result) if _is_u8(result.type) and _bits(x.type) == 4:
            return 1 / IN_WORD, result.type
        case ops.Map(fn=fn, result=result, bits=bits):
            fewer = (n for most, n in RELAXED.get(fn, {}).items() if bits <= most)
            return float(next(fewer, COUNTED.get(fn, 1))), result.type
        case ops.Cast(x=x, result=result):
            made, given = result.type, x.type
            bits, narrow = _bits(given), 0 < _bits(made) <= 16
            if 0 < bits <= 8:
                return FROM_BYTES[4 if bits <= 4 else 8], made
            return 0.5 if narrow else 1.0, made
        case (
            ops.Reduce(x=x, fn=fn)
            | ops.ReduceBlocks(x=x, fn=fn)
            | ops.ReduceColumns(x=x, fn=fn)
            | ops.StorePartials(x=x, fn=fn)
        ):
            return REDUCED[fn], x.type
        case ops.Scan(x=x) | ops.ScanColumns(x=x):
            return SCANNED, x.type
        case ops.Bitcast(result=result) | ops.Lookup(result=result):
            return 1.0, result.type
        case _:
            return None


def _bits(kind: Type) -> int:
    """Of an element; 0 of what has none."""
    return kind.dtype.bits if isinstance(kind, (Tile, Fragment)) else 0


def _is_u8(kind: Type) -> bool:
    return isinstance(kind, (Tile, Fragment)) and kind.dtype.name == "u8"


def _is_half(kind: Type) -> bool:
    return isinstance(kind, (Tile, Fragment)) and kind.dtype.is_float and kind.dtype.bits == 16
