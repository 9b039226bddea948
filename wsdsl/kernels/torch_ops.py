"""Operators `torch.ops.wsdsl.…` of the ready kernels, for traces and gradients."""

import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from importlib import import_module
from itertools import count
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from wsdsl.dispatch.torch_op import DEVICES, define, library, torch_dtype
from wsdsl.dynamo import is_traced
from wsdsl.kernels.gemm.matmul_dtypes import dtype_of
from wsdsl.kernels.matmul_gradients import matmul_backward, operands_of, stored_backward
from wsdsl.runtime.arrays.interop import has_gradient

MATMUL = (
    "Tensor a, Tensor b, Tensor? scale_a, Tensor? scale_b, Tensor? bias, Tensor? residual, "
    "float? number_a, float? number_b, str? activation, str? out_dtype, str? operand_dtype, "
    "str[] constant"
)
TYPED = "str? out_dtype=None"
TARGETS = "Tensor logits, Tensor targets"
ROWS = {
    "rmsnorm_with_rstd": f"Tensor x, Tensor? weight=None, float eps=1e-6, {TYPED} -> x row",
    "rmsnorm_backward": "Tensor grad, Tensor x, Tensor? weight, Tensor rstd -> x",
    "rmsnorm_weight_backward": "Tensor grad, Tensor x, Tensor weight, Tensor rstd -> weight",
    "layernorm_with_statistics": (
        f"Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-5, {TYPED} -> x row row"
    ),
    "layernorm_backward": "Tensor grad, Tensor x, Tensor? weight, Tensor mean, Tensor rstd -> x",
    "layernorm_weight_backward": (
        "Tensor grad, Tensor x, Tensor weight, Tensor mean, Tensor rstd -> weight"
    ),
    "layernorm_bias_backward": "Tensor grad, Tensor bias -> bias",
    "softmax": f"Tensor x, {TYPED} -> x",
    "softmax_backward": f"Tensor grad, Tensor y, {TYPED} -> y",
    "log_softmax": f"Tensor x, {TYPED} -> x",
    "log_softmax_backward": f"Tensor grad, Tensor y, {TYPED} -> y",
    "cross_entropy_with_lse": f"{TARGETS}, int ignore_index=-100 -> row row",
    "cross_entropy_backward": (
        f"Tensor grad, {TARGETS}, Tensor lse, int ignore_index=-100 -> logits"
    ),
}
"""Parameters of functions in `wsdsl.kernels`. A result is like a parameter, or f32 per row."""
FULL = {"rmsnorm": "rmsnorm_with_rstd", "layernorm": "layernorm_with_statistics"}
FLOATS = ("float32", "float16", "bfloat16")
Traced = Callable[..., Any]
Call = TypeVar("Call", bound=Traced)
_modules = sys.modules
_options: ContextVar[dict[str, Any]] = ContextVar("options", default={})  # noqa: B039
_ready: list[bool] = []
_matmul: list[Traced] = []


def register() -> bool:
    """Register the operators. Dynamo runs this function while it traces."""
    if not _ready:
        _ready.append(True)
        _define_rows()
        _define_matmul()
        _define_stored()
    return True


vars(register)["_dynamo_marked_constant"] = True


def _run(name: str, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Run an operator with a kernel's options; None if it does not take these."""
    torch: Any = _modules["torch"]
    given = {name: x for name, x in options.items() if x is not None}
    kinds = torch.Tensor, torch.SymInt, int, float, str, list
    if not all(x is None or isinstance(x, kinds) for x in args):
        return None
    if "out" in given or (given and is_traced()):
        return None
    register()
    operator = getattr(torch.ops.wsdsl, name)
    if not given:
        return operator(*args)
    token = _options.set(given)
    try:
        return operator(*args)
    finally:
        _options.reset(token)


def _with_options(function: Traced, *args: Any) -> Any:
    return function(*args, **_options.get())


def _name(dtype: Any) -> str | None:
    """A type of torch or of the language as text."""
    known = dtype is None or isinstance(dtype, str)
    return dtype if known else getattr(dtype, "__name__", None) or str(dtype)


# Matmul.


def traced_matmul(
    _: Any, a: Any, b: Any, bias: Any = None, activation: str | None = None, residual: Any = None,
    out_dtype: Any = None, scales: Any = None, out: Any = None, accumulate: bool = False, *,
    transpose_a: bool = False, transpose_b: bool = False, operand_dtype: Any = None,
    constant: Sequence[str] = (), **options: Any,
) -> Any:  # fmt: skip
    """Run the operator of a call of `wsdsl.kernels.matmul`; None if it does not take these."""
    both: Any = (None, None) if scales is None else scales
    numbers = [x if isinstance(x, int | float) else None for x in both]
    tensors = [x if number is None else None for x, number in zip(both, numbers)]
    if isinstance(operand_dtype, tuple) or out is not None or accumulate:
        return None
    given = (
        a.mT if transpose_a else a, b.mT if transpose_b else b, *tensors, bias, residual, *numbers,
        activation, _name(out_dtype), _name(operand_dtype), [*constant],
    )  # fmt: skip
    return _run("matmul", given, options)


def needs_operator(look: object, operand_dtype: Any, a: Any, b: Any, *addends: Any) -> bool:
    """Check whether autocast converts an operand, or torch records a gradient: not one of a call
    that has a `look`.
    """
    torch: Any = _modules.get("torch")
    if torch is None:
        return False
    if operand_dtype is None and torch._C._is_any_autocast_enabled():
        devices = {x.device.type for x in (a, b) if isinstance(x, torch.Tensor)}
        wanted = [torch.get_autocast_dtype(d) for d in devices if torch.is_autocast_enabled(d)]
        if wanted and any(_is_float(x) and x.dtype != wanted[0] for x in (a, b)):
            return True
    return look is None and any(map(has_gradient, (a, b, *addends)))


def _is_float(tensor: Any) -> bool:
    return str(tensor.dtype).removeprefix("torch.") in FLOATS


def implements_matmul(call: Call) -> Call:
    """Have the operator `matmul` run this function."""
    _matmul.append(call)
    return call


def _run_matmul(a: Any, b: Any, *given: Any) -> Any:
    *scales, bias, residual, number_a, number_b, activation, out_dtype, operand, constant = given
    scale_a, scale_b = (t if n is None else n for t, n in zip(scales, (number_a, number_b)))
    return _matmul[-1](
        a, b, bias, activation, residual, out_dtype, (scale_a, scale_b), operand_dtype=operand,
        constant=constant, **_options.get(),
    )  # fmt: skip


def _fake_matmul(*given: Any) -> Any:
    """Allocate the result by the rules of `Operands`."""
    result = operands_of(*given)
    return given[0].new_empty(result.shape, dtype=torch_dtype(result.out))


def _define_matmul() -> None:
    torch: Any = _modules["torch"]

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:6])
        ctx.options = inputs[6:]

    def cast(device: str, a: Any, b: Any, *rest: Any) -> Any:
        key = getattr(torch._C.DispatchKey, f"Autocast{device}")
        dtype = torch.get_autocast_dtype(device.lower())
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            operand_dtype = rest[8]
            both = [x.to(dtype) if not operand_dtype and _is_float(x) else x for x in (a, b)]
            return operator(*both, *rest)

    schema, gradient = f"({MATMUL}) -> Tensor", (save, matmul_backward)
    operator = define("wsdsl::matmul", schema, _run_matmul, _fake_matmul, gradient)
    for device in DEVICES:
        library("wsdsl").impl("matmul", partial(cast, device), f"Autocast{device}")


# Matmul with weights of `quantized` and `lossless`.


class Stored:
    """Weights with a number, by which operators find them as long as they exist."""

    def __post_init__(self) -> None:
        vars(self)["number"] = number = next(_numbers)
        _stored[number] = self

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()


_numbers = count()
_stored: WeakValueDictionary[int, Any] = WeakValueDictionary()
STORED = (
    "(Tensor x, SymInt weights, SymInt n, Tensor? bias, Tensor? residual, str? activation, "
    "str? out_dtype, bool constant) -> Tensor"
)


def traced_stored(
    x: Any, weights: Any, bias: Any = None, activation: str | None = None, residual: Any = None,
    out_dtype: Any = None, out: Any = None, *, constant: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """Run the operator of a call of `quantized.matmul`; None if it does not take these."""
    if out is not None or not isinstance(weights, Stored):
        return None
    number, n = weights.number, weights.shape[0]  # pyright: ignore[reportAttributeAccessIssue]
    given = x, number, n, bias, residual, activation, _name(out_dtype), constant
    return _run("stored_matmul", given, options)


def traced_lossless(x: Any, weights: Any, out: Any = None, **options: Any) -> Any:
    """As `traced_stored`, for `lossless.matmul`."""
    return traced_stored(x, weights, out=out, **options)


def _define_stored() -> None:
    def run(
        x: Any, number: int, _: int, bias: Any, residual: Any, activation: Any, out_dtype: Any,
        constant: bool,
    ) -> Any:  # fmt: skip
        weights = _stored[number]
        home = type(weights).__module__.rpartition(".")[0]
        given = dict(bias=bias, residual=residual, activation=activation)
        given = {name: x for name, x in given.items() if x is not None} | _options.get()
        return import_module(home).matmul(
            x, weights, out_dtype=out_dtype, constant=constant, **given
        )

    def fake(x: Any, _: Any, n: Any, *given: Any) -> Any:
        dtype = torch_dtype(dtype_of(given[3], "out_dtype")) if given[3] else x.dtype
        return x.new_empty((*x.shape[:-1], n), dtype=dtype)

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        x, number, n, bias, residual, *options = inputs
        ctx.save_for_backward(x, bias, residual)
        ctx.options = number, n, *options

    define("wsdsl::stored_matmul", STORED, run, fake, (save, stored_backward))


# Rows.


def traced_rows(name: str) -> Traced | None:
    """Return what traces call for a function of `wsdsl.kernels`; None if it has no operator."""
    operator = FULL.get(name, name)
    if name == "cross_entropy":
        return _traced_cross_entropy
    if operator not in ROWS:
        return None
    names = _names(operator)

    def call(*args: Any, **options: Any) -> Any:
        if len(args) > len(names):
            return None
        defaults = dict(eps=1e-5 if name == "layernorm" else 1e-6, ignore_index=-100)
        rest = [options.pop(n, defaults.get(n)) for n in names[len(args) :]]
        args = (*args, *rest)
        args = (*args[:-1], _name(args[-1])) if names[-1] == "out_dtype" else args
        result = _run(operator, args, options)
        return result if operator == name or result is None else result[0]

    return call


def with_gradient(call: Traced, traced: Traced) -> Traced:
    """Have a function run its operator where torch records a gradient."""

    @wraps(call)
    def run(*args: Any, **named: Any) -> Any:
        recorded = any(map(has_gradient, (*args, *named.values())))
        result = traced(*args, **named) if recorded else None
        return call(*args, **named) if result is None else result

    return run


def _traced_cross_entropy(
    logits: Any, targets: Any, reduction: Any = "mean", ignore_index: int = -100, **options: Any
) -> Any:
    from wsdsl.kernels.rows.cross_entropy import reduce

    if reduction not in ("none", "sum", "mean"):
        return None
    result = _run("cross_entropy_with_lse", (logits, targets, ignore_index), options)
    return None if result is None else reduce(result[0], targets, reduction, ignore_index)


def _names(name: str) -> list[str]:
    params = ROWS[name].partition(" -> ")[0].split(", ")
    return [param.split("=")[0].split()[-1] for param in params]


def _define_rows() -> None:
    from wsdsl.kernels.rows import cross_entropy, layernorm, rmsnorm, softmax

    torch: Any = _modules["torch"]

    def fake(name: str, *args: Any) -> Any:
        given = dict(zip(_names(name), args))
        found: list[Any] = []
        for result in ROWS[name].partition(" -> ")[2].split():
            like, dtype = given.get(result), torch.float32
            if like is not None:
                wanted = given.get("out_dtype")
                dtype = torch_dtype(dtype_of(wanted, "out_dtype")) if wanted else like.dtype
            shape = args[0].shape[:-1] if like is None else like.shape
            found.append(args[0].new_empty(shape, dtype=dtype))
        return tuple(found) if len(found) > 1 else found[0]

    def save(name: str, ctx: Any, inputs: Any, output: Any) -> None:
        ctx.dtype = _name(inputs[0].dtype)
        if not isinstance(output, tuple):
            ctx.save_for_backward(output)
            return
        tensors = ROWS[name].count("Tensor")
        ctx.save_for_backward(*inputs[:tensors], *output[1:])
        ctx.numbers = inputs[tensors:]
        ctx.mark_non_differentiable(*output[1:])

    gradients = {
        **{full: partial(_norm_gradients, name) for name, full in FULL.items()},
        **{name: partial(_softmax_gradients, name) for name in ("softmax", "log_softmax")},
        "cross_entropy_with_lse": _cross_entropy_gradients,
    }
    for module in (rmsnorm, layernorm, softmax, cross_entropy):
        for name in ROWS.keys() & vars(module).keys():
            params, _, results = ROWS[name].partition(" -> ")
            kinds = ", ".join("Tensor" for _ in results.split())
            schema = f"({params}) -> {f'({kinds})' if ',' in kinds else kinds}"
            made = gradients.get(name)
            gradient = (partial(save, name), partial(_backward, made)) if made else None
            call = partial(_with_options, vars(module)[name])
            define(f"wsdsl::{name}", schema, call, partial(fake, name), gradient)


def _backward(gradients: Traced, ctx: Any, grad: Any, *_: Any) -> Any:
    ops = _modules["torch"].ops.wsdsl
    # The dispatcher leaves out arguments that are defaults.
    wanted = (*ctx.needs_input_grad, False, False)
    made = gradients(ops, grad.contiguous(), ctx, wanted)
    return (*made, *[None] * (len(ctx.needs_input_grad) - len(made)))


def _norm_gradients(name: str, ops: Any, grad: Any, ctx: Any, wanted: Any) -> Any:
    x, weight, *rest = ctx.saved_tensors
    # The statistics are `rest` of rmsnorm; layernorm has two, after the bias.
    given = grad, x, weight, *rest[len(rest) // 2 :]
    return (
        getattr(ops, f"{name}_backward")(*given) if wanted[0] else None,
        getattr(ops, f"{name}_weight_backward")(*given) if wanted[1] else None,
        ops.layernorm_bias_backward(grad, rest[0]) if name == "layernorm" and wanted[2] else None,
    )


def _softmax_gradients(name: str, ops: Any, grad: Any, ctx: Any, wanted: Any) -> Any:
    return (getattr(ops, f"{name}_backward")(grad, *ctx.saved_tensors, ctx.dtype),)


def _cross_entropy_gradients(ops: Any, grad: Any, ctx: Any, wanted: Any) -> Any:
    return (ops.cross_entropy_backward(grad, *ctx.saved_tensors, *ctx.numbers),)
