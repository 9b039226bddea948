"""Rules of SCHEDULED kernels about steps of loops, dimensions, and bytes of an SMEM item.

An op's accesses follow from its types. The prover bounds computed offsets (`shift`, `start`, an
index).
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir import ops
from wsdsl.ir.effects import Effects, accesses
from wsdsl.ir.op import Kernel, Makers, Op, Problem, Value
from wsdsl.ir.types import DTYPES, Shared, Tensor


def loop_steps_are_positive(kernel: Kernel) -> Iterator[Problem]:
    """A loop's step is known to be positive: also that of a loop without synchronization."""
    for op in kernel.of(ops.ForRange):
        if (_at_least(op.step, kernel.definers) or 0) < 1:
            supported = "constants, CTA counts, and their sums and products"
            yield op, f"the step may be 0 or negative; supported are {supported}"


def _at_least(value: Value, made: Makers) -> int | None:
    """A lower bound of an integer; None if none is known."""
    match made.get(value):
        case ops.Constant(value=int(number)):
            return number
        case ops.SpecialRegister(within=None):
            return 1
        case ops.DimSize():
            return 0
        case ops.Map(fn=fn, args=(x, y)):
            low, other = _at_least(x, made), _at_least(y, made)
            if fn == "max" and (low is None or other is None):
                return other if low is None else low
            if low is None or other is None:
                return None
            least = made.get(y)
            if fn == "floordiv" and isinstance(least, ops.Map) and least.fn == "min":
                return 1 if x in least.args and other > 0 else None
            if fn == "mul":
                return low * other if min(low, other) >= 0 else None
            return {"add": low + other, "min": min(low, other), "max": max(low, other)}.get(fn)
        case _:
            return None


def dimensions_exist(kernel: Kernel) -> Iterator[Problem]:
    made = [op.result.type for op in kernel.of(ops.AllocateGlobal)]
    tensors = [*(p.type for p in kernel.params), *made]
    known = {dim for kind in tensors if isinstance(kind, Tensor) for dim in kind.dims}
    known |= {dim for dim, _ in kernel.sizes}
    for op in kernel.of(ops.DimSize):
        if op.dim not in known:
            yield op, f"no tensor has the dimension {op.dim!r}"


def accesses_fit_items(kernel: Kernel) -> Iterator[Problem]:
    made = kernel.definers
    for op, effects in kernel.effects:
        shared: object = getattr(getattr(op, "shared", None), "type", None)
        if not isinstance(shared, Shared) or isinstance(op, ops.Boxes) or any(op.faults(made)):
            continue
        start, end = reach(op, effects)
        if end > shared.bytes:
            yield op, f"bytes {start} to {end} exceed an item of {shared.bytes} bytes"


def reach(op: Op, effects: Effects) -> tuple[int, int]:
    """Return the range of an item that an op accesses, as far as attributes determine it."""
    if isinstance(op, ops.SmemDescriptor):
        return op.offset, op.offset + DTYPES[op.dtype].size(op.columns) * op.rows
    spans = [s for a in accesses(effects, "smem") for warp in a.spans for s in warp]
    ranges = [span.within or (span.start, span.start + span.size) for span in spans]
    end = max(
        (min(x, span.limit or x) for (_, x), span in zip(ranges, spans, strict=True)), default=0
    )
    return min((start for start, _ in ranges), default=0), end
