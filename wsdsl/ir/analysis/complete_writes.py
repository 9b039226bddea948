"""Which tensors a kernel writes whole: to every element of them some store goes for certain."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from wsdsl.ir.op import Kernel, Region, Value
from wsdsl.ir.ops import Constant, ForEach, ForTiles, If, Store, Whole
from wsdsl.ir.types import Axis, Tensor

MAX_CELLS = 1024
"""Of a tensor's fixed dimensions, whose elements are looked at one by one."""


class _Part(NamedTuple):
    """The region that one store writes: of each dimension the one index, or None for all of it; if
    none of the dimensions `walked` around it is empty.
    """

    tensor: str
    at: tuple[int | None, ...]
    walked: frozenset[str]


def written_whole(kernel: Kernel) -> dict[str, frozenset[str]]:
    """Each tensor that a TILE kernel writes whole, with the dimensions that must not be empty for
    it. Unknown writes (`if`, a scatter, a part of a dimension) counts as not written.
    """
    constants = {op.result: op.value for op in kernel.of(Constant) if isinstance(op.value, int)}
    found: defaultdict[str, list[_Part]] = defaultdict(list)
    for part in _parts(kernel.body, {}, constants):
        found[part.tensor].append(part)
    whole = {
        p.name: _covering(p.type, found[p.name])
        for p in kernel.params
        if isinstance(p.type, Tensor) and p.name in found
    }
    return {name: walked for name, walked in whole.items() if walked is not None}


def _parts(
    region: Region, walked: Mapping[Value, str], constants: Mapping[Value, int]
) -> Iterator[_Part]:
    walked = dict(walked)
    for op in region:
        match op:
            case Whole():
                # It is not a loop, and is never around anything.
                walked[op.result] = ""
            case ForEach():
                yield from _parts(op.body, {**walked, op.index: op.dim}, constants)
            case ForTiles() if op.start is None and op.stop is None:
                yield from _parts(op.body, {**walked, op.index: op.index.as_axis.dim}, constants)
            case If():
                then, orelse = (set(_parts(b, walked, constants)) for b in (op.then, op.orelse))
                yield from then & orelse
            case Store() if not op.accumulate:
                part = _part(op, walked, constants)
                if part is not None:
                    yield part
            case _:
                pass


def _part(op: Store, walked: Mapping[Value, str], constants: Mapping[Value, int]) -> _Part | None:
    at: list[int | None] = []
    used: set[Value] = set()
    for entry, dim in zip(op.index, op.tensor.as_tensor.dims, strict=True):
        along = entry.type.dim if isinstance(entry.type, Axis) else walked.get(entry)
        if entry in constants and isinstance(dim, int):
            at.append(constants[entry])
        elif entry in walked and entry not in used and along == dim:
            at.append(None)
            used.add(entry)
        else:
            return None
    others = frozenset(dim for value, dim in walked.items() if value not in used and dim)
    return _Part(op.tensor.name, tuple(at), others)


def _covering(tensor: Tensor, parts: list[_Part]) -> frozenset[str] | None:
    """The dimensions that must not be empty for the parts to be all of it; None if they are not."""
    fixed = {i: d for i, d in enumerate(tensor.dims) if isinstance(d, int)}
    counted = [i for i in fixed if any(p.at[i] is not None for p in parts)]
    sizes = [fixed[i] for i in counted]
    if math.prod(sizes) > MAX_CELLS:
        return None
    parts = sorted(parts, key=lambda p: len(p.walked))
    needed: frozenset[str] = frozenset()
    for cell in itertools.product(*(range(size) for size in sizes)):
        place = dict(zip(counted, cell, strict=True))
        over = (p for p in parts if all(p.at[i] in (None, place[i]) for i in counted))
        part = next(over, None)
        if part is None:
            return None
        needed |= part.walked
    return needed
