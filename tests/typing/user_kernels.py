"""What people write: `make lint` has pyright look at it as it looks at a user's file."""

from wsdsl import (
    Schedule,
    abs,
    argmax,
    argmin,
    bf16,
    boolean,
    cast,
    cumsum,
    dims,
    each,
    end,
    exp,
    f32,
    full,
    function,
    i32,
    index,
    inf,
    kernel,
    lookup,
    max,
    min,
    mulhi,
    popcount,
    relu,
    round,
    rsqrt,
    sum,
    tiles,
    topk,
    where,
    zeros,
)

M, N, K, B, D = dims("M N K B D")
LIMIT = max(3, 4) + min([1, 2]) + sum([1.0, 2.0]) + abs(-1) + round(2.5)


@function
def gate(x, y):
    return x * relu(y)


@function
def shifted(x: f32, by: float):
    return x + by


@kernel
def softmax(X: f32[M, N], Y: f32[M, N]):
    for m in tiles(M):
        top = full(f32[m], -inf)
        for n in tiles(N):
            top = max(top, max(X[m, n], over=n))
        total = zeros(f32[m])
        for n in tiles(N):
            total += sum(exp(X[m, n] - top), over=n)
        for n in tiles(N):
            Y[m, n] = exp(X[m, n] - top) / total


@kernel
def gemm(A: bf16[M, K], W: bf16[N, K], bias: f32[N], alpha: f32, n0: i32, C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ W[n, k]
        x = alpha * acc + bias[n]
        y = shifted(gate(x, -x), 1.0)
        y = where(index(m) > n0, min(x, 0.0), abs(y))
        y = where((x > 0) & ~(index(n) < n0), y, round(1.0 / (1.0 + exp(-y))))
        y = max(0.0, 2.0 * y - x + x % 3.0, x)
        if n0 > 3:
            y = y + 1.0
        C[m, n] = cast(y, bf16)


@kernel
def batched(X: f32[B, M, D], table: f32[16], mask: boolean[M], Y: f32[B, M], S: f32[B, 8]):
    for b in each(B):
        for m in tiles(M, by=128):
            x = X[b, m, :]
            y = sum(x * x, over=D) * rsqrt(min(x, over=D) / cast(D, f32) + 1e-6)
            Y[b, m] += where(mask[m], y, lookup(table, index(m) // 128))
            S[b, (end(m) - 1) // 128] = max(y, over=m) ** 2.0


@kernel
def words(X: f32[M, N], V: f32[M, K], Y: f32[M, N], S: f32[M, B], P: i32[M, K]):
    for m in tiles(M):
        x = X[m, :]
        v, i = topk(x, K, over=N)
        V[m, :] = v
        P[m, :] = i + argmax(x, over=N) - argmin(x, over=N) + popcount(mulhi(i, 3))
        s = max(abs(x), over=N, per=32)
        Y[m, :] = cumsum(x / s, over=N)
        S[m, index(N) // 32] = s


def run(x: object) -> str:
    out = softmax(x, schedule=Schedule(stages=3))
    compiled = gemm.compile(M=4096, N=4096, K=4096)
    return compiled.ptx + str(out)
