"""8. Operands that are put together from other bits: lossless weights.

What `@` multiplies may be computed, element by element, from what tensors hold. The exponents of
weights are few: sixteen values of their upper bytes are nearly all that occur, so that an index of
4 bits and a byte are a weight of 16 bits, bit for bit. Rows of 64 in which another one occurs are
kept as they are, and taken from there. `wsdsl.kernels.lossless` packs weights so, multiplies them,
and keeps them in files; products of few rows, which wait for weights, read a quarter less.
"""

import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np

from wsdsl.kernels import lossless
from wsdsl.kernels.lossless.lossless_matmul import kernel_of


def main():
    generator = np.random.default_rng(0)
    w = (generator.standard_normal((512, 1024)) / 50).astype(ml_dtypes.bfloat16)
    w[7, 100], w[9, 200] = 1e30, -0.0

    packed = lossless.pack(w)
    assert packed.unpack().tobytes() == w.tobytes()
    print(packed)
    print(kernel_of(packed.palette.kind, "bf16").source)

    x = generator.standard_normal((4, 1024)).astype(ml_dtypes.bfloat16)
    y = lossless.matmul(x, packed, out_dtype="f32")
    exact = x.astype("float64") @ w.astype("float64").T
    error = np.abs(y - exact) / np.abs(exact).max(axis=0)
    assert error.max() < 2**-18
    print(f"product {y.shape}: relative error {error.max():.2g} against float64")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights"
        bits = lossless.save(path, {"w": w})
        assert lossless.load(path)["w"].unpack().tobytes() == w.tobytes()
    print(f"in a file: {bits['w']:.2f} bits per weight, read again exactly")


if __name__ == "__main__":
    main()
