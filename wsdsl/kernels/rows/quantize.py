"""`quantize`: rows rounded to 8 bits, with a scale each."""

from __future__ import annotations

from typing import Any, Unpack

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.kernels.gemm.dtypes import dtype_of
from wsdsl.kernels.rows.arrays import Options, kernel_of, rows_of

LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0, "i8": 127.0}
LEAST = 2.0**-100
"""What the largest of a row counts as at the least, so that its inverse is finite."""
TEXT = """
@kernel
def quantize(X: {x}[M, N], Q: {q}[M, N], scales: f32[M]):
    for m in tiles(M):
        most = full(f32[m], {least})
        for n in tiles(N):
            most = max(most, max(abs(cast(X[m, n], f32)), over=n))
        scales[m] = most / {largest}
        inverse = {largest} / most
        for n in tiles(N):
            Q[m, n] = {code}
"""


def quantize(
    x: Any, dtype: Any = "f8e4m3", out: Any = None, **options: Unpack[Options]
) -> tuple[Any, Any]:
    """Codes, and scales of rows: `codes * scales[..., None]` is x, rounded to the nearest code. A
    row's largest magnitude is the largest code.

    x: [..., N] of f32, f16 or bf16, of torch, CuPy, JAX or NumPy.
    dtype: of the codes, f8e4m3, f8e5m2 or i8.
    out: [..., N], contiguous: the codes are written there. Else allocated.
    options: schedule, stream, exact and on_miss, as for kernels.

    The scales are f32 [...], max(abs(x)) / 448 for f8e4m3, at least 2**-100 / 448. Elements are
    multiplied by the scale's inverse in f32, and rounded to even. A row that has inf or NaN has a
    scale of that, and codes of 8-bit floats that are NaN where x is not finite. No gradient is
    recorded. LaunchError for arrays that do not fit; nothing has been written then.
    """
    rows, wanted = rows_of("x", x), dtype_of(dtype, "dtype").name
    if wanted not in LARGEST:
        message = f"codes of {wanted}, expected {', '.join(LARGEST)}"
        raise LaunchError(Finding(message))
    target, _ = rows.output(out, wanted, (*LARGEST,))
    ratio = "X[m, n] * inverse"
    text = TEXT.format(
        x=rows.dtype,
        q=wanted,
        least=LEAST,
        largest=LARGEST[wanted],
        code=f"round({ratio})" if wanted == "i8" else ratio,
    )
    codes, scales = kernel_of(text)(rows.matrix, target, None, **options)
    made = codes.reshape(rows.shape) if out is None else out
    return made, scales.reshape(rows.shape[:-1])
