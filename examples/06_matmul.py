"""6. `wsdsl.kernels.matmul`: the kernels of this course need not be written.

One function for the products that programs are made of: it looks at types, strides and options,
assembles the kernel's text as you would write it, and remembers it. `plan` shows the text instead
of running it. Here a linear layer, and a product of fp8 with a scale for each 128 elements of the
contraction, as large language models use it.
"""

import math

import ml_dtypes
import numpy as np

from wsdsl.kernels import matmul


def main():
    generator = np.random.default_rng(0)

    def normal(*shape):
        return generator.standard_normal(shape, "float32")

    def close(got, exact):
        error = np.linalg.norm(got.astype("float64") - exact) / np.linalg.norm(exact)
        assert error < 2**-8
        return f"relative error {error:.2g} against float64"

    # Two sequences of 100 tokens are 200 rows of one product; the weights are stored [N, K].
    x, w = (normal(*s).astype(ml_dtypes.bfloat16) for s in ((2, 100, 136), (200, 136)))
    bias, residual = normal(200), normal(2, 100, 200).astype(ml_dtypes.bfloat16)
    print(matmul.plan(x, w.T, bias, "gelu", residual).source)
    y = matmul(x, w.T, bias, "gelu", residual)

    t = x.astype("float64") @ w.astype("float64").T + bias
    gelu = t * 0.5 * (1 + np.vectorize(math.erf)(t / math.sqrt(2)))
    print(f"linear {y.shape}: {close(y, gelu + residual.astype('float64'))}\n")

    # 1 x 128 scales of activations, 128 x 128 scales of weights.
    a, b = (normal(*s).astype(ml_dtypes.float8_e4m3fn) for s in ((72, 384), (200, 384)))
    a_scale, b_scale = generator.uniform(0.5, 2, (72, 3)), generator.uniform(0.5, 2, (2, 3))
    scales = a_scale.astype("float32"), b_scale.astype("float32")
    print(matmul.plan(a, b.T, scales=scales).source)
    c = matmul(a, b.T, scales=scales)

    n, k = np.arange(200)[:, None] // 128, np.arange(384) // 128
    exact = (a.astype("float64") * a_scale[:, k]) @ (b.astype("float64") * b_scale[n, k]).T
    print(f"fp8 {c.shape}: {close(c, exact)}")


if __name__ == "__main__":
    main()
