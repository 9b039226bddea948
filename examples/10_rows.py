"""10. Rows that are longer than a tile.

A loop over tiles of a row carries what has been found so far: here the largest element, and the
sum of exponentials, which is rescaled when a larger element comes. A second loop in the same kernel
uses both. The result must not depend on how large tiles are; a text where it would is refused.

`wsdsl.kernels` has softmax ready, and rmsnorm, layernorm, cross entropy and quantisation; torch
records their gradients.
"""

import numpy as np

from wsdsl import (
    cast,
    dims,
    exp,
    f16,
    f32,
    full,
    inf,
    kernel,
    kernels,
    max,
    sum,
    tiles,
    where,
    zeros,
)

M, N = dims("M N")


@kernel
def softmax(X: f16[M, N], Y: f32[M, N]):
    for m in tiles(M):
        top, total = full(f32[m], -inf), zeros(f32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            before, top = top, max(top, max(x, over=n))
            shift = where(top == -inf, 0.0, top)  # a tile may hold nothing but -inf
            total = total * exp(before - shift) + sum(exp(x - shift), over=n)
        for n in tiles(N):
            Y[m, n] = exp(X[m, n] - top) / total


def main():
    x = np.random.default_rng(0).standard_normal((100, 1000)).astype("float16") * np.float16(4)
    x[0, :600] = -np.inf

    y = softmax(x)

    wide = x.astype("float64")
    exact = np.exp(wide - wide.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    error = np.linalg.norm(y - exact) / np.linalg.norm(exact)
    assert error < 2**-18
    assert np.allclose(kernels.softmax(x, out_dtype="f32"), y, rtol=2**-20)
    print(f"softmax: relative error {error:.2g} against float64")


if __name__ == "__main__":
    main()
