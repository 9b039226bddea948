"""4. One loop, two products.

The gated unit of most language models: silu(X Wgᵀ) · (X Wuᵀ). One loop over k feeds two
accumulators, and each tile of X is read once for both. Nothing asks for that: X[m, k] is named
twice, and is one load. A ring's slot now holds three tiles.
"""

import ml_dtypes
import numpy as np

from wsdsl import bf16, dims, f32, kernel, silu, tiles, zeros

M, N, K = dims("M N K")


@kernel
def gated(X: bf16[M, K], Wg: bf16[N, K], Wu: bf16[N, K], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        gate, up = zeros(f32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            gate += X[m, k] @ Wg[n, k]
            up += X[m, k] @ Wu[n, k]
        Y[m, n] = silu(gate) * up


def main():
    generator = np.random.default_rng(0)
    rows, columns, depth = 192, 256, 128
    x = generator.standard_normal((rows, depth), "float32").astype(ml_dtypes.bfloat16)
    wg, wu = (
        (generator.standard_normal((columns, depth), "float32") * 0.1).astype(ml_dtypes.bfloat16)
        for _ in range(2)
    )

    y = gated(x, wg, wu)

    gate, up = (x.astype("float64") @ w.astype("float64").T for w in (wg, wu))
    exact = gate / (1 + np.exp(-gate)) * up
    error = np.linalg.norm(y.astype("float64") - exact) / np.linalg.norm(exact)
    assert error < 2**-8
    print(f"gated: relative error {error:.2g} against float64")


if __name__ == "__main__":
    main()
