"""Kernels that no other table of the tests has: scatter and gather, choices, groups of rows, and
what is refused today and will be lowered one day.
"""

HISTOGRAM = """
@kernel
def histogram(X: i32[N], H: i32[B]):
    for n in tiles(N):
        H[X[n]] += 1
"""
TEXTS: dict[str, tuple[str, dict[str, int]]] = {
    "histogram": (HISTOGRAM, dict(N=5000, B=64)),
    "scattered": (
        """
@kernel
def scattered(A: bf16[M, K], B: bf16[N, K], C: f32[P, N], D: f32[M, Q],
              rows: i32[M], columns: u8[N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[rows[m], n] = acc + 1.0
        D[m, columns[n]] += acc + 1.0
""",
        dict(M=150, N=88, K=96, P=200, Q=100),
    ),
    "gathered_rows": (
        """
@kernel
def gathered_rows(X: bf16[T, N], which: i32[M], scale: f32[T], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = cast(X[which[m], n], f32) * scale[which[m]]
""",
        dict(M=150, N=88, T=40),
    ),
    "by_expert": (
        """
@kernel
def by_expert(A: bf16[G, M, K], W: bf16[E, N, K], expert: i32[G], C: bf16[G, M, N]):
    for g in each(G):
        e = expert[g]
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[g, m, k] @ W[e, n, k]
            C[g, m, n] = acc
""",
        dict(G=6, M=64, N=264, K=136, E=4),
    ),
    "some_groups": (
        """
@kernel
def some_groups(A: bf16[G, M, K], B: bf16[G, N, K], used: i32[G], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for g in each(G):
            if used[g] > 0:
                for k in tiles(K):
                    acc += A[g, m, k] @ B[g, n, k]
        C[m, n] = acc
""",
        dict(G=5, M=130, N=264, K=136),
    ),
    "either": (
        """
@kernel
def either(X: f32[M, N], R: f32[M, N], flag: i32[1], Y: f32[M, N]):
    for m, n in tiles(M, N):
        y = X[m, n]
        if flag[0] > 0:
            y = y + R[m, n]
        else:
            y = y * 0.5
        Y[m, n] = y
""",
        dict(M=70, N=200),
    ),
    "masked": (
        """
@kernel
def masked(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = where(index(n) <= index(m), acc, -inf)
""",
        dict(M=264, N=264, K=136),
    ),
    "row_norm": (
        """
@kernel
def row_norm(X: bf16[M, D], weight: f32[D], Y: bf16[M, D]):
    for m in tiles(M):
        x = cast(X[m, :], f32)
        s = sum(x * x, over=D)
        Y[m, :] = x * rsqrt(s)
""",
        dict(M=150, D=256),
    ),
    "column_sums": (
        """
@kernel
def column_sums(X: bf16[M, N], total: f32[N], top: f32[N]):
    for n in tiles(N):
        s, t = zeros(f32[n]), full(f32[n], -inf)
        for m in tiles(M):
            x = cast(X[m, n], f32)
            s += sum(x, over=m)
            t = max(t, max(x, over=m))
        total[n] = s
        top[n] = t
""",
        dict(M=150, N=200),
    ),
    "transposed": (
        """
@kernel
def transposed(X: bf16[M, N], Y: bf16[N, M]):
    for m, n in tiles(M, N):
        Y[n, m] = X[m, n]
""",
        dict(M=150, N=200),
    ),
    "decoded_weights": (
        """
@kernel
def decoded_weights(X: bf16[M, K], W: i8[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ cast(W[n, k], bf16)
        C[m, n] = acc
""",
        dict(M=264, N=264, K=512),
    ),
    "decoded_nibbles": (
        """
@kernel
def decoded_nibbles(X: bf16[M, K], W: u4[N, K], s: bf16[N, G], z: u4[N, G], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            q = cast(W[n, k], bf16) - cast(z[n, index(k) // 64], bf16)
            acc += X[m, k] @ (q * s[n, index(k) // 64])
        C[m, n] = acc
""",
        dict(M=264, N=264, K=512, G=8),
    ),
    "small_elements": (
        """
@kernel
def small_elements(X: f32[M, N], s: f8e8m0[M], Y: f4e2m1[M, N], Z: f6e3m2[M, N], T: i4[M, N]):
    for m, n in tiles(M, N):
        x = X[m, n] / cast(s[m], f32)
        Y[m, n] = cast(x, f4e2m1)
        Z[m, n] = cast(x, f6e3m2)
        T[m, n] = x
""",
        dict(M=150, N=200),
    ),
    "attention": (
        """
@kernel
def attention(Q: bf16[B, H, S, D], K: bf16[B, H, T, D], V: bf16[B, H, T, D], O: bf16[B, H, S, D],
              scale: f32):
    for b, h in each(B, H):
        for q in tiles(S):
            top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
            for t in tiles(T):
                s = (Q[b, h, q, :] @ K[b, h, t, :]) * scale
                new_top = max(top, max(s, over=t))
                p, shrink = exp2(s - new_top), exp2(top - new_top)
                total = total * shrink + sum(p, over=t)
                acc = acc * shrink + cast(p, bf16) @ V[b, h, t, :]
                top = new_top
            O[b, h, q, :] = acc / total
""",
        dict(B=2, H=3, S=256, T=512, D=128),
    ),
    "chained_products": (
        """
@kernel
def chained_products(A: bf16[M, D], B: bf16[N, D], C: bf16[N, E], Y: f32[M, E]):
    for m in tiles(M):
        out = zeros(f32[m, E])
        for n in tiles(N):
            s = A[m, :] @ B[n, :]
            out += cast(s, bf16) @ C[n, :]
        Y[m, :] = out
""",
        dict(M=256, N=512, D=64, E=64),
    ),
    "grouped_rows": (
        """
@kernel
def grouped_rows(A: bf16[M, K], W: bf16[G, N, K], offset: i32[G1], C: bf16[M, N]):
    for g in each(G):
        for m in tiles(offset[g], offset[g + 1], of=M):
            for n in tiles(N):
                acc = zeros(f32[m, n])
                for k in tiles(K):
                    acc += A[m, k] @ W[g, n, k]
                C[m, n] = acc
""",
        dict(M=512, N=264, K=136, G=4, G1=5),
    ),
}
"""By name: the text, and sizes."""
