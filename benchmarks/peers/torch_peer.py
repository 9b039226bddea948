"""torch: cuBLAS and cuBLASLt, with every scaling that torch offers on Hopper."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.contest import Contestant, UnfitError, Variant
from benchmarks.problems import Problem

if TYPE_CHECKING:
    import torch


def contestants() -> list[Contestant]:
    return [
        Contestant("torch", variants, lay_out=lay_out),
        Contestant("torch fast", fast_variants, lay_out=lay_out, tolerance=2.0**-7),
        Contestant("torch plain", plain_variants, reference=product),
    ]


def variants(problem: Problem) -> list[Variant]:
    kind = problem.kind
    if kind.epilogue:
        return [
            Variant("addmm, gelu, add", lambda: separate),
            Variant("cuBLASLt", lambda: cublaslt),
        ]
    if kind.dtype == "int8":
        return [Variant("_int_mm", lambda: int_mm)]
    if kind.dtype == "fp8":
        return [scaled(problem, kind.fast)]
    return [Variant("matmul", lambda: matmul)]


def fast_variants(problem: Problem) -> list[Variant]:
    """Beside kernels that promote: what cuBLAS reaches if it need not."""
    if problem.kind.dtype != "fp8" or problem.kind.fast or problem.kind.scaling == "block":
        raise UnfitError("only beside fp8 that promotes")
    return [scaled(problem, True)]


def plain_variants(problem: Problem) -> list[Variant]:
    """Beside a fused epilogue: the product alone."""
    if not problem.kind.epilogue:
        raise UnfitError("only beside an epilogue")
    return [Variant("matmul", lambda: lambda a, b, bias, residual, out: matmul(a, b, out))]


def scaled(problem: Problem, fast: bool) -> Variant:
    if problem.kind.scaling == "block":
        return Variant("scaled_mm 1x128 by 128x128", lambda: blocks)
    name = f"_scaled_mm {'fast' if fast else 'promoted'}"
    return Variant(name, lambda: partial(scaled_mm, fast))


def lay_out(*operands: Any) -> tuple[Any, ...]:
    """cuBLASLt's order: scales of rows as a column and a row, those of blocks along M or K."""
    if len(operands) == 4 and operands[0].dtype.itemsize == 2:
        a, b, bias, residual = operands
        return a, b, bias.bfloat16(), residual
    if len(operands) == 2 or operands[2].numel() == 1:
        return operands
    a, b, a_scale, b_scale = operands
    if a_scale.dim() == 1:
        return a, b, a_scale[:, None], b_scale[None, :]
    return a, b, a_scale.T.contiguous().T, b_scale.T


def matmul(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    import torch

    torch.matmul(a, b.T, out=out)


def product(a: torch.Tensor, b: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double().T


def int_mm(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    import torch

    torch._int_mm(a, b.T, out=out)


def scaled_mm(fast: bool, a: Any, b: Any, a_scale: Any, b_scale: Any, out: torch.Tensor) -> None:
    import torch

    torch._scaled_mm(
        a, b.T, a_scale, b_scale, out_dtype=torch.bfloat16, use_fast_accum=fast, out=out
    )


def blocks(a: Any, b: Any, a_scale: Any, b_scale: Any, out: torch.Tensor) -> torch.Tensor:
    import torch
    from torch.nn.functional import ScalingType, scaled_mm

    return scaled_mm(
        a,
        b.T,
        a_scale,
        ScalingType.BlockWise1x128,
        b_scale,
        ScalingType.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )


def separate(a: Any, b: Any, bias: Any, residual: Any, out: torch.Tensor) -> None:
    """Three kernels, each of which passes over memory."""
    import torch

    torch.matmul(a, b.T, out=out)
    torch.add(torch.nn.functional.gelu(out.add_(bias)), residual, out=out)


def cublaslt(a: Any, b: Any, bias: Any, residual: Any, out: torch.Tensor) -> None:
    """Bias and (approximate) gelu in cuBLASLt's epilogue, the residual after it."""
    import torch

    torch._addmm_activation(bias, a, b.T, use_gelu=True, out=out)
    out.add_(residual)
