"""`rmsnorm`, and its backward kernels."""

from typing import Any, Unpack

from wsdsl.kernels.rows import normalization
from wsdsl.kernels.rows.row_arrays import Options

FORWARD = """
@kernel
def rmsnorm(X: {x}[M, N],{params} eps: f32, Y: {y}[M, N]{outputs}):
    for m in tiles(M):
        squares = zeros(f32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            squares += sum(x * x, over=n)
        scale = rsqrt(squares / cast(N, f32) + eps){stores}
        for n in tiles(N):
            Y[m, n] = X[m, n] * scale{affine}
"""
BACKWARD = """
@kernel
def rmsnorm_backward(G: {g}[M, N], X: {x}[M, N],{params} rstd: f32[M], DX: {x}[M, N]):
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
    return normalization.forward(FORWARD, x, weight, None, eps, out_dtype, out, options)[0]


def rmsnorm_with_rstd(
    x: Any,
    weight: Any = None,
    eps: float = 1e-6,
    out_dtype: Any = None,
    out: Any = None,
    **options: Unpack[Options],
) -> tuple[Any, Any]:
    """Return `rmsnorm`'s result, and `1 / sqrt(mean(x ** 2) + eps)`, f32 [...], for gradients."""
    given = (x, weight, None, eps, out_dtype, out, options)
    y, rstd = normalization.forward(FORWARD, *given, (("rstd", "scale"),))
    return y, rstd


def rmsnorm_backward(
    grad: Any, x: Any, weight: Any, rstd: Any, out: Any = None, **options: Unpack[Options]
) -> Any:
    """The gradient of x, of its type, from that of `rmsnorm_with_rstd`'s result.

    grad: [..., N] of f32, f16 or bf16.
    x, weight: its arguments; weight may be None.
    rstd: f32 [...], its second result.
    out, options: as for `rmsnorm`.
    """
    return normalization.backward(BACKWARD, grad, x, weight, {"rstd": rstd}, out, options)


def rmsnorm_weight_backward(
    grad: Any, x: Any, weight: Any, rstd: Any, **options: Unpack[Options]
) -> Any:
    """The gradient of the weight, [N] of its type: sums over rows in f32, whose order is the same
    in every run. Arguments as for `rmsnorm_backward`.
    """
    return normalization.weight_backward(WEIGHT, grad, x, weight, {"rstd": rstd}, options)
