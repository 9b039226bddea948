"""Kernels that tests export, and their calls."""

from tests.export.calls import Case
from tests.kernels import CASES as OTHERS
from wsdsl import Schedule, parse

GEMM, ATTENTION = OTHERS["gemm"].kernel, OTHERS["attention"].kernel
KERNELS = parse("""
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
""")

SPLIT = Schedule(tile=dict(m=128, n=128, k=64), scheduler="split_k", splits=4)
STREAM = Schedule(tile=dict(m=128, n=128, k=64), scheduler="stream_k")
SQUARE = dict(M=200, N=512, K=1024)
CASES = {
    "gemm": Case(
        GEMM, dict(M=range(250, 300), N=512, K=512),
        (dict(M=256, N=512, K=512), dict(M=279, N=512, K=512)),
    ),
    "split_k": Case(GEMM, SQUARE, (SQUARE,), schedule=SPLIT),
    "stream_k": Case(GEMM, dict(M=1000, N=1024, K=1024),
                     (dict(M=999, N=1024, K=1024),), schedule=STREAM),
    "weights": Case(KERNELS.weights.packed("W"), dict(M=16, N=1024, K=1024),
                    (dict(M=16, N=1024, K=1024),)),
    "scale": Case(KERNELS.scale, dict(M=100, N=1000), (dict(M=100, N=1000),), dict(s=0.5)),
    "unaligned": Case(GEMM, dict(M=64, N=128, K=101), (dict(M=64, N=128, K=101),)),
    "row_sum": Case(KERNELS.row_sum, dict(M=100, N=1000), (dict(M=100, N=1000),)),
    "attention": Case(
        ATTENTION, dict(H=2, M=range(256, 513, 256), N=512, D=64),
        (dict(H=2, M=256, N=512, D=64), dict(H=2, M=512, N=512, D=64)),
        dict(scale=0.125),
    ),
}  # fmt: skip
