"""5. `each`, and sizes that divide nothing.

`each(H)` walks a dimension index by index: h is a scalar, and A[h, m, k] a tile with the axes m and
k. Here B is shared by all of the batch, and is stored the other way round, with k outermost: axes
have names, so no transpose is written. Sizes are odd on purpose: a tile that hangs over the edge is
filled with zeros where it is read, and clipped where it is written. In the second call a row is no
multiple of 16 bytes, which TMA can not take: the loading warpgroup's threads copy it instead.
"""

import ml_dtypes
import numpy as np

from wsdsl import bf16, dims, each, f32, kernel, tiles, zeros

H, M, N, K = dims("H M N K")


@kernel
def batched(A: bf16[H, M, K], B: bf16[K, N], C: f32[H, M, N]):
    for h in each(H):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[h, m, k] @ B[k, n]
            C[h, m, n] = acc


def main():
    generator = np.random.default_rng(0)
    for batch, rows, columns, depth in ((3, 77, 200, 104), (2, 45, 33, 27), (1, 1, 1, 1)):
        a = generator.standard_normal((batch, rows, depth), "float32").astype(ml_dtypes.bfloat16)
        b = generator.standard_normal((depth, columns), "float32").astype(ml_dtypes.bfloat16)
        c = batched(a, b)
        exact = a.astype("float64") @ b.astype("float64")
        error = np.linalg.norm(c.astype("float64") - exact) / np.linalg.norm(exact)
        assert error < 1e-5
        print(f"batched {a.shape} x {b.shape}: relative error {error:.2g} against float64")


if __name__ == "__main__":
    main()
