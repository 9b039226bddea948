"""`cross_entropy` of logits and indices of classes, and its backward kernel."""

import sys
from typing import Any, Literal, Unpack, get_args

from wsdsl.kernels.gemm.matmul_dtypes import wrong_dtype, wrong_option, wrong_shape
from wsdsl.kernels.host_arrays import framework, type_name
from wsdsl.kernels.rows import row_arrays
from wsdsl.kernels.rows.softmax import SUMS
from wsdsl.runtime.arrays.interop import describe
from wsdsl.runtime.arrays.packed import contiguous

Reduction = Literal["none", "sum", "mean"]
IGNORED = -100
OF_64_BITS = "where(T[m, 1] == T[m, 0] >> 31, T[m, 0], min(ignored, 0) - 1)"
"""A target of two halves, the lower one first. A target beyond 32 bits becomes a number that is
neither a class nor `ignored`.
"""
FORWARD = """
@kernel
def cross_entropy(X: {x}[M, N], T: {t}, ignored: i32, loss: f32[M]{lse}):{sums}
        t = {target}
        rest = log(total)
        found = most - X[m, t] + rest
        known = where((t >= 0) & (t < N), found, inf - inf)
        loss[m] = where(t == ignored, 0.0, known){store}
"""
BACKWARD = """
@kernel
def cross_entropy_backward(
    G: f32[M], X: {x}[M, N], T: {t}, lse: f32[M], ignored: i32{output}
):
    for m, n in tiles(M, N):
        t = {target}
        p = exp(X[m, n] - lse[m])
        g = where((t >= 0) & (t < N), G[m], inf - inf)
        slope = (p - where(index(n) == t, 1.0, 0.0)) * g
        {into}[m, n] = where(t == ignored, 0.0, slope)
"""


def cross_entropy(
    logits: Any,
    targets: Any,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORED,
    **options: Unpack[row_arrays.Options],
) -> Any:
    """`log(sum(exp(logits))) - logits[target]` over the last axis, in f32.

    logits: [..., N] of f32, f16 or bf16, of torch, CuPy, JAX or NumPy.
    targets: [...] of int32 or int64: which of the N classes is right.
    reduction: "none" gives losses f32 [...]; "sum" adds them; "mean" divides this by the number of
        targets that are not ignored.
    ignore_index: rows with this target have a loss of 0.
    options: schedule, stream, exact and on_miss, as for kernels.

    An illegal target gives NaN, and its row a gradient of NaN. torch records the gradient
    where logits require one. LaunchError for arrays that do not fit; nothing has been written then.
    """
    if reduction not in get_args(Reduction):
        raise wrong_option("reduction", repr(reduction), ", ".join(get_args(Reduction)))
    losses = _forward(logits, targets, ignore_index, options, lse=False)[0]
    return reduce(losses, targets, reduction, ignore_index)


def reduce(losses: Any, targets: Any, reduction: Reduction, ignore_index: int) -> Any:
    """Reduce the losses of `cross_entropy`."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.sum() / (targets != ignore_index).sum(dtype=losses.dtype)


def cross_entropy_with_lse(
    logits: Any, targets: Any, ignore_index: int = IGNORED, **options: Unpack[row_arrays.Options]
) -> tuple[Any, Any]:
    """Return the losses of `cross_entropy` without a reduction, and `log(sum(exp(logits)))`, f32
    [...], for the backward pass.
    """
    loss, lse = _forward(logits, targets, ignore_index, options, lse=True)
    return loss, lse


def _forward(
    logits: Any, targets: Any, ignored: int, options: row_arrays.Options, *, lse: bool
) -> tuple[Any, ...]:
    rows = row_arrays.rows_of("logits", logits)
    classes, declared, read = _targets(targets, rows)
    result, store = (", lse: f32[M]", "\n        lse[m] = most + rest") if lse else ("", "")
    parts = dict(target=read, sums=SUMS, lse=result, store=store)
    kernel = row_arrays.kernel_of(FORWARD, x=rows.dtype, t=declared, **parts)
    made = kernel(rows.matrix, classes, ignored, **options)
    return tuple(a.reshape(rows.shape[:-1]) for a in (made if lse else (made,)))


def cross_entropy_backward(
    grad: Any,
    logits: Any,
    targets: Any,
    lse: Any,
    ignore_index: int = IGNORED,
    out: Any = None,
    **options: Unpack[row_arrays.Options],
) -> Any:
    """The gradient of the logits, of their type, from that of each loss.

    grad: f32 [...].
    logits, targets, ignore_index: the arguments of `cross_entropy_with_lse`.
    lse: f32 [...], its second result.
    out: [..., N], contiguous; written, and returned. It may be the logits, which are overwritten
        then, and whose memory is all that is needed. Else allocated.
    options: as for `cross_entropy`.
    """
    rows = row_arrays.rows_of("logits", logits)
    classes, declared, read = _targets(targets, rows)
    target, _ = rows.output(out, rows.dtype)
    in_place = out is logits
    output, into = ("", "X") if in_place else (f", DX: {rows.dtype}[M, N]", "DX")
    parts = dict(target=read, output=output, into=into)
    kernel = row_arrays.kernel_of(BACKWARD, x=rows.dtype, t=declared, **parts)
    given = rows.per_row("grad", grad), rows.matrix, classes, rows.per_row("lse", lse)
    outputs = () if in_place else (target,)
    made = kernel(*given, ignore_index, *outputs, **options)
    return rows.shaped(made) if out is None else out


def _targets(targets: Any, rows: row_arrays.Rows) -> tuple[Any, str, str]:
    """Targets as the kernel takes them, how they are declared, and how one is read."""
    shape, name = describe(targets, "targets").shape, type_name(targets)
    if shape != rows.shape[:-1]:
        raise wrong_shape("targets", shape, rows.shape[:-1])
    m = rows.size[0]
    if name == "int32":
        return targets.reshape(m), "i32[M]", "T[m]"
    if name != "int64":
        raise wrong_dtype("dtype of targets", name, ("int32", "int64"))
    int32 = sys.modules["torch"].int32 if framework(targets) == "torch" else "int32"
    halves = contiguous(targets).reshape(m).view(int32)
    return halves.reshape(m, 2), "i32[M, 2]", OF_64_BITS
