"""Bound the difference between a result and the reference by the effect of rounding.

The reference sums in float64 and rounds each operation once. A scheduled kernel adds in another
order, and applies a factor of an operand after the matmul. So the reference is evaluated again with
every inexact sum perturbed by as much as another order could (some ulps of the sum of the terms'
sizes): up and down at random, and the reverse. An operand computed from such a sum, or from a
function, may round the other way: its matmul is perturbed by some ulps of its largest term. Where
no evaluation differs, the result must be exact. Elsewhere a float may be off by `SLACK` times the
spread of these evaluations (or the tensor's mean spread, if larger) and two of its ulps; integers
by that, rounded up; of `bool` as many elements as differ among them. NaN or infinity in all
evaluations must be in the result.

The reference under other tile sizes has the same bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Value, bound, operands, results_of
from wsdsl.ir.rewriter import used_inside
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference import arithmetic, numpy_evaluation
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.reference.bound_arrays import bind_arguments, unpack_nibbles

SLACK = 16.0
PAIRS = 2
ULPS = {"f32": 2.0**-23, "tf32": 2.0**-10, "bf16": 2.0**-7, "f16": 2.0**-10, "f8e4m3": 2.0**-3,
        "f8e5m2": 2.0**-2}  # fmt: skip

INEXACT = {"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid",
           "div", "pow"}  # fmt: skip
"""Functions that a kernel may compute in another way."""


class _Moved(numpy_evaluation._Evaluator):
    """The reference with sums moved by what another order of summation could do to them."""

    def __init__(
        self, kernel: Kernel, arguments: Any, seed: int, sign: float, ways: tuple[float, ...]
    ) -> None:
        super().__init__(arguments, {})
        self.rng, self.sign, self.ways = np.random.default_rng(seed), sign, ways
        self.shifted = False
        self.of_sums = _made_of(kernel, lambda op: isinstance(op, ops.Contract | ops.Reduce))
        self.of_functions = _made_of(
            kernel, lambda op: isinstance(op, ops.Map) and op.fn in INEXACT
        )
        self.carried = {
            v for op in kernel.ops if isinstance(op, ops.ForTiles) and op.init
            for inner in op.body if isinstance(inner, ops.Map) for v in [inner.result]
        }  # fmt: skip

    def compute(self, op: Op) -> Array:
        held = super().compute(op)
        match op:
            case ops.Contract() if held.dtype == np.float32:
                for side in (op.a, op.b):
                    if side in self.of_functions or (self.shifted and side in self.of_sums):
                        ulp = ULPS[side.as_tile.dtype.name]
                        held = self.moved(held, self.largest_terms(op), False, ulp)
                terms, exact = self.terms(op)
                return self.moved(held, terms, exact, ULPS["f32"])
            case ops.Reduce(fn="add") if held.dtype.kind not in "iub":
                x = arithmetic.widen(self.values[op.x.name]).astype(np.float64)
                axis = op.x.as_tile.axes.index(op.axis)
                total = np.abs(x).sum(axis=axis)
                name = numpy_evaluation.dtype_of(op.x).name
                return self.moved(held, total, _exact(x, total, axis), ULPS[name])
            case ops.Map(fn="add" | "sub" | "mul" | "fma") if op.result in self.carried:
                if held.dtype != np.float32:
                    return held
                a, b, *rest = (self.place(v, op.result.as_tile.axes) for v in op.args)
                wide = a.astype(np.float64)
                full = wide + b if op.fn == "add" else wide - b if op.fn == "sub" else wide * b
                full = full + rest[0] if rest else full
                size = np.maximum(np.abs(a), np.abs(b)) if op.fn in ("add", "sub") else np.abs(held)
                return self.moved(held, size, bool(np.all(_same(held, full))), ULPS["f32"])
            case _:
                return held

    def store(self, op: ops.Store) -> None:
        """What is added to memory is added in any order, and rounded each time."""
        tensor = self.arguments.tensors[op.tensor.name]
        before = np.array(tensor.array)
        super().store(op)
        if not op.accumulate or not tensor.dtype.is_float:
            return
        both = np.stack((before, tensor.array)).astype(np.float64)
        size = np.abs(both).max(0, initial=0)
        ulp = ULPS[tensor.dtype.name]
        most = float(np.max(np.where(np.isfinite(size), size, 0), initial=0))
        exact = ulp == ULPS["f32"] and most <= _step(both) * 2.0**24
        tensor.array[...] = self.moved(tensor.array, size, exact | (both[0] == both[1]), ulp)

    def terms(self, op: ops.Contract) -> tuple[Array, bool]:
        """The sum of the terms' sizes, and whether every order of adding them is exact."""
        a, b = op.a.as_tile.axes, op.b.as_tile.axes
        shared = [x for x in a if x in b]
        wide = [x.astype(np.float64) for x in self.operands(op)]
        where = [a.index(x) for x in shared], [b.index(x) for x in shared]
        with np.errstate(all="ignore"):
            total = np.tensordot(np.abs(wide[0]), np.abs(wide[1]), where)
        free = [x for x in (*a, *b) if x not in shared]
        axes = op.result.as_tile.axes
        total = total.transpose([free.index(x) for x in axes])
        step = _step(wide[0]) * _step(wide[1])
        if op.acc is not None:
            acc = self.place(op.acc, axes).astype(np.float64)
            total, step = total + np.abs(acc), min(step, _step(acc))
        most = float(np.max(np.where(np.isfinite(total), total, 0), initial=0))
        return total, most <= step * 2.0**24

    def largest_terms(self, op: ops.Contract) -> Array:
        """The size of the largest term of each sum."""
        a, b = op.a.as_tile.axes, op.b.as_tile.axes
        axes = op.result.as_tile.axes
        (shared,) = (x for x in a if x in b)
        x, y = (np.abs(x.astype(np.float64)) for x in self.operands(op))
        x = np.moveaxis(x, a.index(shared), -1)
        y = np.moveaxis(y, b.index(shared), -1)
        with np.errstate(all="ignore"):
            found = (x[:, None, :] * y[None, :, :]).max(-1, initial=0)
        return found if axes[0] in a else found.T

    def moved(self, held: Array, size: Array, exact: Any, ulp: float) -> Array:
        if np.all(exact):
            return held
        self.shifted = True
        with np.errstate(all="ignore"):
            steps = self.sign * self.rng.choice(self.ways, np.shape(held))
            shift = steps * size * ulp
            shift = np.where(np.isfinite(shift) & ~np.asarray(exact), shift, 0)
            return (held.astype(np.float64) + shift).astype(held.dtype)


def _made_of(kernel: Kernel, seed: Callable[[Op], bool]) -> frozenset[Value]:
    """All that comes of the results of such ops, in whatever iteration."""
    found = {v for op in kernel.ops if seed(op) for v in results_of(op)}
    known = -1
    while known < len(found):
        known = len(found)
        for op in kernel.ops:
            if found & {*operands(op), *used_inside(op)}:
                found.update(results_of(op), bound(op))
    return frozenset(found)


def _step(x: Array) -> float:
    """A power of two of which all (finite) values are multiples; 0 if there is no good one."""
    finite = np.where(np.isfinite(x), x, 0)
    for bits in (0, 2, 4, 8, 12):
        scaled = finite * 2.0**bits
        if np.array_equal(scaled, np.rint(scaled)):
            return 2.0**-bits
    return 0.0


def _exact(x: Array, total: Array, axis: int) -> Any:
    """Whether every order of adding up is exact in f32."""
    most = float(np.max(np.where(np.isfinite(total), total, 0), initial=0))
    return most <= _step(x) * 2.0**24


def _same(held: Array, full: Array) -> Any:
    return (held == full) | ~np.isfinite(full)


def moved(kernel: Kernel, arrays: Mapping[str, Any], seed: int) -> list[dict[str, Any]]:
    """What the arrays may hold afterwards: as the reference has it, and with its sums moved."""
    found = [evaluated(kernel, arrays)]
    for i in range(2 * PAIRS):
        copy = copied(arrays)
        arguments = bind_arguments(kernel, copy)
        with np.errstate(all="ignore"):
            # Of a pair, moves in one direction do not make up for each other.
            ways = (1.0, 2.0) if i < 2 else (-2.0, -1.0, 1.0, 2.0)
            _Moved(kernel, arguments, seed + i // 2, (-1.0) ** i, ways).start(kernel)
        arguments.write_back()
        found.append(copy)
    return found


def evaluated(
    kernel: Kernel, arrays: Mapping[str, Any], tile: dict[str, int] | None = None
) -> dict[str, Any]:
    """What the arrays hold afterwards, by tiles of that size."""
    copy = copied(arrays)
    with np.errstate(all="ignore"):
        numpy_evaluation.evaluate(kernel, copy, tile)
    return copy


def copied(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {n: np.array(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}


def difference(got: Any, samples: list[Any], dtype: str) -> str:
    """What is wrong about an array, given what it might be; "" if nothing is."""
    if not np.size(got):
        return ""
    if DTYPES[dtype].bits == 4:
        got, *samples = (_nibbles(x, dtype) for x in (got, *samples))
    wide = [_wide(s) for s in samples]
    held = _wide(got)
    stack = np.stack(wide)
    if dtype not in ULPS:
        spread = stack.max(0) - stack.min(0)
        if dtype == "bool":
            wrong = (held != stack).all(0)
            few = int(wrong.sum()) <= SLACK * int((spread != 0).sum())
            return "" if few else _told(wrong, held, wide[0])
        wrong = np.abs(held - stack).min(0) > np.ceil(SLACK * np.maximum(spread, spread.mean()))
        return _told(wrong, held, wide[0])
    with np.errstate(all="ignore"):
        finite = np.isfinite(stack).all(0)
        kinds = np.stack([_kind(s) for s in wide])
        agreed = (kinds == kinds[0]).all(0)
        wrong = agreed & (_kind(held) != kinds[0])
        spread = np.where(finite, stack.max(0) - stack.min(0), 0)
        typical = float(np.mean(spread[finite])) if finite.any() else 0.0
        size = np.where(finite, np.abs(stack).max(0), 0)
        moved = typical > 0
        tolerance = SLACK * np.maximum(spread, typical) + moved * 2 * ULPS[dtype] * size
        outside = np.abs(held - stack).min(0) > tolerance
        wrong |= finite & np.isfinite(held) & outside
    return _told(wrong, held, wide[0])


def _nibbles(x: Any, dtype: str) -> Array:
    return unpack_nibbles(x, DTYPES[dtype], 2 * x.shape[-1])


def _wide(x: Any) -> Array:
    x = np.asarray(x)
    return x.astype(np.int64) if x.dtype.kind in "iub" else x.astype(np.float64)


def _kind(x: Array) -> Array:
    """0 of a number, 1 of NaN, 2 and 3 of the infinities."""
    return np.isnan(x) + 2 * np.isposinf(x) + 3 * np.isneginf(x)


def _told(wrong: Array, held: Array, want: Array) -> str:
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} differ; at {at} {held[at]} instead of {want[at]}"
