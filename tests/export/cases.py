"""Kernels that tests export, and their calls."""

from tests.export.calls import Case
from wsdsl import Schedule, parse

KERNELS = parse("""
@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
@kernel
def weights(X: bf16[M, K], W: i4[N, K], S: f32[N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ cast(W[n, k], bf16)
        Y[m, n] = acc * S[n]
@kernel
def scale(X: f32[M, N], s: f32, Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n] * s
@kernel
def row_sum(X: f32[M, N], Y: f32[M]):
    for m in tiles(M):
        Y[m] = sum(X[m, :], over=N)
@kernel
def attention(
    Q: bf16[B, H, S, D], K: bf16[B, H, T, D], V: bf16[B, H, T, D], Y: bf16[B, H, S, D], scale: f32
):
    for b, h in each(B, H):
        for q in tiles(S):
            top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
            for t in tiles(T):
                s = Q[b, h, q, :] @ K[b, h, t, :]
                new_top = max(top, max(s, over=t) * scale)
                p, shrink = exp2(fma(s, scale, -new_top)), exp2(top - new_top)
                total = total * shrink + sum(p, over=t)
                acc = acc * shrink + cast(p, bf16) @ V[b, h, t, :]
                top = new_top
            Y[b, h, q, :] = acc / total
""")

SPLIT = Schedule(tile=dict(m=128, n=128, k=64), scheduler="split_k", splits=4)
STREAM = Schedule(tile=dict(m=128, n=128, k=64), scheduler="stream_k")
SQUARE = dict(M=200, N=512, K=1024)
CASES = {
    "gemm": Case(
        KERNELS.gemm, dict(M=range(250, 300), N=512, K=512),
        (dict(M=256, N=512, K=512), dict(M=279, N=512, K=512)),
    ),
    "split_k": Case(KERNELS.gemm, SQUARE, (SQUARE,), schedule=SPLIT),
    "stream_k": Case(KERNELS.gemm, dict(M=1000, N=1024, K=1024),
                     (dict(M=999, N=1024, K=1024),), schedule=STREAM),
    "weights": Case(KERNELS.weights.packed("W"), dict(M=16, N=1024, K=1024),
                    (dict(M=16, N=1024, K=1024),)),
    "scale": Case(KERNELS.scale, dict(M=100, N=1000), (dict(M=100, N=1000),), dict(s=0.5)),
    "unaligned": Case(KERNELS.gemm, dict(M=64, N=128, K=101), (dict(M=64, N=128, K=101),)),
    "row_sum": Case(KERNELS.row_sum, dict(M=100, N=1000), (dict(M=100, N=1000),)),
    "attention": Case(
        KERNELS.attention, dict(B=1, H=2, S=range(256, 513, 256), T=512, D=64),
        (dict(B=1, H=2, S=256, T=512, D=64), dict(B=1, H=2, S=512, T=512, D=64)),
        dict(scale=0.125),
    ),
}  # fmt: skip
