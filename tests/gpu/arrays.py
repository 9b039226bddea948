"""Arrays between the host and torch on the GPU, amid elements that nobody may write."""

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from wsdsl.runtime.arrays.views import FRAMEWORK_NAMES

GUARD = 4096
BITS = {1: "int8", 2: "int16", 4: "int32"}


def to_device(array: np.ndarray, dtype: str, gap: int = 0) -> tuple[Any, Any]:
    """The array amid guard elements of NaN (all bits set), and the whole buffer; between rows
    there are `gap` bytes, or an element.
    """
    torch: Any = import_module("torch")
    bits = np.ascontiguousarray(array).view(BITS[array.dtype.itemsize])
    more = max(1, gap // bits.itemsize) if gap else 0
    longer = *bits.shape[:-1], bits.shape[-1] + more
    count = int(np.prod(longer))
    # All bits set is NaN in every float type.
    whole = torch.full((count + 2 * GUARD,), -1, dtype=getattr(torch, bits.dtype.name))
    rows = whole[GUARD : GUARD + count].view(longer)[..., : bits.shape[-1]]
    rows[...] = torch.from_numpy(bits)
    buffer = whole.to("cuda").view(getattr(torch, FRAMEWORK_NAMES[dtype]))
    return buffer[GUARD : GUARD + count].view(longer)[..., : bits.shape[-1]], buffer


def to_host(tensor: Any, like: np.ndarray) -> np.ndarray:
    torch: Any = import_module("torch")
    bits = tensor.contiguous().view(getattr(torch, BITS[like.dtype.itemsize])).cpu().numpy()
    return bits.view(like.dtype)


def usual_seconds(call: Callable[[], Any]) -> float:
    """Return the median host time of a warm call, in seconds."""
    torch: Any = import_module("torch")
    call()
    torch.cuda.synchronize()
    times: list[float] = []
    for _ in range(300):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return sorted(times)[150]
