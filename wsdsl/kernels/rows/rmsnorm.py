"""`rmsnorm`, and its backward kernels."""

from __future__ import annotations

from typing import Any, Unpack

from wsdsl.kernels.rows.arrays import (
    Options,
    Tensors,
    is_recorded,
    kernel_of,
    recorded,
    rows_and_gradient,
    rows_of,
)

FORWARD = """
@kernel
def rmsnorm(X: {x}[M, N],{weight} eps: f32, Y: {y}[M, N]{rstd}):
    for m in tiles(M):
        squares = zeros(f32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            squares += sum(x * x, over=n)
        scale = rsqrt(squares / cast(N, f32) + eps){store}
        for n in tiles(N):
            Y[m, n] = X[m, n] * scale{factor}
"""
BACKWARD = """
@kernel
def rmsnorm_backward(G: {g}[M, N], X: {x}[M, N],{weight} rstd: f32[M], DX: {x}[M, N]):
    for m in tiles(M):
        scale = rstd[m]
        dot = zeros(f32[m])
        for n in tiles(N):
            g = cast(G[m, n], f32){factor}
            dot += sum(g * (X[m, n] * scale), over=n)
        back = dot / cast(N, f32)
        for n in tiles(N):
            g = cast(G[m, n], f32){factor}
            DX[m, n] = (g - X[m, n] * scale * back) * scale
"""
WEIGHT = """
@kernel
def rmsnorm_weight(G: {g}[M, N], X: {x}[M, N], rstd: f32[M], DW: {w}[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        for m in tiles(M):
            total += sum(G[m, n] * (X[m, n] * rstd[m]), over=m)
        DW[n] = total
"""


def rmsnorm(
    x: Any,
    weight: Any = None,
    eps: float = 1e-6,
    out_dtype: Any = None,
    out: Any = None,
    **options: Unpack[Options],
) -> Any:
    """`x / sqrt(mean(x ** 2) + eps) * weight` over the last axis; in f32, rounded once.

    x: [..., N] of f32, f16 or bf16, of torch, CuPy, JAX or NumPy.
    weight: [N], of one of these types.
    out_dtype: f32, f16 or bf16; that of x, if `out` does not tell it.
    out: [..., N], contiguous; written, and returned. Else allocated.
    options: schedule, stream, exact and on_miss, as for kernels.

    Squares are summed in f32: it is right for rows with sum(x ** 2) <= 1e38 and mean(x ** 2) + eps
    >= 1e-37; others lose digits, or give 0, inf or NaN. torch records the gradient where x or
    weight require one, and no `out` is given. LaunchError for arrays that do not fit; nothing has
    been written then.
    """
    if out is None and is_recorded(x, weight):

        def forward(x: Any, weight: Any) -> tuple[Any, Tensors]:
            y, rstd = rmsnorm_with_rstd(x, weight, eps, out_dtype, **options)
            return y, (x, weight, rstd)

        def backward(grad: Any, kept: Tensors, wanted: tuple[bool, bool]) -> Tensors:
            x, weight, rstd = kept
            return (
                rmsnorm_backward(grad, x, weight, rstd) if wanted[0] else None,
                rmsnorm_weight_backward(grad, x, weight, rstd) if wanted[1] else None,
            )

        return recorded(forward, backward, x, weight)
    return _forward(x, weight, eps, out_dtype, out, options, rstd=False)[0]


def rmsnorm_with_rstd(
    x: Any,
    weight: Any = None,
    eps: float = 1e-6,
    out_dtype: Any = None,
    out: Any = None,
    **options: Unpack[Options],
) -> tuple[Any, Any]:
    """What `rmsnorm` gives, and `1 / sqrt(mean(x ** 2) + eps)`, f32 [...], for the way back."""
    y, rstd = _forward(x, weight, eps, out_dtype, out, options, rstd=True)
    return y, rstd


def _forward(
    x: Any, weight: Any, eps: float, out_dtype: Any, out: Any, options: Options, *, rstd: bool
) -> tuple[Any, ...]:
    rows = rows_of("x", x)
    w = rows.typed("weight", weight)
    target, y = rows.output(out, out_dtype)
    kernel = kernel_of(
        FORWARD,
        x=rows.dtype,
        y=y,
        weight=f" W: {w}[N]," if w else "",
        factor=" * W[n]" if w else "",
        rstd=", rstd: f32[M]" if rstd else "",
        store="\n        rstd[m] = scale" if rstd else "",
    )
    given = (rows.matrix, *((weight,) if w else ()), eps, target)
    made = kernel(*given, *((None,) if rstd else ()), **options)
    result, *rest = made if rstd else (made,)
    first = rows.shaped(result) if out is None else out
    return first, *(r.reshape(rows.shape[:-1]) for r in rest)


def rmsnorm_backward(
    grad: Any, x: Any, weight: Any, rstd: Any, out: Any = None, **options: Unpack[Options]
) -> Any:
    """The gradient of x, of its type, from that of `rmsnorm_with_rstd`'s result.

    grad: [..., N] of f32, f16 or bf16.
    x, weight: what was given then; weight may be None.
    rstd: f32 [...], what came out then.
    out, options: as for `rmsnorm`.
    """
    rows, grads = rows_and_gradient("x", x, grad)
    w = rows.typed("weight", weight)
    target, _ = rows.output(out, rows.dtype)
    kernel = kernel_of(
        BACKWARD,
        g=grads.dtype,
        x=rows.dtype,
        weight=f" W: {w}[N]," if w else "",
        factor=" * W[n]" if w else "",
    )
    given = (grads.matrix, rows.matrix, *((weight,) if w else ()), rows.per_row("rstd", rstd))
    made = kernel(*given, target, **options)
    return rows.shaped(made) if out is None else out


def rmsnorm_weight_backward(
    grad: Any, x: Any, weight: Any, rstd: Any, **options: Unpack[Options]
) -> Any:
    """The gradient of the weight, [N] of its type: sums over rows in f32, whose order is the same
    in every run. Arguments as for `rmsnorm_backward`.
    """
    rows, grads = rows_and_gradient("x", x, grad)
    kernel = kernel_of(WEIGHT, g=grads.dtype, x=rows.dtype, w=rows.typed("weight", weight))
    return kernel(grads.matrix, rows.matrix, rows.per_row("rstd", rstd), **options)
