"""A persistent matrix product in Triton, fed by tensor descriptors (TMA)."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["M", "N", "K"])
def gemm(
    a,  # descriptors
    b,
    c,
    M,
    N,
    K,
    p,  # pointers: scales of A and B, or bias and residual
    q,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    NUM_SMS: tl.constexpr,
    SCALING: tl.constexpr,
    EPILOGUE: tl.constexpr,
    PROMOTE: tl.constexpr,
    ACC: tl.constexpr,
    FLATTEN: tl.constexpr,
    HALVES: tl.constexpr,
):
    num_m, num_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    num_k = tl.cdiv(K, BK)
    for tile in tl.range(tl.program_id(0), num_m * num_n, NUM_SMS, flatten=FLATTEN):
        # GROUP rows of tiles at a time, column by column: both operands stay in the L2 cache.
        first = tile // (GROUP * num_n) * GROUP
        height = min(num_m - first, GROUP)
        inside = tile % (GROUP * num_n)
        m = (first + inside % height) * BM
        n = (inside // height) * BN
        acc = tl.zeros((BM, BN), ACC)
        for k in range(num_k):
            x = a.load([m, k * BK])
            y = b.load([n, k * BK])
            if SCALING == "block":
                rows = m + tl.arange(0, BM)
                row = tl.load(p + rows * num_k + k, mask=rows < M, other=0.0)
                column = tl.load(q + (n + tl.arange(0, BN)) // 128 * num_k + k)
                acc += tl.dot(x, y.T, out_dtype=ACC) * (row[:, None] * column[None, :])
            elif PROMOTE:
                acc = tl.dot(x, y.T, acc, max_num_imprecise_acc=128, out_dtype=ACC)
            else:
                acc = tl.dot(x, y.T, acc, out_dtype=ACC)
        columns = n + tl.arange(0, BN)
        rows = m + tl.arange(0, BM)
        if SCALING == "tensor":
            acc = acc * (tl.load(p) * tl.load(q))
        if SCALING == "row":
            row = tl.load(p + rows, mask=rows < M, other=0.0)
            column = tl.load(q + columns, mask=columns < N, other=0.0)
            acc = acc * row[:, None] * column[None, :]
        if EPILOGUE:
            bias = tl.load(p + columns, mask=columns < N, other=0.0)
            acc += bias[None, :]
            acc = acc * 0.5 * (1.0 + tl.erf(acc * 0.7071067811865476))
            at = rows[:, None].to(tl.int64) * N + columns[None, :]
            inside_c = (rows < M)[:, None] & (columns < N)[None, :]
            acc += tl.load(q + at, mask=inside_c, other=0.0).to(tl.float32)
        if HALVES:  # half the shared memory for the store, so that one more stage fits
            left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
            c.store([m, n], left.to(c.dtype))
            c.store([m, n + BN // 2], right.to(c.dtype))
        else:
            c.store([m, n], acc.to(c.dtype))
