"""Kernels that read what they write, by what is special about them. T is the dtype of X."""

import ml_dtypes
import numpy as np

from wsdsl import parse
from wsdsl.dispatch.kernel import Kernel
from wsdsl.ir.types import Tensor

HEAD = {
    "": "X: T[M, N], Z: f32[M, N], W: f32[E, N], R: f32[M], L: f32[E]",
    "product": "X: T[M, N], Z: f32[M, N], W: f32[E, N], A: bf16[M, K], B: bf16[N, K]",
    "row": "X: T[M], W: f32[E, M]",
    "scalar": "X: T[G], W: f32[E, G]",
    "each": "X: T[E, M, N], Z: f32[M, N], W: f32[E, N]",
    "transposed": "X: T[M, N], Y: T[N, M], W: f32[E, N]",
}
TILES = "for m, n in tiles(M, N):"
BODIES = {
    "loop": f"""{TILES}
        s = cast(X[m, n], f32)
        for e in each(E):
            s = s + cast(X[m, n], f32) * W[e, n]
            X[m, n] = s""",
    "behind the loop": f"""{TILES}
        s = cast(X[m, n], f32)
        for e in each(E):
            s = s + cast(X[m, n], f32) * W[e, n]
        X[m, n] = s""",
    "stored twice": f"""{TILES}
        s = zeros(f32[m, n])
        for e in each(E):
            s = s + cast(X[m, n], f32) * W[e, n]
            X[m, n] = s
            X[m, n] = s * 0.5""",
    "added": f"""{TILES}
        s = zeros(f32[m, n])
        for e in each(E):
            s = s * 0.5 + cast(X[m, n], f32)
            X[m, n] += s * W[e, n]
        Z[m, n] = s""",
    "around a loop": f"""{TILES}
        s = zeros(f32[m, n])
        for l in each(E):
            s = s + cast(X[m, n], f32) * L[l]
            for e in each(E):
                s = s + W[e, n]
                X[m, n] = s""",
    "used behind": f"""{TILES}
        x = cast(X[m, n], f32)
        s = zeros(f32[m, n])
        for e in each(E):
            s = s + W[e, n]
            X[m, n] = s
        Z[m, n] = x""",
    "in a branch": f"""{TILES}
        x = cast(X[m, n], f32)
        if L[0] > 0.0:
            X[m, n] = x * W[0, n]
        Z[m, n] = x""",
    "walked": """for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            s = s + sum(x, over=n)
            X[m, n] = x * 2.0
        R[m] = s""",
    "gone over again": """for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            s += sum(cast(X[m, n], f32), over=n)
        for n in tiles(N):
            X[m, n] = cast(X[m, n], f32) + s""",
    "overwritten": """for n in tiles(N):
        s = zeros(f32[n])
        for m in tiles(M):
            s += sum(cast(X[m, n], f32), over=m)
        for m in tiles(M):
            X[m, n] = s + cast(index(m), f32)""",
    "product": f"""{TILES}
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        for e in each(E):
            acc = acc * 0.5 + cast(X[m, n], f32) * W[e, n]
            X[m, n] = acc""",
    "row": """for m in tiles(M):
        s = zeros(f32[m])
        for e in each(E):
            s = s * 0.5 + cast(X[m], f32) * 0.5 + W[e, m]
            X[m] = s""",
    "scalar": """for g in each(G):
        s = 0.0
        for e in each(E):
            s = s + cast(X[g], f32) * W[e, g]
            X[g] = s""",
    "each": f"""{TILES}
        s = zeros(f32[m, n])
        for e in each(E):
            s = s + cast(X[e, m, n], f32) * W[e, n]
            X[e, m, n] = s
        Z[m, n] = s""",
    "transposed": f"""{TILES}
        s = zeros(f32[m, n])
        for e in each(E):
            s = s + cast(Y[n, m], f32) * W[e, n] + cast(X[m, n], f32)
            Y[n, m] = s
            X[m, n] = s""",
}


def text(name: str, dtype: str) -> str:
    head = HEAD.get(name, HEAD[""]).replace("T[", f"{dtype}[")
    return f"@kernel\ndef f({head}):\n    {BODIES[name]}\n"


def in_place(name: str, dtype: str) -> Kernel:
    return parse(text(name, dtype)).f


def arrays(kernel: Kernel, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    """Small multiples of a half: sums of a few are exact in f32."""
    rng, made = np.random.default_rng(seed), list[np.ndarray]()
    for p in kernel.tile_ir.params:
        assert isinstance(p.type, Tensor)
        shape = tuple(sizes[str(dim)] for dim in p.type.dims)
        values = (rng.integers(-2, 3, shape) * 0.5).astype(np.float32)
        made.append(values.astype({"f32": np.float32, "bf16": ml_dtypes.bfloat16,
                                   "f16": np.float16}[p.type.dtype.name]))  # fmt: skip
    return made


def agree(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for x, y in zip(found, wanted, strict=True):
        x, y = x.astype(np.float64), y.astype(np.float64)
        np.testing.assert_allclose(x, y, rtol=2**-6, atol=1e-2 * max(1.0, np.abs(y).max(initial=0)))
