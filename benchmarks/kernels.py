"""The kernels that are measured."""

from wsdsl import (
    bf16,
    cast,
    dims,
    each,
    end,
    exp2,
    f8e4m3,
    f32,
    fma,
    full,
    gelu,
    i4,
    i8,
    i32,
    index,
    inf,
    kernel,
    max,
    sum,
    tiles,
    u4,
    where,
    zeros,
)

M, N, K, NB, KB = dims("M N K NB KB")
B, H, S, T, D = dims("B H S T D")


@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc


@kernel
def gemm_nn(A: bf16[M, K], B: bf16[K, N], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[k, n]
        C[m, n] = acc


@kernel
def gemm_nt(A: bf16[K, M], B: bf16[K, N], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[k, m] @ B[k, n]
        C[m, n] = acc


@kernel
def gemm_epilogue(A: bf16[M, K], B: bf16[N, K], bias: f32[N], residual: bf16[M, N], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = gelu(acc + bias[n]) + cast(residual[m, n], f32)


@kernel
def gemm_fp8_tensor(
    A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f32[1], b_scale: f32[1], C: bf16[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc * (a_scale[0] * b_scale[0])


@kernel
def gemm_fp8_row(A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f32[M], b_scale: f32[N], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc * a_scale[m] * b_scale[n]


@kernel
def gemm_fp8_block(
    A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f32[KB, M], b_scale: f32[NB, KB], C: bf16[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            a = A[m, k] * a_scale[index(k) // 128, m]
            b = B[n, k] * b_scale[index(n) // 128, index(k) // 128]
            acc += a @ b
        C[m, n] = acc


@kernel
def gemm_int8(A: i8[M, K], B: i8[N, K], C: i32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(i32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc


@kernel
def weights_i8(X: bf16[M, K], W: i8[N, K], s: f32[N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ cast(W[n, k], bf16)
        Y[m, n] = acc * s[n]


@kernel
def weights_f8e4m3(X: bf16[M, K], W: f8e4m3[N, K], s: f32[N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ cast(W[n, k], bf16)
        Y[m, n] = acc * s[n]


@kernel
def weights_i8_groups(X: bf16[M, K], W: i8[N, K], s: bf16[N, KB], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ (cast(W[n, k], bf16) * s[n, index(k) // 128])
        Y[m, n] = acc


@kernel
def weights_i4_groups(X: bf16[M, K], W: i4[N, K], s: bf16[N, KB], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ (cast(W[n, k], bf16) * s[n, index(k) // 128])
        Y[m, n] = acc


@kernel
def weights_u4_zeros(X: bf16[M, K], W: u4[N, K], s: bf16[N, KB], z: u4[N, KB], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            q = cast(W[n, k], bf16) - cast(z[n, index(k) // 128], bf16)
            acc += X[m, k] @ (q * s[n, index(k) // 128])
        Y[m, n] = acc


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


@kernel
def attention_causal(
    Q: bf16[B, H, S, D], K: bf16[B, H, T, D], V: bf16[B, H, T, D], Y: bf16[B, H, S, D], scale: f32
):
    for b, h in each(B, H):
        for q in tiles(S):
            top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
            for t in tiles(0, end(q), of=T):
                s = where(index(q) >= index(t), (Q[b, h, q, :] @ K[b, h, t, :]) * scale, -inf)
                new_top = max(top, max(s, over=t))
                p, shrink = exp2(s - new_top), exp2(top - new_top)
                total = total * shrink + sum(p, over=t)
                acc = acc * shrink + cast(p, bf16) @ V[b, h, t, :]
                top = new_top
            Y[b, h, q, :] = acc / total
