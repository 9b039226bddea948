"""bf16 arrays of any framework as their bits in NumPy, and back to where they came from."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from wsdsl.diagnostics import Finding, LaunchError

Bits = NDArray[Any]
"""Of u16."""
Bytes = NDArray[Any]
"""Of u8."""
Ints = NDArray[Any]
Bools = NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)


def bits_of(array: Any) -> Bits:
    """A matrix of bf16 [N, K] as u16; unsigned integers of 16 bits stand for them. LaunchError for
    what is no such matrix, or has no elements.
    """
    kind = str(getattr(array, "dtype", type(array).__name__))
    name = kind.removeprefix("torch.")
    if name not in ("bfloat16", "uint16"):
        hint = "convert it; what is packed here has exactly the bits of a bf16"
        raise LaunchError(Finding(f"the weights are {name}, expected bf16", hint=hint))
    matrix_shape("weights", array)
    match framework(array):
        case "torch":
            torch = sys.modules["torch"]
            raw = array.detach().contiguous().view(torch.int16).cpu().numpy()
        case "cupy":
            raw = array.get()
        case _:
            raw = np.asarray(array)
    return np.ascontiguousarray(raw).view(np.uint16)


def shape_of(name: str, array: Any) -> tuple[int, ...]:
    """LaunchError for what is no array."""
    if not hasattr(array, "shape"):
        hint = "give one of torch, CuPy, JAX or NumPy"
        raise LaunchError(
            Finding(f"{name} of type {type(array).__name__}, expected an array", hint=hint)
        )
    return tuple(array.shape)


def matrix_shape(name: str, array: Any) -> tuple[int, int]:
    """[N, K]. LaunchError for what is no matrix, or has no elements."""
    shape = shape_of(name, array)
    if len(shape) != 2:
        hint = "give one matrix at a time"
        raise LaunchError(Finding(f"{name} of shape {shape}, expected [N, K]", hint=hint))
    if 0 in shape:
        message = f"{name} of shape {shape}, expected at least one row and one column"
        hint = "leave out the product: its result is empty, or 0"
        raise LaunchError(Finding(message, hint=hint))
    return shape[0], shape[1]


def framework(array: Any) -> str:
    """The package that the array's type is of."""
    root = type(array).__module__.partition(".")[0]
    return "jax" if root == "jaxlib" else root


def placed_like(array: NDArray[Any], like: Any) -> Any:
    """The array of NumPy as one of `like`'s framework, on its device; of u16 as bf16."""
    of_bits = array.dtype == np.uint16
    match framework(like):
        case "torch":
            torch = sys.modules["torch"]
            held = torch.from_numpy(array.view(np.int16) if of_bits else array).to(like.device)
            return held.view(torch.bfloat16) if of_bits else held
        case "cupy":
            cupy = sys.modules["cupy"]
            with cupy.cuda.Device(like.device.id):
                return cupy.asarray(array)
        case "jax":
            (device,) = like.devices()
            return sys.modules["jax"].device_put(array.view(BF16) if of_bits else array, device)
        case _:
            return array.view(BF16) if of_bits else array


def on_host(array: Any) -> NDArray[Any]:
    """An array that `placed_like` made as NumPy has it; bf16 as u16."""
    if array.dtype.itemsize == 2:
        return bits_of(array)
    match framework(array):
        case "torch":
            return array.cpu().numpy()
        case "cupy":
            return array.get()
        case _:
            return np.asarray(array)


def padded(array: Any, columns: int) -> Any:
    """With so many zeros behind each row."""
    if not columns:
        return array
    over = [(0, 0)] * (len(array.shape) - 1) + [(0, columns)]
    match framework(array):
        case "torch":
            return sys.modules["torch"].nn.functional.pad(array, (0, columns))
        case "cupy":
            return sys.modules["cupy"].pad(array, over)
        case "jax":
            return sys.modules["jax.numpy"].pad(array, over)
        case _:
            return np.pad(array, over)
