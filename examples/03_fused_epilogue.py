"""3. What follows the loop is the epilogue, and it costs no pass over memory of its own.

The accumulator is a tile like any other: scale its rows and its columns, add a bias, apply an
activation, add a residual. Operands broadcast by the *names* of their axes: `bias[n]` meets
`acc`, which has (m, n), and is the same in every row. All of it happens in registers, between the
last product and the one store.
"""

import math

import ml_dtypes
import numpy as np

from wsdsl import bf16, cast, dims, f32, gelu, kernel, tiles, zeros

M, N, K = dims("M N K")


@kernel
def linear(
    X: bf16[M, K],
    W: bf16[N, K],
    row_scale: f32[M],
    column_scale: f32[N],
    bias: f32[N],
    residual: bf16[M, N],
    Y: bf16[M, N],
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ W[n, k]
        acc = acc * row_scale[m] * column_scale[n] + bias[n]
        Y[m, n] = gelu(acc) + cast(residual[m, n], f32)


def main():
    generator = np.random.default_rng(0)
    rows, columns, depth = 192, 256, 128
    x = generator.standard_normal((rows, depth), "float32").astype(ml_dtypes.bfloat16)
    w = generator.standard_normal((columns, depth), "float32").astype(ml_dtypes.bfloat16)
    row_scale = generator.uniform(0.05, 0.15, rows).astype("float32")
    column_scale = generator.uniform(0.5, 1.5, columns).astype("float32")
    bias = generator.standard_normal(columns, "float32")
    residual = generator.standard_normal((rows, columns), "float32").astype(ml_dtypes.bfloat16)

    y = linear(x, w, row_scale, column_scale, bias, residual)

    t = x.astype("float64") @ w.astype("float64").T
    t = t * row_scale[:, None] * column_scale + bias
    exact = t * 0.5 * (1 + np.vectorize(math.erf)(t / math.sqrt(2))) + residual.astype("float64")
    error = np.linalg.norm(y.astype("float64") - exact) / np.linalg.norm(exact)
    assert error < 2**-8
    print(f"linear: relative error {error:.2g} against float64")


if __name__ == "__main__":
    main()
