"""Kernels of the shape that is lowered, with what they mean in plain NumPy (float64)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tests import store_kernels
from tests.case_table import CASES, Case, case, gelu, silu
from wsdsl import Schedule
from wsdsl.ir.tile_ops import Contract
from wsdsl.ir.walk import walk

__all__ = ["CASES", "ORDERS", "Case", "check", "expected", "inputs", "store_kernels"]
Arrays = Mapping[str, Any]


@case(
    "gemm",
    """
@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
""",
    M=150, N=264, K=136,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": A @ B.T}


@case(
    "mn_major",
    """
@kernel
def mn_major(A: f16[K, M], B: f16[K, N], C: f16[N, M]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[k, m] @ B[k, n]
        C[n, m] = acc
""",
    M=136, N=72, K=100,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": (A.T @ B).T}


@case(
    "scale",
    """
@kernel
def scale(A: bf16[M, N], C: f32[M, N], alpha: f32):
    for m, n in tiles(M, N):
        C[m, n] = cast(A[m, n], f32) * alpha
""",
    M=70, N=40,
)  # fmt: skip
def _(A: Any, alpha: float) -> Any:
    return {"C": A * alpha}


@case(
    "epilogue",
    """
@kernel
def epilogue(
    A: bf16[M, K], B: bf16[N, K], bias: f32[N], rows: f32[M], R: bf16[M, N], C: bf16[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = gelu(acc * rows[m] + bias[n]) + cast(R[m, n], f32)
""",
    M=130, N=80, K=72,
)  # fmt: skip
def _(A: Any, B: Any, bias: Any, rows: Any, R: Any) -> Any:
    return {"C": gelu(A @ B.T * rows[:, None] + bias) + R}


@case(
    "two_products",
    """
@kernel
def two_products(X: bf16[M, K], G: bf16[N, K], U: bf16[N, K], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        g, u = zeros(f32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            x = X[m, k]
            g += x @ G[n, k]
            u += x @ U[n, k]
        Y[m, n] = silu(g) * u
""",
    M=100, N=136, K=80,
)  # fmt: skip
def _(X: Any, G: Any, U: Any) -> Any:
    return {"Y": silu(X @ G.T) * (X @ U.T)}


@case(
    "two_loops",
    """
@kernel
def two_loops(A: bf16[M, K], B: bf16[N, K], D: f16[L, M], E: f16[N, L], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        for l in tiles(L):
            acc += D[l, m] @ E[n, l]
        C[m, n] = acc
""",
    M=72, N=72, K=200, L=88,
)  # fmt: skip
def _(A: Any, B: Any, D: Any, E: Any) -> Any:
    return {"C": A @ B.T + D.T @ E.T}


@case(
    "nested",
    """
@kernel
def nested(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N], total: f32[M], top: f32[M]):
    for m in tiles(M):
        s, t = zeros(f32[m]), full(f32[m], -inf)
        for n in tiles(N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            C[m, n] = acc
            s += sum(acc * acc, over=n)
            t = max(t, max(acc, over=n))
        total[m] = s
        top[m] = t
""",
    M=150, N=520, K=72,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    x = A @ B.T
    return {"C": x, "total": (x * x).sum(1), "top": x.max(1)}


@case(
    "batched",
    """
@kernel
def batched(A: bf16[G, M, K], B: bf16[G, N, K], C: bf16[G, M, N]):
    for g in each(G):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[g, m, k] @ B[g, n, k]
            C[g, m, n] = acc
""",
    G=3, M=130, N=24, K=40,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": A @ B.transpose(0, 2, 1)}


@case(
    "whole",
    """
@kernel
def whole(A: bf16[M, D], B: bf16[N, D], R: f32[M]):
    for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            s += sum(A[m, :] @ B[n, :], over=n)
        R[m] = s
""",
    M=130, N=300, D=80,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"R": (A @ B.T).sum(1)}


@case(
    "held_operand",
    """
@kernel
def held_operand(A: bf16[M, D], B: bf16[N, D], R: f32[M]):
    for m in tiles(M):
        a = A[m, :]
        s = zeros(f32[m])
        for n in tiles(N):
            s += sum(relu(a @ B[n, :]), over=n)
        R[m] = s
""",
    M=130, N=300, D=64,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"R": np.maximum(A @ B.T, 0).sum(1)}


@case(
    "bias_first",
    """
@kernel
def bias_first(A: bf16[M, K], B: bf16[N, K], bias: f32[N], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n]) + bias[n]
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
""",
    M=64, N=48, K=24,
)  # fmt: skip
def _(A: Any, B: Any, bias: Any) -> Any:
    return {"C": A @ B.T + bias}


@case(
    "each_inside",
    """
@kernel
def each_inside(A: bf16[E, M, K], B: bf16[E, N, K], w: f32[E], C: f32[M, N]):
    for m, n in tiles(M, N):
        out = zeros(f32[m, n])
        for e in each(E):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[e, m, k] @ B[e, n, k]
            out += acc * w[e]
        C[m, n] = out
""",
    E=3, M=80, N=40, K=72,
)  # fmt: skip
def _(A: Any, B: Any, w: Any) -> Any:
    return {"C": np.einsum("emk,enk,e->mn", A, B, w)}


@case(
    "accumulated_in_nest",
    """
@kernel
def accumulated_in_nest(A: bf16[E, M, K], B: bf16[E, N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for e in each(E):
            for k in tiles(K):
                acc += A[e, m, k] @ B[e, n, k]
        C[m, n] = acc
""",
    E=3, M=80, N=40, K=72,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": np.einsum("emk,enk->mn", A, B)}


@case(
    "row_softmax",
    """
@kernel
def row_softmax(X: f32[M, N], top: f32[M], Y: f32[M, N]):
    for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            s += sum(exp(X[m, n] - top[m]), over=n)
        for n in tiles(N):
            Y[m, n] = exp(X[m, n] - top[m]) / s
""",
    M=100, N=200,
)  # fmt: skip
def _(X: Any, top: Any) -> Any:
    e = np.exp(X - top[:, None])
    return {"Y": e / e.sum(1, keepdims=True)}


@case(
    "reduce_into",
    """
@kernel
def reduce_into(A: bf16[E, M, K], B: bf16[E, N, K], C: f32[M, N]):
    for e in each(E):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[e, m, k] @ B[e, n, k]
            C[m, n] += acc
""",
    E=3, M=80, N=40, K=72,
)  # fmt: skip
def _(A: Any, B: Any, C: Any) -> Any:
    return {"C": C + np.einsum("emk,enk->mn", A, B)}


@case(
    "broadcast",
    """
@kernel
def broadcast(bias: f32[N], rows: f32[M], C: bf16[M, N], D: bf16[N, M]):
    for m, n in tiles(M, N):
        C[m, n] = bias[n]
        D[n, m] = rows[m]
""",
    M=72, N=88,
)  # fmt: skip
def _(bias: Any, rows: Any) -> Any:
    shape = (rows.size, bias.size)
    return {"C": np.broadcast_to(bias, shape), "D": np.broadcast_to(rows, shape[::-1])}


@case(
    "around_a_loop",
    """
@kernel
def around_a_loop(A: bf16[M, D], B: bf16[N, D], X: bf16[M, K], W: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = A[m, :] @ B[n, :]
        for k in tiles(K):
            acc += X[m, k] @ W[n, k]
        acc += A[m, :] @ B[n, :]
        C[m, n] = acc
""",
    M=100, N=40, D=48, K=72,
)  # fmt: skip
def _(A: Any, B: Any, X: Any, W: Any) -> Any:
    return {"C": 2 * (A @ B.T) + X @ W.T}


@case(
    "gathered_bias",
    """
@kernel
def gathered_bias(A: bf16[M, K], B: bf16[N, K], which: i32[M], table: f32[T, N], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        keep = where(index(n) < index(m), acc, 0.0)
        C[m, n] = keep + table[which[m], n]
""",
    M=72, N=88, K=24, T=5,
)  # fmt: skip
def _(A: Any, B: Any, which: Any, table: Any) -> Any:
    x = A @ B.T
    m, n = np.indices(x.shape)
    return {"C": np.where(n < m, x, 0) + table[which.astype(int)]}


PRODUCT = """
@kernel
def product(A: {a}[M, K], B: {b}[N, K], C: {c}[M, N]):
    for m, n in tiles(M, N):
        acc = zeros({acc}[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
"""


def _product(A: Any, B: Any) -> Any:
    return {"C": A @ B.T}


for _a, _b, _c in (
    ("tf32", "tf32", "f32"),
    ("f8e4m3", "f8e4m3", "bf16"),
    ("f8e5m2", "f8e4m3", "f32"),
    ("i8", "i8", "i32"),
    ("u8", "i8", "i32"),
):
    _acc = "i32" if _c == "i32" else "f32"
    _name = f"product_{_a}" if _a == _b else f"product_{_a}_{_b}"
    case(_name, PRODUCT.format(a=_a, b=_b, c=_c, acc=_acc), M=72, N=88, K=272)(_product)


@case(
    "second_operand_first",
    """
@kernel
def second_operand_first(A: u8[M, K], B: i8[N, K], R: i32[M]):
    for m in tiles(M):
        s = zeros(i32[m])
        for n in tiles(N):
            s += sum(B[n, :] @ A[m, :], over=n)
        R[m] = s
""",
    M=72, N=88, K=72,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"R": (A @ B.T).sum(1)}


@case(
    "two_types",
    """
@kernel
def two_types(A: i8[M, K], B: u8[N, K], X: bf16[M, K], Y: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        i, x = zeros(i32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            i += A[m, k] @ B[n, k]
            x += X[m, k] @ Y[n, k]
        C[m, n] = cast(i, f32) / 1000.0 + x
""",
    M=72, N=88, K=200,
)  # fmt: skip
def _(A: Any, B: Any, X: Any, Y: Any) -> Any:
    return {"C": A @ B.T / 1000 + X @ Y.T}


@case(
    "block_scaled",
    """
@kernel
def block_scaled(
    A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f32[M, KB], b_scale: f32[NB, KB], C: bf16[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            a = A[m, k] * a_scale[m, index(k) // 128]
            acc += a @ (B[n, k] * b_scale[index(n) // 128, index(k) // 128])
        C[m, n] = acc
""",
    M=72, N=200, K=272, NB=2, KB=3,
)  # fmt: skip
def _(A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    m, n, k = (np.arange(size) for size in (A.shape[0], *B.shape))
    a = A * a_scale[m[:, None], k // 128]
    return {"C": a @ (B * b_scale[n[:, None] // 128, k // 128]).T}


@case(
    "two_scaled",
    """
@kernel
def two_scaled(A: f8e4m3[M, K], B: f8e4m3[N, K], D: f8e4m3[N, K], s: f32[M, KB], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            a = A[m, k] * s[m, index(k) // 64]
            acc += a @ cast(B[n, k], f32) + a @ cast(D[n, k], f32)
        C[m, n] = acc
""",
    M=72, N=88, K=144, KB=3,
)  # fmt: skip
def _(A: Any, B: Any, D: Any, s: Any) -> Any:
    return {"C": A * s[:, np.arange(A.shape[1]) // 64] @ (B + D).T}


@case(
    "scaled",
    """
@kernel
def scaled(A: f8e4m3[M, K], B: f8e5m2[N, K], sa: f32[M], sb: f32[N], C: bf16[M, N], alpha: f32):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc * sa[m] * sb[n] * alpha
""",
    M=72, N=88, K=144,
)  # fmt: skip
def _(A: Any, B: Any, sa: Any, sb: Any, alpha: float) -> Any:
    return {"C": A @ B.T * sa[:, None] * sb * alpha}


@case(
    "scaled_rows",
    """
@kernel
def scaled_rows(A: bf16[M, K], B: bf16[N, K], s: f32[M], G: f32[KG, MG], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            a = cast(A[m, k], f32) * s[m] * G[index(k) // 64, index(m) // 64]
            acc += a @ (0.5 * cast(B[n, k], f32))
        C[m, n] = acc
""",
    M=200, N=72, K=136, KG=3, MG=4,
)  # fmt: skip
def _(A: Any, B: Any, s: Any, G: Any) -> Any:
    m, k = (np.arange(size) for size in A.shape)
    return {"C": 0.5 * (A * s[:, None] * G[k // 64, m[:, None] // 64]) @ B.T}


DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "tf32": np.float32,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "i32": np.int32,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.bool_,
}
TOLERANCE = {
    "bf16": 2.0**-8,
    "f16": 2.0**-10,
    "f32": 2e-5,
    "tf32": 2.0**-11,
    "f8e4m3": 2.0**-4,
    "f8e5m2": 2.0**-3,
    # Of floats that were rounded to integers, some were close to the next one.
    "i32": 2.0**-8,
    "i8": 2.0**-8,
    "u8": 2.0**-8,
    "bool": 0.0,
}
TENSOR_CORES = 1e-3
"""They keep 14 bits of a sum of fp8 products until it is promoted."""
UNWRITTEN = 113
"""What integers hold that are only written; floats hold NaN."""


ORDERS = (
    Schedule(tile=dict(m=64, n=64), mode="pingpong"),
    Schedule(tile=dict(m=128, n=48), mode="pingpong", stages=2, scheduler="grid"),
    Schedule(tile=dict(m=64, n=32), mode="pingpong", consumers=3, swizzle=1),
    Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(m=2)),
    Schedule(tile=dict(m=128, n=80), cluster=dict(n=2), scheduler="grid"),
    Schedule(tile=dict(m=64, n=32), consumers=1, cluster=dict(m=2, n=2), raster="m"),
    Schedule(tile=dict(m=64, n=48), mode="pingpong", cluster=dict(m=4), raster="m", swizzle=2),
    Schedule(tile=dict(m=48, n=128), mma="n"),
    Schedule(tile=dict(m=16, n=64), mma="n", mode="pingpong", cluster=dict(n=2)),
)
"""Who does which tile, with whom, and in which order."""


def inputs(found: Case, seed: int = 0, **sizes: int) -> dict[str, Any]:
    """Random arrays and scalars for every parameter; what is only written is poisoned with NaN."""
    rng = np.random.default_rng(seed)
    kernel, dims = found.kernel, {**found.sizes, **sizes}
    if "NB" in dims:
        dims["NB"] = -(-dims["N"] // 64)
    only_written = kernel.access.only_written
    made: dict[str, Any] = {}
    for p in kernel.tile.params:
        kind: Any = p.type
        if not hasattr(kind, "dims"):
            made[p.name] = 1.5
            continue
        shape = [dims.get(d, d) for d in kind.dims]
        dtype = DTYPES[kind.dtype.name]
        if kind.dtype.bits == 8 and kind.dtype.is_integer:
            known = np.iinfo(dtype)
            made[p.name] = rng.integers(known.min, known.max + 1, shape).astype(dtype)
        elif kind.dtype.is_integer:
            made[p.name] = rng.integers(0, dims.get("T", 5), shape).astype(dtype)
        elif kind.dtype.bits == 8:
            made[p.name] = rng.standard_normal(shape).astype(np.float32).astype(dtype)
        else:
            made[p.name] = rng.standard_normal(shape).astype(dtype)
        if p.name in only_written:
            made[p.name][...] = np.nan if kind.dtype.is_float else UNWRITTEN
    return made


def expected(found: Case, arrays: Arrays) -> dict[str, Any]:
    types: dict[str, Any] = {p.name: p.type for p in found.kernel.tile.params}

    def wide(name: str, held: Any) -> Any:
        if types[name].dtype.name == "tf32":
            # The tensor cores ignore the lower 13 bits.
            held = (held.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return np.asarray(held).astype(np.float64) if isinstance(held, np.ndarray) else held

    written = found.kernel.access.only_written
    return found.expected(**{n: wide(n, a) for n, a in arrays.items() if n not in written})


def check(found: Case, arrays: Arrays, wanted: Mapping[str, Any]) -> None:
    """Every output written, and close to what is meant."""
    for name, want in wanted.items():
        got = np.asarray(arrays[name])
        kind: Any = next(p.type for p in found.kernel.tile.params if p.name == name)
        wide = got.astype(np.float64)
        assert np.isfinite(wide).all() or not np.isfinite(want).all(), f"{name}: not all written"
        scale = max(float(np.linalg.norm(want)), 1e-30)
        error = float(np.linalg.norm(wide - want)) / scale
        allowed = max(TOLERANCE[kind.dtype.name], TENSOR_CORES if _sums_fp8(found) else 0.0)
        assert error <= allowed, f"{name}: relative error {error:.2g}"


def _sums_fp8(found: Case) -> bool:
    products = (op for op in walk(found.kernel.tile.body) if isinstance(op, Contract))
    return any("f8" in str(op.a.type) for op in products)
