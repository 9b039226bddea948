"""GPU memory for a call's tensors, in the layout of the caller's arrays: several sets, which exceed
L2 in total.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wsdsl.ir.types import DTYPES, DType
from wsdsl.runtime import driver
from wsdsl.runtime.arrays.interop import numpy_dtype
from wsdsl.runtime.arrays.views import ArrayView, byte_range
from wsdsl.tune.call_description import Argument

if TYPE_CHECKING:
    import numpy as np

ALIGN = 256
MAX_SETS = 16
RANDOM_BYTES = 16 << 20
"""Size of the random data; larger tensors repeat it."""
POISON = 0xFF
"""Each byte of tensors that are only written: NaN of every floating-point type."""
SAMPLES, SAMPLE_BYTES = 64, 1 << 19
"""Parts of a tensor that the first comparison reads."""


class DeviceTensor:
    """A tensor of one set."""

    def __init__(self, argument: Argument, device: int) -> None:
        self.argument, self.dtype = argument, DTYPES[argument.dtype]
        layout = self.dtype, argument.shape, argument.strides
        unplaced = ArrayView(1 << 40, *layout, f"cuda:{device}", packed=argument.packed)
        low, high = byte_range(unplaced)
        self.bytes = max(16, high - low)
        base = int(driver.call("cuMemAlloc", self.bytes + 2 * ALIGN))
        self.low = base + (argument.offset + low - (1 << 40)) % ALIGN
        self.view = replace(unplaced, pointer=self.low + ((1 << 40) - low))

    def fill(self, random: tuple[int, int], seed: int) -> None:
        """Initialize the tensor; `random`: address and size of random numbers of its type."""
        a = self.argument
        if a.data is not None:
            driver.call("cuMemcpyHtoD", self.low, a.data, len(a.data))
        elif not a.is_read:
            driver.call("cuMemsetD8", self.low, POISON, self.bytes)
        else:
            source, size = random
            begin, done = seed * 4096 % max(1, size // 2), 0
            while done < self.bytes:
                part = min(self.bytes - done, size - begin)
                driver.call("cuMemcpyDtoD", self.low + done, source + begin, part)
                begin, done = 0, done + part

    def read(self, *, whole: bool) -> Any:
        """The content as an array of bytes; unless `whole`, samples of large content."""
        import numpy as np

        step = self.bytes // SAMPLES // 16 * 16
        if whole or step <= SAMPLE_BYTES:
            parts = [(0, self.bytes)]
        else:
            parts = [(i * step, SAMPLE_BYTES) for i in range(SAMPLES)]
        out = np.empty(sum(size for _, size in parts), np.uint8)
        at = 0
        for begin, size in parts:
            driver.call("cuMemcpyDtoH", out.ctypes.data + at, self.low + begin, size)
            at += size
        return out


def random_array(
    generator: np.random.Generator, dtype: DType, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    import numpy as np

    if dtype.bits < 8:
        # Two to a byte, all patterns.
        return generator.integers(0, 256, bytes_shape(dtype, shape)).astype(np.uint8)
    if dtype.name == "f8e8m0":
        # Scale factors: negative ones would be NaN.
        return np.exp2(generator.integers(-4, 5, shape), dtype="f4").astype(numpy_dtype(dtype))
    if dtype.is_float:
        return generator.standard_normal(shape, "float32").astype(numpy_dtype(dtype))
    return generator.integers(0, 2 if dtype.kind == "bool" else 8, shape).astype(numpy_dtype(dtype))


def bytes_shape(dtype: DType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of the array that holds such a tensor: of 4 bits, two elements to a byte."""
    return shape if dtype.bits >= 8 else (*shape[:-1], dtype.size(shape[-1]))


def random_numbers(dtype_name: str) -> tuple[int, int]:
    """On the GPU: the address, and how many bytes."""
    import numpy as np

    dtype = DTYPES[dtype_name]
    made = random_array(np.random.default_rng(17), dtype, (8 * RANDOM_BYTES // dtype.bits,))
    pointer = int(driver.call("cuMemAlloc", made.nbytes))
    driver.call("cuMemcpyHtoD", pointer, made.ctypes.data, made.nbytes)
    return pointer, made.nbytes


def make_sets(
    arguments: tuple[Argument, ...], device: int, l2_bytes: int
) -> list[list[DeviceTensor]]:
    """LaunchError where the GPU has no room."""
    random = {a.dtype: random_numbers(a.dtype) for a in arguments if a.is_read}

    def made(seed: int) -> list[DeviceTensor]:
        own = [DeviceTensor(a, device) for a in arguments]
        for i, tensor in enumerate(own):
            tensor.fill(random.get(tensor.argument.dtype, (0, 0)), seed * len(own) + i)
        return own

    sets = [made(0)]
    size = sum(tensor.bytes for tensor in sets[0])
    free = int(driver.call("cuMemGetInfo")[0])
    wanted = min(MAX_SETS, math.ceil(2 * l2_bytes / max(1, size)), 1 + free // 2 // max(1, size))
    return sets + [made(seed) for seed in range(1, wanted)]


def _numbers(raw: Any, dtype: DType) -> Any:
    """Of a float type, from their bytes, as f32."""
    import numpy as np

    if dtype.bits == 4:
        import ml_dtypes

        pairs = np.stack([raw & 15, raw >> 4], -1).reshape(-1)
        return pairs.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    size = len(raw) // dtype.bytes * dtype.bytes
    return raw[:size].view(numpy_dtype(dtype)).astype(np.float32)


def fault(name: str, tensor: Any, exact: Any, dtype_name: str, tolerance: float) -> str:
    """Return the difference of two results of one tensor (bytes), or ""."""
    import numpy as np

    dtype = DTYPES[dtype_name]
    if not dtype.is_float:
        return "" if np.array_equal(tensor, exact) else f"wrong: `{name}` differs"
    a, b = (_numbers(x, dtype) for x in (tensor, exact))
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return f"wrong: `{name}` has elements that are not finite, or not written"
    difference = float(np.linalg.norm((a - b)[finite]))
    norm = float(np.linalg.norm(b[finite]))
    if difference > tolerance * norm:
        return f"wrong: `{name}` has a relative error of {difference / (norm or 1.0):.2g}"
    return ""
