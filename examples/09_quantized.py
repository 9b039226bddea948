"""9. Operands that are dequantised on the way: weights of 4 and 8 bits.

What `@` multiplies may be a number of 4 bits that is widened, less a zero point and times a scale;
memory and shared memory see 4 bits. `wsdsl.kernels.quantized` quantises weights, lays them out in
the order in which threads hold them, and writes the kernel: integers with scales by column, group
or block, with zero points or without, fp8, nvfp4 and mxfp4.
"""

import ml_dtypes
import numpy as np

from wsdsl.kernels import quantized
from wsdsl.kernels.quantized.quantized_matmul import arranged

FORMS = {
    "i4": dict(group=128),
    "u4": dict(group=64),
    "i8": {},
    "f8e4m3": dict(group=(128, 128)),
    "nvfp4": {},
}


def main():
    generator = np.random.default_rng(0)
    weights = (generator.standard_normal((200, 512)) / 50).astype("float32")
    x = generator.standard_normal((4, 512)).astype(ml_dtypes.bfloat16)
    for dtype, how in FORMS.items():
        w = quantized.quantize(weights, dtype, **how)
        y = quantized.matmul(x, w, out_dtype="f32")

        stored = w.dequantize("f64")
        exact = x.astype("float64") @ stored.T
        error = np.abs(y - exact) / (np.abs(x.astype("float64")) @ np.abs(stored).T)
        assert error.max() < 2**-9 + 512 * 2**-24
        print(f"{w}: relative error {error.max():.1g} against float64")

    # What others have quantised: codes from -8 to 7, stored less by 8, as GPTQ has them.
    codes = generator.integers(0, 256, (200, 256)).astype("uint8")
    scales = generator.uniform(0.5, 1, (200, 4)).astype(ml_dtypes.bfloat16)
    w = quantized.weights(codes, scales, dtype="u4b8", group=128)
    bias, residual = x[0, :200], np.ones((4, 200), ml_dtypes.bfloat16)
    _, kernel, shape = arranged(x, w, bias, "silu", residual)
    print(f"\n{w}, into {shape}:\n{kernel.source}")
    assert quantized.matmul(x, w, bias, "silu", residual).shape == shape


if __name__ == "__main__":
    main()
