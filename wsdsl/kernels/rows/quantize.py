"""`quantize`: rows, or blocks along them, rounded to 8 bits, with a scale each."""

from typing import Any, Unpack

from wsdsl.ir.types import DTYPES
from wsdsl.kernels.gemm.matmul_dtypes import dtype_of, wrong_option
from wsdsl.kernels.rows.row_arrays import Options, Rows, kernel_of, rows_of
from wsdsl.runtime.arrays.interop import allocate, describe

LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0, "i8": 127.0}
SCALES = ("f32", "f8e8m0")
LEAST = 2.0**-100
"""Lower bound of a row's largest magnitude, so that its inverse is finite."""
MX = "f8e4m3", 32, "f8e8m0"
BLOCKS = (16, 32, 64, 128, 256)
ROWS = """
@kernel
def quantize(X: {x}[M, N], Q: {q}[M, N], scales: {scales}[M]):
    for m in tiles(M):
        most = full(f32[m], {least})
        for n in tiles(N):
            most = max(most, max(abs(cast(X[m, n], f32)), over=n))
        {scale}
        scales[m] = scale
        for n in tiles(N):
            Q[m, n] = {code}
"""
BY_BLOCK = """
@kernel
def quantize(X: {x}[M, N], Q: {q}[M, N], scales: {scales}[M, B]):
    for m, n in tiles(M, N):
        x = cast(X[m, n], f32)
        most = max(max(abs(x), over=n, per={block}), {least})
        {scale}
        scales[m, index(n) // {block}] = scale
        Q[m, n] = {code}
"""
SCALE = {
    "f32": ("scale = most / {largest}", "inverse = {largest} / most"),
    "f8e8m0": (
        "ratio = most / {largest}",
        "power = bitcast((bitcast(ratio, u32) + 0x7FFFFF) & 0x7F800000, f32)",
        "scale = where(ratio < inf, power, ratio)",
        "inverse = 1.0 / scale",
    ),
}
"""Scales of 8 bits are the least power of two with which nothing is too large."""


def quantize(
    x: Any,
    dtype: Any = "f8e4m3",
    block: int | None = None,
    scale_dtype: Any = "f32",
    out: Any = None,
    **options: Unpack[Options],
) -> tuple[Any, Any]:
    """Codes, and row scale factors: `codes * scales[..., None]` is x, rounded to the nearest code.
    The largest magnitude of a row or block is the largest code.

    x: [..., N] of f32, f16 or bf16, of torch, CuPy, JAX or NumPy.
    dtype: of the codes, f8e4m3, f8e5m2 or i8; or "mxfp8", which is f8e4m3 in blocks of 32 with
        scales of f8e8m0.
    block: how many elements of a row share a scale, 16, 32, 64, 128 or 256; all, if left out.
    scale_dtype: f32, or f8e8m0, powers of two.
    out: [..., N], contiguous: the codes are written there. Else allocated.
    options: schedule, stream, exact and on_miss, as for kernels.

    The scales are [...], of blocks [..., ceil(N / block)]: max(abs(x)) / 448 for f8e4m3, at least
    2**-100 / 448; of f8e8m0 the next power of two. Elements are multiplied by the scale's inverse
    in f32, and rounded to even. A row or block with inf or NaN has that as its scale (inf in
    f8e8m0 is 2**127), and codes of 8-bit floats are NaN where x is not finite. LaunchError for
    arrays that do not fit, or whose gradient torch records; nothing has been written then.
    """
    if dtype == "mxfp8":
        dtype, block, scale_dtype = MX
    rows, codes = rows_of("x", x), _one_of("codes", dtype, (*LARGEST,))
    scales = _one_of("scales", scale_dtype, SCALES)
    if block is not None and block not in BLOCKS:
        raise wrong_option("block", repr(block), f"{', '.join(map(str, BLOCKS))} or None")
    target, _ = rows.output(out, codes, (*LARGEST,))
    ratio = "x * inverse" if block else "X[m, n] * inverse"
    scale = ("\n" + " " * 8).join(SCALE[scales]).format(largest=LARGEST[codes])
    parts = dict(scale=scale, code=f"round({ratio})" if codes == "i8" else ratio, least=LEAST)
    template = BY_BLOCK if block else ROWS
    kernel = kernel_of(template, x=rows.dtype, q=codes, scales=scales, block=block, **parts)
    shape = (*rows.shape[:-1], *((-(-rows.shape[-1] // block),) if block else ()))
    places = _allocated(rows, shape[len(rows.shape) - 1 :], scales) if block else None
    made, found = kernel(rows.matrix, target, places, **options)
    return (rows.shaped(made) if out is None else out), found.reshape(shape)


def _allocated(rows: Rows, columns: tuple[int, ...], dtype: str) -> Any:
    return allocate(describe(rows.array), (rows.size[0], *columns), DTYPES[dtype])


def _one_of(what: str, given: Any, kinds: tuple[str, ...]) -> str:
    name = dtype_of(given, "dtype").name
    if name not in kinds:
        raise wrong_option(f"the type of {what}", name, ", ".join(kinds))
    return name
