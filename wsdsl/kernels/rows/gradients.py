"""Kernels and their backward kernels as one function of `torch.autograd`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

Tensors = tuple[Any, ...]
Forward = Callable[..., tuple[Any, Tensors]]
"""Of the tensors the result, and what is kept for the way back."""
Backward = Callable[..., Tensors]
"""Of the result's gradient, what was kept, and whether each tensor's gradient is wanted, those."""


def is_recorded(*tensors: Any) -> bool:
    """Whether torch records what is done to any of them."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and torch.is_grad_enabled()
        and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)
    )


def recorded(forward: Forward, backward: Backward, *tensors: Any) -> Any:
    """`forward` of the tensors, with its gradient. A tensor may be None."""
    return _function().apply(forward, backward, *tensors)


@cache
def _function() -> Any:
    torch: Any = sys.modules["torch"]

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, forward: Forward, backward: Backward, *tensors: Any) -> Any:
            result, kept = forward(*tensors)
            ctx.save_for_backward(*kept)
            ctx.gradients = backward
            return result

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, gradient: Any) -> Tensors:
            wanted = ctx.needs_input_grad[2:]
            made = ctx.gradients(gradient.contiguous(), ctx.saved_tensors, wanted)
            return None, None, *made

    return Recorded
