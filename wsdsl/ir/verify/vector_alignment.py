"""Rules of SCHEDULED kernels about alignment: of boxes that TMA copies, and of vectors.

Coordinates and indices are computed: by which power of two each i32 is divisible is read off the
ops that compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, gcd

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import PACKED_LINES, PACKED_SPAN, SWIZZLE_SPAN
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.op import Kernel, Makers, Op, Problem, Value, once, regions, results_of
from wsdsl.ir.ops import Constant, DimSize, ForRange, If, Iota, Map
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import Fragment, Tile

MOST = 1 << 10
"""Integers wrap: only divisors that are powers of two survive that."""


@once
def divisors_of(kernel: Kernel) -> dict[Value, int]:
    """Return the power of two, MOST at the most, that divides an integer in every iteration. For an
    index of columns it divides the first column.
    """
    found = dict.fromkeys(kernel.params, 1)

    def of(*values: Value) -> int:
        return gcd(MOST, *(found.get(x, MOST) for x in values))

    def results(op: Op) -> Iterator[tuple[Value, int]]:
        match op:
            case If(result=(*given,)):
                several = zip(given, yielded(op.then), yielded(op.orelse), strict=True)
                yield from ((value, of(*each)) for value, *each in several)
            case ForRange():
                handed = yielded(op.body)
                yield op.index, of(op.start, *(handed[-1:] if op.claimed else (op.step,)))
                several = (*zip(op.args, op.init, handed), *zip(op.result, op.init, handed))
                yield from ((value, of(*each)) for value, *each in several)
            case _:
                yield from ((value, _divisor(op, kernel, of)) for value in results_of(op))

    read = [op for op in kernel.ops if regions(op) or any(map(_is_integer, results_of(op)))]
    nested, changed = [op for op in read if regions(op)], True
    while changed:
        found.update(item for op in read for item in results(op))
        # Only an op with regions reads values that are defined after it.
        changed = any(found[value] != new for op in nested for value, new in results(op))
    return found


def _divisor(op: Op, kernel: Kernel, of: Callable[..., int]) -> int:
    """Return the divisor of the result of an op without regions; `of`: that of values."""
    match op:
        case Constant(value=int(number)):
            return gcd(MOST, number)
        case DimSize():
            return gcd(MOST, dict(kernel.sizes).get(op.dim, 1))
        case Iota():
            return of(op.start) if _columns(op.result) > 1 else 1
        case Map(fn="sub", args=(x, y)) if rest := _modulus(kernel.definers.get(y), x):
            return of(rest)
        case Map(fn="mul", args=(x, y)):
            return gcd(MOST, of(x) * of(y))
        case Map(fn="add" | "sub" | "min" | "max" | "mod" | "where", args=(*_, x, y)):
            return of(x, y)
        case _:
            return 1


def _modulus(op: Op | None, of: Value) -> Value | None:
    """Of the remainder of a value."""
    return op.args[1] if isinstance(op, Map) and op.fn == "mod" and op.args[0] == of else None


def boxes_are_aligned(kernel: Kernel) -> Iterator[Problem]:
    made, divisors = kernel.definers, divisors_of(kernel)
    for op in (op for op in kernel.having("map") if isinstance(op, ops.ByTensorMap)):
        if (box := op.tensor_map(made)) is None:
            continue
        packed = box.swizzle in PACKED_SPAN
        unit = PACKED_LINES if packed else ceil(8 * TMA_ALIGN / box.tensor.as_tensor.dtype.bits)
        for value in op.coordinates[-2 if packed else -1 :]:
            if divisors[value] % unit:
                yield op, f"{value} is not known to be a multiple of {unit} elements"
        span = 8 * SWIZZLE_SPAN[box.swizzle]
        shift: Value | None = getattr(op, "shift", None)
        if shift is not None and divisors[shift] % span:
            yield op, f"shift={shift} is not known to be a multiple of {span} bytes"


def vectors_are_aligned_columns(kernel: Kernel) -> Iterator[Problem]:
    made, divisors = kernel.definers, divisors_of(kernel)
    for op in kernel.having("vector"):
        if isinstance(op, ops.ByElements) and op.vector > 1:
            last = op.index[-1].type if op.index else None
            held = last.lanes.vector if isinstance(last, Fragment) and not last.lanes.striped else 1
            if held % op.vector or _columns(op.index[-1]) % op.vector:
                yield op, f"vector={op.vector}: the last index has no such groups of columns"
            elif divisors[op.index[-1]] % op.vector or not _in_order(op.index[-1], made):
                told = f"{op.index[-1]} is not known to start at a multiple and to increase by 1"
                yield op, f"vector={op.vector}: {told}"


def _in_order(index: Value, made: Makers) -> bool:
    """Whether columns are neighbors: an iota, with the same number added or modulo one."""
    match made.get(index):
        case Iota():
            return True
        case Map(fn="add" | "sub" | "mod" as fn, args=(x, y)):
            x, y = (y, x) if fn == "add" and _columns(x) == 1 else (x, y)
            return _columns(y) == 1 and _in_order(x, made)
        case _:
            return False


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Fragment | Tile) and value.type.dtype.is_integer


def _columns(value: Value) -> int:
    return value.type.columns if isinstance(value.type, Fragment) else 1
