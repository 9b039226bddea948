"""Gradients of the operators `wsdsl::matmul` and `wsdsl::stored_matmul`."""

import sys
from collections.abc import Sequence
from typing import Any

from wsdsl.kernels.gemm.matmul_source import BLOCK
from wsdsl.kernels.gemm.operands import ARRAYS, Operands, Options
from wsdsl.runtime.arrays.views import ArrayView, dtype_named

_modules = sys.modules


def operands_of(*given: Any) -> Operands:
    """Check the arguments of `wsdsl::matmul`, whose sizes may be symbols."""
    views: dict[str, ArrayView] = {}
    for name, x in zip(ARRAYS, given[:6]):
        if x is not None:
            dtype = dtype_named(str(x.dtype).removeprefix("torch."), x.element_size())
            views[name] = ArrayView(0, dtype, tuple(x.shape), tuple(x.stride()), "")
    numbers = tuple(name for name, x in zip(ARRAYS[2:4], given[6:8]) if x is not None)
    activation, out_dtype, operand_dtype = given[8:11]
    options = Options(activation, out_dtype, operand_dtype=operand_dtype, numbers=numbers)
    return Operands(views, options)


def matmul_backward(ctx: Any, grad: Any) -> Any:
    """Gradients of a, b, scale factors, bias and residual. Before an activation the matmul is
    computed again.
    """
    ops: Any = _modules["torch"].ops.wsdsl
    a, b, *scales, bias, residual = ctx.saved_tensors
    number_a, number_b, activation, _, *rest = ctx.options
    wants_a, wants_b, *wants_scales, wants_bias, wants_residual = ctx.needs_input_grad[:6]
    grads: list[Any] = [None] * 12
    grads[5] = _reduced(grad, residual) if wants_residual else None
    grad = grad.float()
    if activation and any(ctx.needs_input_grad[:5]):
        given = a, b, *scales, bias, None, number_a, number_b, None, "f32", *rest
        grad = _before_activation(activation, grad, ops.matmul(*given))
    left, right = a if a.dim() > 1 else a[None], b if b.dim() > 1 else b[:, None]
    grad = grad if b.dim() > 1 else grad.unsqueeze(-1)
    grad = grad if a.dim() > 1 else grad.unsqueeze(-2)
    grads[4] = _reduced(grad.sum(-2), bias) if wants_bias else None
    for number in (number_a, number_b):
        grad = grad if number is None else grad * number
    if any(scale is not None for scale in scales):
        axes = operands_of(*ctx.saved_tensors, *ctx.options).axes
        wide_a = _spread(left, scales[0], axes.get("scale_a"))
        wide_b = _spread(right.mT, scales[1], axes.get("scale_b"))
        if wants_a or wants_scales[0]:
            found = grad @ wide_b
            grads[0] = _reduced(_spread(found, scales[0], axes.get("scale_a")), left)
            grads[2] = _gathered(found * left.float(), scales[0], axes.get("scale_a"))
        if wants_b or wants_scales[1]:
            found = grad.mT @ wide_a
            grads[1] = _reduced(_spread(found, scales[1], axes.get("scale_b")).mT, right)
            grads[3] = _gathered(found * right.mT.float(), scales[1], axes.get("scale_b"))
        grads[:2] = [x if x is None else x.reshape(y.shape) for x, y in zip(grads, (a, b))]
        return tuple(grads)
    if wants_a:
        grads[0] = _reduced(_product(grad, right.mT, a.dtype), left).reshape(a.shape)
    if wants_b:
        if right.dim() == 2:
            left, grad = left.reshape(-1, left.shape[-1]), grad.reshape(-1, grad.shape[-1])
        if right.stride(-1) == 1:
            found = _product(left.mT, grad, b.dtype)
        else:
            found = _product(grad.mT, left, b.dtype).mT
        grads[1] = _reduced(found, right).reshape(b.shape)
    return tuple(grads)


def stored_backward(ctx: Any, grad: Any) -> Any:
    """Gradients of x, bias and residual; weights are constants. Multiplying an identity matrix by
    them gives the weights, exactly.
    """
    torch: Any = _modules["torch"]
    call = torch.ops.wsdsl.stored_matmul
    x, bias, residual = ctx.saved_tensors
    number, n, activation, _, constant = ctx.options
    wants_x, _, _, wants_bias, wants_residual = ctx.needs_input_grad[:5]
    grads: list[Any] = [None] * 8
    grads[4] = _reduced(grad, residual) if wants_residual else None
    grad = grad.float()
    if activation and (wants_x or wants_bias):
        grad = _before_activation(
            activation, grad, call(x, number, n, bias, None, None, "f32", constant)
        )
    grad = grad.reshape(-1, n)
    grads[3] = _reduced(grad.sum(0), bias) if wants_bias else None
    if wants_x:
        identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        weights = call(identity, number, n, None, None, None, None, constant)
        grads[0] = _product(grad, weights.mT, x.dtype).reshape(x.shape)
    return tuple(grads)


def _before_activation(name: str, grad: Any, x: Any) -> Any:
    """Multiply a gradient by the derivative of an activation at x."""
    aten: Any = _modules["torch"].ops.aten
    if name == "relu":
        return aten.threshold_backward(grad, x, 0)
    x = getattr(x, name)() if name in ("sigmoid", "tanh") else x
    return getattr(aten, f"{name}_backward")(grad, x)


def _spread(x: Any, scale: Any, axes: Sequence[str] | None) -> Any:
    """Multiply [..., rows, K] by scale factors, in f32."""
    if axes is None:
        return x.float()
    if not axes:
        return x.float() * scale.reshape(())
    if "KB" not in axes:
        return x.float() * _vector(scale)[..., None]
    scale = scale.repeat_interleave(BLOCK, -1)[..., : x.shape[-1]]
    if axes[0].endswith("B"):
        scale = scale.repeat_interleave(BLOCK, -2)[..., : x.shape[-2], :]
    return x.float() * scale


def _gathered(found: Any, scale: Any, axes: Sequence[str] | None) -> Any:
    """Sum [..., rows, K] over the elements of each scale factor; None without scale factors."""
    if axes is None:
        return None
    if not axes:
        return found.sum().reshape(scale.shape)
    if "KB" not in axes:
        return _reduced(found.sum(-1), _vector(scale)).reshape(scale.shape)
    found = _blocks(found, -1)
    return _reduced(_blocks(found, -2) if axes[0].endswith("B") else found, scale)


def _vector(scale: Any) -> Any:
    """Drop the last axis of [..., rows, 1]."""
    return scale.squeeze(-1) if scale.dim() > 1 and scale.shape[-1] == 1 else scale


def _blocks(x: Any, axis: int) -> Any:
    """Sum over blocks of an axis."""
    padding = [0] * (-2 * axis - 1) + [-x.shape[axis] % BLOCK]
    padded = _modules["torch"].nn.functional.pad(x, padding)
    return padded.unflatten(axis, (-1, BLOCK)).sum(axis)


def _product(a: Any, b: Any, dtype: Any) -> Any:
    """Multiply by a gradient in f32: by wsdsl for operands of 16 bits."""
    if dtype.itemsize != 2:
        return (a.float() @ b.float()).to(dtype)
    return _modules["torch"].ops.wsdsl.matmul(a.to(dtype), b.to(dtype), *[None] * 9, [])


def _reduced(grad: Any, like: Any) -> Any:
    """Sum a gradient over the axes along which `like` was broadcast."""
    more = max(0, like.dim() - grad.dim())
    return grad.sum_to_size(like.shape[more:]).reshape(like.shape).to(like.dtype)
