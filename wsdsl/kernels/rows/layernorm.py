"""`layernorm`, and its backward kernels."""

from typing import Any, Unpack

from wsdsl.kernels.rows import normalization, row_arrays

FORWARD = """
@kernel
def layernorm(X: {x}[M, N],{params} eps: f32, Y: {y}[M, N]{outputs}):
    for m in tiles(M):
        total = zeros(f32[m])
        for n in tiles(N):
            total += sum(cast(X[m, n], f32), over=n)
        centre = total / cast(N, f32)
        squares = zeros(f32[m])
        for n in tiles(N):
            x = X[m, n] - centre
            squares += sum(x * x, over=n)
        scale = rsqrt(squares / cast(N, f32) + eps){stores}
        for n in tiles(N):
            Y[m, n] = (X[m, n] - centre) * scale{affine}
"""
BACKWARD = """
@kernel
def layernorm_backward(
    G: {g}[M, N], X: {x}[M, N],{params} mean: f32[M], rstd: f32[M], DX: {x}[M, N]
):
    for m in tiles(M):
        centre, scale = mean[m], rstd[m]
        total = zeros(f32[m])
        dot = zeros(f32[m])
        for n in tiles(N):
            g = cast(G[m, n], f32){factor}
            total += sum(g, over=n)
            dot += sum(g * ((X[m, n] - centre) * scale), over=n)
        shift, back = total / cast(N, f32), dot / cast(N, f32)
        for n in tiles(N):
            g = cast(G[m, n], f32){factor}
            DX[m, n] = (g - shift - (X[m, n] - centre) * scale * back) * scale
"""
WEIGHT = """
@kernel
def layernorm_weight(
    G: {g}[M, N], X: {x}[M, N], mean: f32[M], rstd: f32[M], DW: {w}[N]
):
    for n in tiles(N):
        total = zeros(f32[n])
        for m in tiles(M):
            total += sum(G[m, n] * ((X[m, n] - mean[m]) * rstd[m]), over=m)
        DW[n] = total
"""
BIAS = """
@kernel
def column_sums(G: {g}[M, N], DB: {b}[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        for m in tiles(M):
            total += sum(cast(G[m, n], f32), over=m)
        DB[n] = total
"""
STATISTICS = (("mean", "centre"), ("rstd", "scale"))


def layernorm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    out_dtype: Any = None,
    out: Any = None,
    **options: Unpack[row_arrays.Options],
) -> Any:
    """`(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + eps) * weight + bias` over the last axis; in
    f32, rounded once.

    x: [..., N] of f32, f16 or bf16, of torch, CuPy, JAX or NumPy.
    weight, bias: [N], of one of these types. Either may be left out.
    out_dtype: f32, f16 or bf16; that of x, if `out` does not tell it.
    out: [..., N], contiguous; written, and returned. Else allocated.
    options: schedule, stream, exact and on_miss, as for kernels.

    Sums are in f32: it is right for rows with sum(abs(x)) <= 1e38, sum((x - mean(x)) ** 2) <= 1e38
    and mean((x - mean(x)) ** 2) + eps >= 1e-37; others lose digits, or give 0,
    inf or NaN. torch records the gradient where x, weight or bias require one, and no `out` is
    given. LaunchError for arrays that do not fit; nothing has been written then.
    """
    return normalization.forward(FORWARD, x, weight, bias, eps, out_dtype, out, options)[0]


def layernorm_with_statistics(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    out_dtype: Any = None,
    out: Any = None,
    **options: Unpack[row_arrays.Options],
) -> tuple[Any, Any, Any]:
    """Return `layernorm`'s result, the means, and one over the deviations (with eps), f32 [...],
    for the backward pass.
    """
    given = (x, weight, bias, eps, out_dtype, out, options)
    y, mean, rstd = normalization.forward(FORWARD, *given, STATISTICS)
    return y, mean, rstd


def layernorm_backward(
    grad: Any,
    x: Any,
    weight: Any,
    mean: Any,
    rstd: Any,
    out: Any = None,
    **options: Unpack[row_arrays.Options],
) -> Any:
    """The gradient of x, of its type, from that of `layernorm_with_statistics`' result.

    grad: [..., N] of f32, f16 or bf16.
    x, weight: its arguments; weight may be None.
    mean, rstd: f32 [...], its other results.
    out, options: as for `layernorm`.
    """
    statistics = dict(mean=mean, rstd=rstd)
    return normalization.backward(BACKWARD, grad, x, weight, statistics, out, options)


def layernorm_weight_backward(
    grad: Any, x: Any, weight: Any, mean: Any, rstd: Any, **options: Unpack[row_arrays.Options]
) -> Any:
    """The gradient of the weight, [N] of its type: sums over rows in f32, whose order is the same
    in every run. Arguments as for `layernorm_backward`.
    """
    statistics = dict(mean=mean, rstd=rstd)
    return normalization.weight_backward(WEIGHT, grad, x, weight, statistics, options)


def layernorm_bias_backward(grad: Any, bias: Any, **options: Unpack[row_arrays.Options]) -> Any:
    """The gradient of the bias, [N] of its type: sums over rows as for the weight.

    grad: [..., N] of f32, f16 or bf16.
    """
    grads = row_arrays.rows_of("grad", grad)
    return row_arrays.kernel_of(BIAS, g=grads.dtype, b=grads.typed("bias", bias))(
        grads.matrix, **options
    )
