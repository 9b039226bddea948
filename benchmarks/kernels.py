"""The kernels that are measured."""

from wsdsl import bf16, dims, f32, kernel, tiles, zeros

M, N, K = dims("M N K")


@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
