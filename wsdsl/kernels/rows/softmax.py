"""`softmax` and `log_softmax`, and their backward kernels."""

from typing import Any, Literal, Unpack

from wsdsl.kernels.rows.row_arrays import Options, kernel_of, rows_and_gradient, rows_of

Kind = Literal["softmax", "log_softmax"]
SUMS = """
    for m in tiles(M):
        most = full(f32[m], -inf)
        total = zeros(f32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            before = most
            most = max(most, max(x, over=n))
            shift = where(most == -inf, 0.0, most)
            total = total * exp(before - shift) + sum(exp(x - shift), over=n)"""
"""The running maximum of each row, and its running sum of `exp(x - most)`. While all elements are
-inf, 0 is subtracted: `x - most` would be NaN.
"""
FORWARD: dict[Kind, str] = {
    "softmax": """
@kernel
def softmax(X: {x}[M, N], Y: {y}[M, N]):{sums}
        scale = 1.0 / total
        for n in tiles(N):
            Y[m, n] = exp(X[m, n] - most) * scale
""",
    "log_softmax": """
@kernel
def log_softmax(X: {x}[M, N], Y: {y}[M, N]):{sums}
        rest = log(total)
        for n in tiles(N):
            Y[m, n] = X[m, n] - most - rest
""",
}
BACKWARD: dict[Kind, str] = {
    "softmax": """
@kernel
def softmax_backward(G: {g}[M, N], Y: {y}[M, N], DX: {x}[M, N]):
    for m in tiles(M):
        dot = zeros(f32[m])
        for n in tiles(N):
            dot += sum(cast(G[m, n], f32) * cast(Y[m, n], f32), over=n)
        for n in tiles(N):
            DX[m, n] = (G[m, n] - dot) * Y[m, n]
""",
    "log_softmax": """
@kernel
def log_softmax_backward(G: {g}[M, N], Y: {y}[M, N], DX: {x}[M, N]):
    for m in tiles(M):
        total = zeros(f32[m])
        for n in tiles(N):
            total += sum(cast(G[m, n], f32), over=n)
        for n in tiles(N):
            DX[m, n] = G[m, n] - exp(cast(Y[m, n], f32)) * total
""",
}


def softmax(x: Any, out_dtype: Any = None, out: Any = None, **options: Unpack[Options]) -> Any:
    """`exp(x) / sum(exp(x))` over the last axis; in f32, rounded once. As in torch, a row of -inf,
    or with inf or NaN, gives NaN; elements of -inf among others give 0.

    x: [..., N] of f32, f16 or bf16, of torch, CuPy, JAX or NumPy.
    out_dtype: f32, f16 or bf16; that of x, if `out` does not tell it.
    out: [..., N], contiguous; written, and returned. Else allocated.
    options: schedule, stream, exact and on_miss, as for kernels.

    torch records the gradient where x requires one, and no `out` is given. LaunchError for arrays
    that do not fit; nothing has been written then.
    """
    return _forward("softmax", x, out_dtype, out, options)


def log_softmax(x: Any, out_dtype: Any = None, out: Any = None, **options: Unpack[Options]) -> Any:
    """`x - log(sum(exp(x)))` over the last axis. All else is as for `softmax`."""
    return _forward("log_softmax", x, out_dtype, out, options)


def softmax_backward(
    grad: Any, y: Any, out_dtype: Any = None, out: Any = None, **options: Unpack[Options]
) -> Any:
    """The gradient of x, from `grad`, that of `y`, which `softmax` gave.

    grad, y: [..., N] of f32, f16 or bf16.
    out_dtype: of x; that of y, if `out` does not tell it.
    out, options: as for `softmax`.
    """
    return _backward("softmax", grad, y, out_dtype, out, options)


def log_softmax_backward(
    grad: Any, y: Any, out_dtype: Any = None, out: Any = None, **options: Unpack[Options]
) -> Any:
    """As `softmax_backward`, of what `log_softmax` gave."""
    return _backward("log_softmax", grad, y, out_dtype, out, options)


def _forward(kind: Kind, x: Any, out_dtype: Any, out: Any, options: Options) -> Any:
    rows = rows_of("x", x)
    target, y = rows.output(out, out_dtype)
    made = kernel_of(FORWARD[kind], x=rows.dtype, y=y, sums=SUMS)(rows.matrix, target, **options)
    return rows.shaped(made) if out is None else out


def _backward(kind: Kind, grad: Any, y: Any, out_dtype: Any, out: Any, options: Options) -> Any:
    rows, grads = rows_and_gradient("y", y, grad)
    target, x = rows.output(out, out_dtype)
    kernel = kernel_of(BACKWARD[kind], g=grads.dtype, y=rows.dtype, x=x)
    made = kernel(grads.matrix, rows.matrix, target, **options)
    return rows.shaped(made) if out is None else out
