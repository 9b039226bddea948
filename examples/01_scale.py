"""1. A kernel is a function over tiles with named axes.

`tiles(M, N)` walks two dimensions in tiles; how large a tile is, the compiler chooses. `X[m, n]` is
the current tile of X. No thread, no address and no bounds check is written down, and nothing has to
divide anything: a tile at the edge is smaller, and the result is that of the whole tensors.

Arrays may be torch's, CuPy's, JAX's or, as here, NumPy's. The output is left out of the call: it is
allocated like the first input, and returned. On a machine without a GPU the same call runs in the
simulator.
"""

import numpy as np

from wsdsl import dims, f32, kernel, tiles

M, N = dims("M N")


@kernel
def scale(X: f32[M, N], factor: f32, Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n] * factor


def main():
    x = np.random.default_rng(0).standard_normal((200, 300), "float32")
    y = scale(x, 2.5)
    assert np.array_equal(y, x * np.float32(2.5))
    print(f"scale: {y.shape} elements, each exactly 2.5 times its input")


if __name__ == "__main__":
    main()
