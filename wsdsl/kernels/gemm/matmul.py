"""`wsdsl.kernels.matmul`: one function for the matrix products that people run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never

from wsdsl.diagnostics import LaunchError, unknown_names
from wsdsl.dispatch.callee import repeated
from wsdsl.dispatch.dispatcher import OnMiss
from wsdsl.dynamo import opaque
from wsdsl.kernels.gemm.call_plan import OPERANDS, Plan, make_plan
from wsdsl.kernels.gemm.matmul_call import Product
from wsdsl.kernels.gemm.matmul_dtypes import wrong_option
from wsdsl.kernels.gemm.matmul_source import ACTIVATIONS
from wsdsl.kernels.gemm.operands import ARRAYS, Options
from wsdsl.kernels.torch_ops import implements_matmul, needs_operator, traced_matmul
from wsdsl.lazy import remember
from wsdsl.runtime.arrays.interop import allocate, allocator, describe
from wsdsl.runtime.arrays.views import ArrayView
from wsdsl.runtime.recent import Look, Recent, Start
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from wsdsl.tune import Tuned

Activation = Literal["relu", "gelu", "silu", "sigmoid", "tanh"]
NUMBERS = (int, float)
MAX_PLANS = 1024
"""Geometries of calls that are remembered."""


class Matmul:
    """See `__call__`. `plan(…)` takes the same arguments, and returns the matmul without a run."""

    positional = (
        "a", "b", "bias", "activation", "residual", "out_dtype", "scales", "out", "accumulate",
    )  # fmt: skip
    """Names of the positional parameters."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._recent = Recent(is_operator=True)

    def __repr__(self) -> str:
        return "<function wsdsl.kernels.matmul>"

    @partial(repeated, traced=True)
    @partial(opaque, traced=traced_matmul)
    def __call__(
        self,
        a: Any,
        b: Any,
        bias: Any = None,
        activation: Activation | None = None,
        residual: Any = None,
        out_dtype: Any = None,
        scales: tuple[Any, Any] | None = None,
        out: Any = None,
        accumulate: bool = False,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        operand_dtype: Any = None,
        constant: Sequence[str] = (),
        schedule: Schedule | None = None,
        stream: Any = None,
        exact: bool | None = None,
        on_miss: OnMiss | None = None,
        **unknown: Never,
    ) -> Any:
        """`activation(scale_a * scale_b * (a @ b) + bias) + residual`, in one kernel.

        a [..., M, K], b [..., K, N] and the result [..., M, N] are as in `torch.matmul`: leading
        dimensions are broadcast, and a vector is a matrix of one row or column. Strides say how a
        matrix is stored, so b may be `w.T` of weights [N, K]. Of 16-bit types either axis may be
        the contiguous one; of others it is K. `transpose_a` and `transpose_b` take [..., K, M] and
        [..., N, K], for arrays without strides.

        Types: both bf16 or both f16; f8e4m3 and f8e5m2 in any pairing; i8 and u8 in any pairing;
        f32 with operand_dtype="tf32", which multiplies 10 bits of the mantissa. A type or a pair of
        types as `operand_dtype` also reinterprets CuPy's bytes.

        bias: [..., N], f32, f16, bf16 or i32
        activation: "relu", "gelu" (the exact one), "silu", "sigmoid" or "tanh"
        residual: [..., M, N], added after the activation
        out_dtype: as "bf16", wsdsl.bf16 or torch.bfloat16. Default: the type of 16-bit operands,
            f32 of tf32, bf16 of fp8, i32 of integers, and bf16 if they are scaled. The result is
            computed in f32 (i32 as long as all is integer) and rounded once; fp8 and integers
            saturate, and floats are rounded to the nearest integer.
        scales: (scale_a, scale_b), each None, a number, or an f32 array: one element, [..., M] of a
            and [..., N] of b (or [..., M, 1] and [..., 1, N]), or for blocks of K of 128 elements
            [..., M, ceil(K / 128)], or for blocks of 128 x 128 [..., ceil(M / 128), ceil(K / 128)],
            and with N for b. Either axis of block scale factors may be the contiguous one.
        out: written, and returned. With accumulate=True the result is added to what it holds.
        constant: the operands, ("b",) for weights, which the kernel in front on the stream does not
            write: they may be loaded before it is complete, which shortens matmuls of few rows.
            This is not checked; if that kernel does write them, results may be wrong.
        schedule: as for kernels; mma_promotion_interval=0 sums fp8 faster and less exactly.
        exact, on_miss: as for kernels.

        Without `out`, torch records gradients of all arrays; autocast casts a and b.
        Arrays are of torch, CuPy, JAX or NumPy, all on one device; it runs as kernels do, on the
        caller's current stream. Raises LaunchError for arrays or options that do not fit (nothing
        has been written then), ScheduleError and CompileError for a schedule that does not.
        """
        if unknown:
            raise _unknown(unknown, Matmul.__call__)
        scale_a, scale_b = (None, None) if scales is None else _pair(scales)
        given = a, b, scale_a, scale_b, bias, residual, out
        options = (
            activation, out_dtype, type(accumulate), accumulate, transpose_a, transpose_b,
            operand_dtype, tuple(constant) if isinstance(constant, list) else constant, exact,
        )  # fmt: skip
        once = not isinstance(constant, (tuple, list))  # it may be an iterator
        look = None if once else self._recent.look(given, options, schedule, stream)
        if out is None and needs_operator(look, operand_dtype, *given):
            result = traced_matmul(
                self, a, b, bias, activation, residual, out_dtype, scales, None, accumulate,
                transpose_a=transpose_a, transpose_b=transpose_b, operand_dtype=operand_dtype,
                constant=constant, schedule=schedule, stream=stream, exact=exact, on_miss=on_miss,
            )  # fmt: skip
            if result is not None:
                return result
        if (done := self._recent.again(look)) is not None:
            return done[0]
        product = self.plan(
            a, b, bias, activation, residual, out_dtype, scales, out, accumulate,
            transpose_a=transpose_a, transpose_b=transpose_b, operand_dtype=operand_dtype,
            constant=constant,
        )  # fmt: skip
        start = look and self._start(look, product, given)
        return product.run(schedule, stream, start, exact=exact, on_miss=on_miss)

    def _start(self, look: Look, product: Product, given: tuple[Any, ...]) -> Start:
        """Runs the product, and knows calls that look the same from then on."""
        plan = product.plan
        params = [(s.param, s.argument) for s in plan.slots] + [(n, n) for n in plan.numbers]
        places = [(param, ARRAYS.index(argument)) for param, argument in params]
        sources = {param: i for param, i in places if given[i] is not None}
        make = allocator(describe(given[0]), plan.shape, plan.dtype)
        return partial(self._recent.first, look, sources=sources, makers={"out": make})

    @opaque
    def plan(
        self,
        a: Any,
        b: Any,
        bias: Any = None,
        activation: Activation | None = None,
        residual: Any = None,
        out_dtype: Any = None,
        scales: tuple[Any, Any] | None = None,
        out: Any = None,
        accumulate: bool = False,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        operand_dtype: Any = None,
        constant: Sequence[str] = (),
        **unknown: Never,
    ) -> Product:
        """The product that the same call would run: its kernel can be compiled, explained, proved
        and simulated. The result's array is allocated, if it is not given.
        """
        if unknown:
            raise _unknown(unknown, Matmul.plan)
        scale_a, scale_b = (None, None) if scales is None else _pair(scales)
        given = a, b, scale_a, scale_b, bias, residual, out
        views: dict[str, ArrayView] = {}
        numbers: dict[str, float] = {}
        key: list[Any] = [
            activation, out_dtype, accumulate, transpose_a, transpose_b, operand_dtype,
        ]  # fmt: skip
        for name, held in zip(ARRAYS, given):
            if held is None:
                key.append(None)
            elif isinstance(held, NUMBERS):
                numbers[name] = held
                key.append(name)
            else:
                views[name] = view = describe(held, name)
                key += (
                    view.dtype.name, view.shape, view.strides, view.pointer & 15,
                    view.device, view.readonly, view.framework,
                )  # fmt: skip
        try:
            plan = self._plans.get(remembered := tuple(key))
        except TypeError:  # an option that cannot be hashed
            plan, remembered = None, None
        if plan is None:
            options = Options(
                activation, out_dtype, accumulate, transpose_a, transpose_b, operand_dtype,
                tuple(numbers),
            )  # fmt: skip
            plan = _planned(views, options)
            if remembered is not None:
                remember(self._plans, remembered, plan, MAX_PLANS)
        if out is None:
            out = allocate(views["a"], plan.shape, plan.dtype)
            # JAX's arrays are read-only, but `allocate` has just created this one.
            views["out"] = replace(describe(out), readonly=False)
        walked = {s.param: s.view(views[s.argument]) for s in plan.slots}
        return Product(plan, walked, numbers, out, _constant(constant) if constant else ())

    def kernel(self, *args: Any, **options: Any) -> Any:
        """The Kernel behind a call of the same arguments: one for each form that a product has."""
        return self.plan(*args, **options).kernel

    def tune(
        self,
        *args: Any,
        seconds: float = 60.0,
        candidates: Sequence[Schedule] | int | None = None,
        progress: bool = True,
        plot: str | Path | None = None,
        schedule: Schedule | None = None,
        executor: Executor | None = None,
        **options: Any,
    ) -> Tuned:
        """Measure the best schedules for calls of these arguments, as `Kernel.tune` does; the
        fastest is stored in the tuning cache, and calls of this kernel and bucket run it.

        LaunchError for arguments that do not fit, or without a GPU.
        """
        product = self.plan(*args, **options)
        how = dict(seconds=seconds, candidates=candidates, progress=progress, plot=plot)
        tuned = product.tune(schedule, executor=executor, **how)
        if tuned.winner is not None:
            for plan in [*self._plans.values(), product.plan]:
                if plan.form == product.plan.form:
                    plan.compiled.clear()
            self._recent = Recent(is_operator=True)
        return tuned


def _unknown(names: Iterable[str], call: Callable[..., Any]) -> LaunchError:
    known = sorted({*inspect.signature(call).parameters} - {"self", "unknown"})
    return LaunchError(unknown_names(names, known, "WS0810 matmul()"))


def _constant(names: Any) -> tuple[str, ...]:
    """As the kernel knows them."""
    known = isinstance(names, Iterable) and not isinstance(names, str)
    held: tuple[Any, ...] = tuple(names) if known else ()
    if not known or not all(isinstance(x, str) and x in OPERANDS for x in held):
        raise wrong_option("constant", repr(names), 'names of a and b, as in ("b",)')
    return tuple(OPERANDS[name] for name in held)


def _pair(scales: Any) -> tuple[Any, Any]:
    if not isinstance(scales, tuple | list) or len(scales) != 2:
        raise wrong_option("scales", f"a {type(scales).__name__}", "a pair: (scale_a, None)")
    return _number(scales[0]), _number(scales[1])


def _number(scale: Any) -> Any:
    """NumPy's scalars as numbers of Python, which go with arrays of any device."""
    import numpy

    return scale.item() if isinstance(scale, numpy.generic) else scale


def _planned(views: Mapping[str, ArrayView], options: Options) -> Plan:
    for name in options.numbers:
        if not name.startswith("scale_"):
            raise wrong_option(name, "a number", "an array")
    for name in "ab":
        if name not in views:
            raise wrong_option(name, "None", "an array")
    accumulate: Any = options.accumulate
    if not isinstance(accumulate, bool):
        raise wrong_option("accumulate", repr(accumulate), "True or False")
    activation: Any = options.activation
    named = activation is None or isinstance(activation, str)
    if not named or activation not in (None, *ACTIVATIONS):
        raise wrong_option("activation", repr(activation), f"{', '.join(ACTIVATIONS)} or None")
    return make_plan(views, options)


matmul = implements_matmul(Matmul())
