"""Operators `torch.ops.wsdsl.…` of the ready kernels, which traced calls of these run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

from wsdsl.diagnostics import LaunchError
from wsdsl.kernels.gemm.dtypes import dtype_of
from wsdsl.kernels.gemm.operands import Operands, Options
from wsdsl.runtime.interop import has_gradient
from wsdsl.runtime.views import ArrayView, dtype_named
from wsdsl.torch_op import DEVICES, Gradient, define, library, torch_dtype

MATMUL = (
    "Tensor a, Tensor b, Tensor? bias, str? activation, Tensor? residual, str? out_dtype, "
    "Tensor? scale_a, Tensor? scale_b, float? number_a, float? number_b, str? operand_dtype, "
    "str[] constant"
)
NORM = "Tensor x, Tensor? weight=None"
TYPED = "str? out_dtype=None"
TARGETS = "Tensor logits, Tensor targets"
ROWS = {
    "rmsnorm_with_rstd": f"{NORM}, float eps=1e-6, {TYPED}",
    "rmsnorm_backward": "Tensor grad, Tensor x, Tensor? weight, Tensor rstd",
    "rmsnorm_weight_backward": "Tensor grad, Tensor x, Tensor weight, Tensor rstd",
    "layernorm_with_statistics": f"{NORM}, Tensor? bias=None, float eps=1e-5, {TYPED}",
    "layernorm_backward": "Tensor grad, Tensor x, Tensor? weight, Tensor mean, Tensor rstd",
    "layernorm_weight_backward": "Tensor grad, Tensor x, Tensor weight, Tensor mean, Tensor rstd",
    "layernorm_bias_backward": "Tensor grad, Tensor bias",
    "softmax": f"Tensor x, {TYPED}",
    "softmax_backward": f"Tensor grad, Tensor y, {TYPED}",
    "log_softmax": f"Tensor x, {TYPED}",
    "log_softmax_backward": f"Tensor grad, Tensor y, {TYPED}",
    "cross_entropy_with_lse": f"{TARGETS}, int ignore_index=-100",
    "cross_entropy_backward": f"Tensor grad, {TARGETS}, Tensor lse, int ignore_index=-100",
}
"""Parameters of the functions in `wsdsl.kernels`, of the same names."""
FLOATS = ("float32", "float16", "bfloat16")
_modules = sys.modules
_ready: list[bool] = []


def operators() -> bool:
    """Register the operators. Dynamo runs this function while it traces."""
    if not _ready:
        _ready.append(True)
        _define_rows()
        _define_matmul()
    return True


vars(operators)["_dynamo_marked_constant"] = True


def _is_tensor(*values: Any) -> bool:
    """Check whether all values are tensors of torch, or None."""
    torch: Any = _modules["torch"]
    return all(x is None or isinstance(x, torch.Tensor) for x in values)


def _name(dtype: Any) -> str | None:
    """A type of torch or of the language as text."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    return getattr(dtype, "__name__", None) or str(dtype)


def _given(options: dict[str, Any]) -> bool:
    return any(x is not None for x in options.values())


# Matmul.


def traced_matmul(
    _: Any,
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    out_dtype: Any = None,
    scales: Any = None,
    out: Any = None,
    accumulate: bool = False,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    operand_dtype: Any = None,
    constant: Sequence[str] = (),
    **options: Any,
) -> Any:
    """Run the operator of a call of `wsdsl.kernels.matmul`; None if it does not take these."""
    both: Any = (None, None) if scales is None else scales
    numbers = [x if isinstance(x, int | float) else None for x in both]
    tensors = [x if number is None else None for x, number in zip(both, numbers)]
    fits = _is_tensor(a, b, bias, residual, out, *tensors) and not isinstance(operand_dtype, tuple)
    if not fits or _given(options):
        return None
    operators()
    ops: Any = _modules["torch"].ops.wsdsl
    a, b = a.mT if transpose_a else a, b.mT if transpose_b else b
    given = (
        a, b, bias, activation, residual, _name(out_dtype), *tensors, *numbers,
        _name(operand_dtype), [*constant],
    )  # fmt: skip
    if out is None and not accumulate:
        return ops.matmul(*given)
    ops.matmul_out(out, *given, accumulate)
    return out


def needs_operator(look: object, operand_dtype: Any, a: Any, b: Any, *addends: Any) -> bool:
    """Check whether autocast converts an operand, or torch records a gradient. Of calls that have
    a `look` it records none.
    """
    torch: Any = _modules.get("torch")
    if torch is None:
        return False
    if torch._C._is_any_autocast_enabled() and operand_dtype is None and _is_tensor(a, b):
        device = a.device.type
        wanted = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else a.dtype
        if _cast(a, wanted) is not a or _cast(b, wanted) is not b:
            return True
    return look is None and any(map(has_gradient, (a, b, *addends)))


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor.to(dtype) if str(tensor.dtype).removeprefix("torch.") in FLOATS else tensor


def _run_matmul(
    a: Any, b: Any, bias: Any, activation: Any, residual: Any, out_dtype: Any, scale_a: Any,
    scale_b: Any, number_a: Any, number_b: Any, operand_dtype: Any, constant: Any,
    out: Any = None, accumulate: bool = False,
) -> Any:  # fmt: skip
    from wsdsl.kernels.gemm.matmul import matmul

    scales: Any = [t if n is None else n for t, n in ((scale_a, number_a), (scale_b, number_b))]
    return matmul(
        a, b, bias, activation, residual, out_dtype, scales, out, accumulate,
        operand_dtype=operand_dtype, constant=constant,
    )  # fmt: skip


def _view(tensor: Any) -> ArrayView:
    """A tensor without memory, whose sizes may be symbols, as the kernels' rules take it."""
    dtype = dtype_named(str(tensor.dtype).removeprefix("torch."), tensor.element_size())
    return ArrayView(0, dtype, tuple(tensor.shape), tuple(tensor.stride()), "", framework="torch")


def _fake_matmul(
    a: Any, b: Any, bias: Any, activation: Any, residual: Any, out_dtype: Any, scale_a: Any,
    scale_b: Any, number_a: Any, number_b: Any, operand_dtype: Any, constant: Any,
) -> Any:  # fmt: skip
    given = dict(a=a, b=b, bias=bias, residual=residual, scale_a=scale_a, scale_b=scale_b)
    views = {name: _view(x) for name, x in given.items() if x is not None}
    numbers = [n for n, x in (("scale_a", number_a), ("scale_b", number_b)) if x is not None]
    options = Options(activation, out_dtype, operand_dtype=operand_dtype, numbers=tuple(numbers))
    result = Operands(views, options)
    return a.new_empty(result.shape, dtype=torch_dtype(result.out))


def _define_matmul() -> None:
    torch: Any = _modules["torch"]
    gradient = Gradient(_save_matmul, _matmul_backward)
    operator = define("wsdsl::matmul", f"({MATMUL}) -> Tensor", _run_matmul, _fake_matmul, gradient)

    def write(out: Any, *given: Any) -> None:
        _run_matmul(*given[:-1], out=out, accumulate=given[-1])

    schema = f"(Tensor(a0!) out, {MATMUL}, bool accumulate) -> ()"
    define("wsdsl::matmul_out", schema, write, lambda *_: None)

    def cast(device: str, a: Any, b: Any, *rest: Any) -> Any:
        key = getattr(torch._C.DispatchKey, f"Autocast{device}")
        dtype = torch.get_autocast_dtype(device.lower())
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            both = (a, b) if rest[8] else (_cast(a, dtype), _cast(b, dtype))
            return operator(*both, *rest)

    for device in DEVICES:
        library("wsdsl").impl("matmul", partial(cast, device), f"Autocast{device}")


def _save_matmul(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, bias, activation, residual, _, scale_a, scale_b, *rest = inputs
    ctx.save_for_backward(a, b, bias, residual, scale_a, scale_b)
    ctx.options = activation, *rest


def _matmul_backward(ctx: Any, grad: Any) -> Any:
    """Gradients of a, b, bias and residual. Before an activation the matmul is computed again."""
    torch: Any = _modules["torch"]
    a, b, bias, residual, *scales = ctx.saved_tensors
    activation, *rest = ctx.options
    wants_a, wants_b, wants_bias, _, wants_residual, *others = ctx.needs_input_grad
    if any(others):
        message = "WS1113 matmul has no gradient of scale factors"
        raise LaunchError(message, hint="detach them, or multiply the operands by them")
    found: list[Any] = [None] * len(ctx.needs_input_grad)
    if wants_residual:
        found[4] = _reduced(grad, residual)
    if not (wants_a or wants_b or wants_bias):
        return tuple(found)
    grad = grad.float()
    if activation:
        before = torch.ops.wsdsl.matmul(a, b, bias, None, None, "f32", *scales, *rest)
        grad = _slope(activation, grad, before)
    left, right = a if a.dim() > 1 else a[None], b if b.dim() > 1 else b[:, None]
    grad = grad if b.dim() > 1 else grad.unsqueeze(-1)
    grad = grad if a.dim() > 1 else grad.unsqueeze(-2)
    if wants_bias:
        found[2] = _reduced(grad.sum(-2), bias)
    for scale, number, axis in zip(scales, rest[:2], (-1, -2)):
        grad = grad * _factor(scale, number, grad, axis)
    if wants_a:
        found[0] = _reduced(_product(grad, right.mT, a.dtype), left).reshape(a.shape)
    if wants_b:
        if right.dim() == 2:
            left, grad = left.reshape(-1, left.shape[-1]), grad.reshape(-1, grad.shape[-1])
        if right.stride(-1) == 1:
            made = _product(left.mT, grad, b.dtype)
        else:
            made = _product(grad.mT, left, b.dtype).mT
        found[1] = _reduced(made, right).reshape(b.shape)
    return tuple(found)


def _product(a: Any, b: Any, dtype: Any) -> Any:
    """Multiply operands of which one is a gradient in f32: by wsdsl if the other has 16 bits."""
    if dtype.itemsize != 2:
        return (a.float() @ b.float()).to(dtype)
    ops: Any = _modules["torch"].ops.wsdsl
    return ops.matmul(a.to(dtype), b.to(dtype), *[None] * 9, [])


def _slope(activation: str, grad: Any, before: Any) -> Any:
    aten: Any = _modules["torch"].ops.aten
    if activation == "relu":
        return aten.threshold_backward(grad, before, 0)
    if activation in ("gelu", "silu"):
        return getattr(aten, f"{activation}_backward")(grad, before)
    return getattr(aten, f"{activation}_backward")(grad, getattr(before, activation)())


def _factor(scale: Any, number: float | None, grad: Any, axis: int) -> Any:
    """A scale factor of the result: one number, or one per row or column."""
    if scale is None:
        return 1.0 if number is None else number
    if scale.numel() == 1:
        return scale.reshape(())
    if scale.dim() == 1:
        return scale if axis == -2 else scale[:, None]
    message = f"WS1114 matmul has no gradient for scale factors of shape {tuple(scale.shape)}"
    raise LaunchError(message, hint="give one, or one per row of a and column of b")


def _reduced(grad: Any, like: Any) -> Any:
    """Sum a gradient over the axes along which `like` was broadcast."""
    more = max(0, like.dim() - grad.dim())
    return grad.sum_to_size(like.shape[more:]).reshape(like.shape).to(like.dtype)


# Rows.


def traced_rows(name: str) -> Callable[..., Any] | None:
    """Return what traces call for a function of `wsdsl.kernels`; None if there is no operator."""
    full = {"rmsnorm": "rmsnorm_with_rstd", "layernorm": "layernorm_with_statistics"}
    operator = full.get(name, name)
    if name == "cross_entropy":
        return _traced_cross_entropy
    if operator not in ROWS:
        return None
    names = [p.split("=")[0].split()[-1] for p in ROWS[operator].split(", ")]

    def call(*args: Any, **options: Any) -> Any:
        named = {n: options.pop(n) for n in names if n in options}
        tensors = [x for x in (*args, *named.values()) if hasattr(x, "shape")]
        if len(args) > len(names) or _given(options) or not _is_tensor(*tensors):
            return None
        operators()
        last = named.pop("out_dtype", None)
        if "out_dtype" in names:
            if len(args) == len(names):
                last, args = args[-1], args[:-1]
            named["out_dtype"] = _name(last)
        result = getattr(_modules["torch"].ops.wsdsl, operator)(*args, **named)
        return result if operator == name else result[0]

    return call


def _traced_cross_entropy(
    logits: Any,
    targets: Any,
    reduction: str = "mean",
    ignore_index: int = -100,
    **options: Any,
) -> Any:
    from wsdsl.kernels.rows.cross_entropy import Reduction, reduce

    legal = reduction in get_args(Reduction)
    if not legal or _given(options) or not _is_tensor(logits, targets):
        return None
    operators()
    ops: Any = _modules["torch"].ops.wsdsl
    losses = ops.cross_entropy_with_lse(logits, targets, ignore_index)[0]
    return reduce(losses, targets, reduction, ignore_index)


LIKE = {
    **dict.fromkeys(
        ("rmsnorm_with_rstd", "layernorm_with_statistics", "softmax", "log_softmax"), 0
    ),
    **dict.fromkeys(("rmsnorm_weight_backward", "layernorm_weight_backward"), 2),
}
"""The argument that the first result is like; of the others argument 1."""
RESULTS = {"rmsnorm_with_rstd": 2, "layernorm_with_statistics": 3, "cross_entropy_with_lse": 2}
"""The number of results. All but the first are f32, with one element per row."""


def _define_rows() -> None:
    from wsdsl.kernels.rows import cross_entropy, layernorm, rmsnorm, softmax

    torch: Any = _modules["torch"]
    ops = torch.ops.wsdsl

    def fake(name: str, *args: Any) -> Any:
        like, rows = args[LIKE.get(name, 1)], args[0].shape[:-1]
        given = isinstance(args[-1], str)
        dtype = torch_dtype(dtype_of(args[-1], "out_dtype")) if given else like.dtype
        per_row = [
            args[0].new_empty(rows, dtype=torch.float32) for _ in range(RESULTS.get(name, 1))
        ]
        if name == "cross_entropy_with_lse":
            return tuple(per_row)
        result = like.new_empty(like.shape, dtype=dtype)
        return (result, *per_row[1:]) if name in RESULTS else result

    def setup_norm(ctx: Any, inputs: Any, output: Any) -> None:
        # One statistic and a weight, or two statistics, a weight and a bias.
        ctx.save_for_backward(*inputs[: len(output)], *output[1:])
        ctx.mark_non_differentiable(*output[1:])

    def backward_norm(module: Any, ctx: Any, grad: Any, *_: Any) -> Any:
        # The dispatcher leaves out arguments that are defaults.
        wanted = (*ctx.needs_input_grad, False, False)
        made = module.gradients(ops, grad.contiguous(), ctx.saved_tensors, wanted)
        return (*made, *[None] * (len(ctx.needs_input_grad) - len(made)))

    def setup_softmax(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)
        ctx.dtype = _name(inputs[0].dtype)

    def backward_softmax(name: str, ctx: Any, grad: Any) -> Any:
        back = getattr(ops, f"{name}_backward")
        return back(grad.contiguous(), *ctx.saved_tensors, ctx.dtype), None

    def setup_entropy(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:2], output[1])
        ctx.ignored = inputs[2]
        ctx.mark_non_differentiable(output[1])

    def backward_entropy(ctx: Any, grad: Any, _: Any) -> Any:
        grad = grad.contiguous()
        return ops.cross_entropy_backward(grad, *ctx.saved_tensors, ctx.ignored), None, None

    gradients = {
        "rmsnorm_with_rstd": Gradient(setup_norm, partial(backward_norm, rmsnorm)),
        "layernorm_with_statistics": Gradient(setup_norm, partial(backward_norm, layernorm)),
        "softmax": Gradient(setup_softmax, partial(backward_softmax, "softmax")),
        "log_softmax": Gradient(setup_softmax, partial(backward_softmax, "log_softmax")),
        "cross_entropy_with_lse": Gradient(setup_entropy, backward_entropy),
    }
    for module in (rmsnorm, layernorm, softmax, cross_entropy):
        for name in ROWS.keys() & vars(module).keys():
            results = ", ".join(["Tensor"] * RESULTS.get(name, 1))
            results = f"({results})" if name in RESULTS else results
            schema = f"({ROWS[name]}) -> {results}"
            run = vars(module)[name]
            define(f"wsdsl::{name}", schema, run, partial(fake, name), gradients.get(name))
