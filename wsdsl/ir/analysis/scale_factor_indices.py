"""Recognize indices of block scale factors in atoms (`ir/hardware/scale_factor_atoms.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from wsdsl.ir.hardware.block_scale_factors import KINDS
from wsdsl.ir.hardware.scale_factor_atoms import BLOCKS, ROWS, SHAPE, place_of
from wsdsl.ir.op import Kernel, Makers, Value
from wsdsl.ir.ops import Constant, Index, Load, Map
from wsdsl.ir.types import Tensor

MOST = 4096
"""Rows, or elements along the contraction axis, at which an index is evaluated."""


def in_atoms(load: Load) -> bool:
    """Return whether a load is of a tensor of atoms, indexed by rows and the contraction axis."""
    return load.block > 1 and len(load.tensor.as_tensor.dims) == len(load.index) + 2


def unaligned_scales(kernel: Kernel) -> list[str]:
    """Tensors of scales whose rows TMA cannot take, for which instructions take none."""
    types = {p.name: p.type.dtype.name for p in kernel.params if isinstance(p.type, Tensor)}
    fit = (k.scale for k in KINDS if any(k.code(t) is not None for t in types.values()))
    scales = {*fit} if kernel.target.has_tensor_memory else set[str]()
    return [name for name in kernel.unaligned if types[name] in scales]


class Term(NamedTuple):
    """A number that depends on one index, by `axis`, or on none. Behind `period` places it is more
    by `more`, and so on.
    """

    axis: str
    of: Callable[[int], int]
    period: int = 1
    more: int = 0


def block_in_atoms(load: Load, rows: str, summed: str, made: Makers, blocks: Sequence[int]) -> int:
    """Of how many elements the blocks are whose scales an index finds in atoms; 0 if it says
    anything else. `blocks` are those that may be.
    """
    kind, entries = load.tensor.type, load.index[-4:]
    if not isinstance(kind, Tensor) or kind.dims[-2:] != SHAPE or kind.dtype.bits != 8:
        return 0
    sums = [_terms(v, made) for v in entries]
    if any(sum is None or {t.axis for t in sum} - {rows, summed, ""} for sum in sums):
        return 0
    told = [sum for sum in sums if sum is not None]

    def agree(axis: str, unit: int, wanted: Callable[[int], tuple[int, ...]]) -> bool:
        """At every place along one axis, at the first of the other."""
        period = math.lcm(unit, *(t.period for sum in told for t in sum if t.axis == axis))
        return period <= MOST and all(
            tuple(sum([t.of(at if t.axis == axis else 0) for t in s]) for s in told) == wanted(at)
            for at in range(2 * period)
        )

    # Entries are sums of what each index says, and so are places in atoms.
    for block in blocks:
        along = agree(summed, BLOCKS * block, lambda at, block=block: place_of(0, at // block))
        if along and agree(rows, ROWS, lambda at: place_of(at, 0)):
            return block
    return 0


def _terms(value: Value, made: Makers) -> list[Term] | None:
    """Return the terms of an index; None if they are not known."""
    match made.get(value):
        case Index(axis=axis):
            return [Term(axis.as_axis.name, lambda at: at, 1, 1)]
        case Constant(value=int(number)):
            return [Term("", lambda _: number)]
        case Map(fn="add", args=(x, y)):
            a, b = _terms(x, made), _terms(y, made)
            return None if a is None or b is None else [*a, *b]
        case Map(fn="mul", args=(x, y)):
            a, b = (x, y) if isinstance(made.get(y), Constant) else (y, x)
            found, by = _terms(a, made), made.get(b)
            if found is None or not isinstance(by, Constant) or by.value < 0:
                return None
            return [_times(t, int(by.value)) for t in found]
        case Map(fn="floordiv" | "mod" as fn, args=(x, y)):
            found, by = _terms(x, made), made.get(y)
            if found is None or len(found) != 1 or not isinstance(by, Constant) or by.value < 1:
                return None
            return [_divided(found[0], fn, int(by.value))]
        case _:
            return None


def _times(term: Term, by: int) -> Term:
    return term._replace(of=lambda at: term.of(at) * by, more=term.more * by)


def _divided(term: Term, fn: str, by: int) -> Term:
    times = by // math.gcd(by, term.more)
    period, whole = term.period * times, term.more * times // by
    if fn == "mod":
        return term._replace(of=lambda at: term.of(at) % by, period=period, more=0)
    return term._replace(of=lambda at: term.of(at) // by, period=period, more=whole)
