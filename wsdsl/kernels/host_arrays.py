"""Arrays of any framework as NumPy has them, and back to where they came from, of every type."""

import sys
from typing import Any

import ml_dtypes
import numpy as np

from wsdsl.diagnostics import LaunchError
from wsdsl.runtime.arrays.packed import Packed
from wsdsl.runtime.arrays.views import FRAMEWORK_NAMES

RAW = {1: np.uint8, 2: np.int16}
"""NumPy's types, by bytes, that torch and CuPy exchange for the bits of types unknown to NumPy."""
OF_HOST = {
    ours: np.dtype(getattr(ml_dtypes, name, None) or name)
    for ours, name in FRAMEWORK_NAMES.items()
    if name != "bool"
}
"""By the language's names; tf32 is f32, and 4 bits are bytes of two."""


def shape_of(name: str, array: Any) -> tuple[int, ...]:
    """LaunchError if it has no shape: it is not an array."""
    if not hasattr(array, "shape"):
        hint = "give an array of torch, CuPy, JAX or NumPy"
        kind = type(array).__name__
        raise LaunchError(f"WS0800 {name} of type {kind}, expected an array", hint=hint)
    return tuple(array.shape)


def matrix_shape(name: str, array: Any) -> tuple[int, int]:
    """[N, K]. LaunchError if the array is not a matrix or has no elements."""
    shape = shape_of(name, array)
    if len(shape) != 2:
        hint = "give one matrix at a time"
        raise LaunchError(f"WS0801 {name} of shape {shape}, expected [N, K]", hint=hint)
    if 0 in shape:
        message = f"WS0802 {name} of shape {shape}, expected at least one row and one column"
        raise LaunchError(message, hint="leave out the matmul: its result is empty, or 0")
    return shape[0], shape[1]


def framework(array: Any) -> str:
    """The package that the array's type is of."""
    root = type(array).__module__.partition(".")[0]
    return "jax" if root == "jaxlib" else root


def type_name(array: Any) -> str:
    """The framework's name of the elements' type; the name of the Python type if not an array."""
    kind = getattr(array, "dtype", type(array).__name__)
    return str(getattr(kind, "name", kind)).removeprefix("torch.")


def on_host(array: Any) -> Any:
    """The array in NumPy; floats that it lacks are those of ml_dtypes."""
    match framework(array):
        case "torch":
            held = array.detach().contiguous().cpu()
            name = type_name(array)
            if not hasattr(ml_dtypes, name) and name != "float4_e2m1fn_x2":
                return held.numpy()
            torch = sys.modules["torch"]
            raw = held.view(torch.int16 if held.element_size() == 2 else torch.uint8).numpy()
            return raw if name == "float4_e2m1fn_x2" else raw.view(getattr(ml_dtypes, name))
        case "cupy":
            return array.get()
        case _:
            return np.asarray(array)


def placed_like(array: Any, like: Any) -> Any:
    """An array of NumPy as one of `like`'s framework, on its device."""
    name = array.dtype.name
    foreign = hasattr(ml_dtypes, name)
    match framework(like):
        case "torch":
            torch = sys.modules["torch"]
            raw = np.ascontiguousarray(array.view(RAW[array.itemsize]) if foreign else array)
            held = torch.from_numpy(raw).to(like.device)
            return held.view(getattr(torch, name)) if foreign else held
        case "cupy":
            cupy = sys.modules["cupy"]
            with cupy.cuda.Device(like.device.id):
                return cupy.asarray(array.view(f"u{array.itemsize}") if foreign else array)
        case "jax":
            (device,) = like.devices()
            return sys.modules["jax"].device_put(array, device)
        case _:
            return array


def packed_like(held: Packed, like: Any) -> Packed:
    """A packed array as `placed_like` places its bytes."""
    return Packed(placed_like(on_host(held.data), like), held.shape, held.dtype)
