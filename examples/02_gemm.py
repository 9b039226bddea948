"""2. A sequential loop, and `@`.

`a @ b` contracts every axis that both tiles have: here k, the axis that A and B share by name. The
loop over k carries `acc` from one iteration to the next, so it runs in order, and its loads go to a
warpgroup of their own: TMA fills a ring of slots in shared memory while two other warpgroups keep
the tensor cores busy. Sums are f32; the store rounds to C's bf16.
"""

import ml_dtypes
import numpy as np

from wsdsl import bf16, dims, f32, kernel, tiles, zeros

M, N, K = dims("M N K")


@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc


def main():
    generator = np.random.default_rng(0)
    a = generator.standard_normal((256, 320), "float32").astype(ml_dtypes.bfloat16)
    b = generator.standard_normal((384, 320), "float32").astype(ml_dtypes.bfloat16)
    c = gemm(a, b)
    exact = a.astype("float64") @ b.astype("float64").T
    error = np.linalg.norm(c.astype("float64") - exact) / np.linalg.norm(exact)
    assert error < 2**-8
    print(f"gemm: relative error {error:.2g} against float64")


if __name__ == "__main__":
    main()
