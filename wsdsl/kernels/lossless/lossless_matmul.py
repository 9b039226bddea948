"""`lossless.matmul`: x @ weights.T, of weights that `pack` packed, in one kernel."""

import math
from functools import lru_cache, partial
from typing import Any

from wsdsl.dispatch.callee import repeated_with_weights
from wsdsl.dispatch.dispatcher import OnMiss
from wsdsl.dispatch.kernel import Kernel
from wsdsl.dynamo import opaque
from wsdsl.kernels.checks import type_of_output
from wsdsl.kernels.gemm.matmul_dtypes import wrong_option, wrong_shape
from wsdsl.kernels.lossless.lossless_weights import GROUP, Weights
from wsdsl.kernels.lossless.palette import ROW, Kind, entries_of
from wsdsl.kernels.torch_ops import traced_lossless, with_gradient
from wsdsl.runtime.arrays.interop import describe
from wsdsl.runtime.arrays.packed import with_zeros
from wsdsl.schedule import Schedule, as_schedule, with_constants

WEIGHTS = ("codes", "low", "entries", "marks", "firsts", "verbatim")
OUTPUTS = ("bf16", "f16", "f32")
PARTS = {
    "bytes": ("lookup(entries, code & 7) | (cast(code, u8) & 8) << 4", "upper", "rest"),
    "exponents": ("lookup(entries, code)", "upper >> 1 | rest & 128", "upper << 7 | rest & 127"),
}
"""By the palette's kind: the byte that a code decodes to, and the two bytes of a weight."""

TEXT = """
@kernel
def matmul(
    X: bf16[M, K], codes: u4[N, K], low: u8[N, K], entries: u8[{entries}],
    marks: i32[G, B], firsts: i32[G], verbatim: u8[R, 128], out: {out}[M, N],
):
    for m, n in tiles(M, N):
        acc, group, own = zeros(f32[m, n]), index(n) // 16, 1 << index(n) % 8
        first, half = firsts[group], index(n) % 16 // 8
        for k in tiles(K):
            mark, column = marks[group, index(k) // 64], index(k) % 64
            at = bitcast(first + (mark >> 8 & 16777215) + popcount(mark & own - 1), u32)
            place = column // 2 % 4 * 32 + column // 8 * 4 + column % 2 * 2 + half
            code, rest = codes[n, k], low[n, k]
            found = {found}
            upper = where(mark & own != 0, verbatim[at, place], found)
            high, below = {upper}, {lower}
            acc += X[m, k] @ bitcast(cast(high, u16) << 8 | cast(below, u16), bf16)
        out[m, n] = acc
"""


def source_of(kind: Kind, out: str) -> str:
    """The kernel's text."""
    found, upper, lower = PARTS[kind]
    entries = entries_of(kind)
    return TEXT.format(out=out, entries=entries, found=found, upper=upper, lower=lower)[1:]


@lru_cache
def kernel_of(kind: Kind, out: str) -> Kernel:
    """The kernel of weights by a palette of that kind, with results of that type; as it takes
    weights: `Kernel.packed`.
    """
    from wsdsl.dispatch.sources import one_of

    whole = one_of("matmul", source_of(kind, out), "<wsdsl.kernels.lossless>")
    return whole.packed("codes", "low")


def sizes_of(M: int, N: int, K: int) -> dict[str, int]:  # noqa: N803
    """The kernel's sizes for compiling it ahead of weights with one verbatim pair in 64."""
    across = -(-K // ROW)
    kept = max(1, N * across // 128)
    return dict(M=M, N=N, K=K + K % 2, B=across, G=-(-N // GROUP), R=kept)


@repeated_with_weights
@partial(opaque, traced=traced_lossless)
@partial(with_gradient, traced=traced_lossless)
def matmul(
    x: Any,
    weights: Weights,
    out: Any = None,
    *,
    out_dtype: Any = None,
    constant: bool = False,
    schedule: Schedule | None = None,
    stream: Any = None,
    exact: bool | None = None,
    on_miss: OnMiss | None = None,
) -> Any:
    """x @ w.T of the weights w [N, K] that `pack` was given, as exactly as of w itself: summed in
    f32, and rounded once.

    x: bf16 [..., K], of the framework of the weights' arrays, where these are (`weights.to(x)`).
    out: [..., N], contiguous; written, and returned. Else allocated.
    out_dtype: bf16, f16 or f32; bf16 if `out` does not tell it.
    constant: whether the kernel in front on the stream leaves the weights as they are: they may be
        loaded before it is complete. This is not checked; if it does write them, results may be
        wrong.
    schedule, stream, exact, on_miss: as for kernels.

    LaunchError for arrays that do not fit; nothing has been written then.
    """
    arguments, kernel, shape = arranged(x, weights, out, out_dtype)
    given = with_constants(as_schedule(schedule), WEIGHTS if constant else ())
    made = kernel(*arguments, schedule=given, stream=stream, exact=exact, on_miss=on_miss)
    return made.reshape(shape) if out is None else out


def arranged(
    x: Any, weights: Weights, out: Any = None, out_dtype: Any = None
) -> tuple[tuple[Any, ...], Kernel, tuple[int, ...]]:
    """The kernel's arguments, the kernel, and the result's shape."""
    held: Any = weights
    if not isinstance(held, Weights):
        raise wrong_option("weights", f"a {type(held).__name__}", "the result of lossless.pack")
    (n, k), shape = weights.shape, describe(x, "x").shape
    if not shape or shape[-1] != k:
        raise wrong_shape("x", shape, f"[..., {k}] for weights of shape {(n, k)}")
    whole = (*shape[:-1], n)
    rows = math.prod(shape[:-1])
    dtype = type_of_output(out, out_dtype, whole, "bf16", OUTPUTS)
    matrix = with_zeros(x, [(0, weights.width - k)]).reshape(rows, weights.width)
    given = (getattr(weights, name) for name in WEIGHTS)
    result = None if out is None else out.reshape(rows, n)
    return (matrix, *given, result), kernel_of(weights.palette.kind, dtype), whole
