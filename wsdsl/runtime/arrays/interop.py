"""Arrays of torch, CuPy, JAX, NumPy, __cuda_array_interface__ and DLPack as ArrayViews.

None of them is imported here: an array that exists has brought its module along.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.ir.types import DType
from wsdsl.runtime import driver
from wsdsl.runtime.arrays import dlpack
from wsdsl.runtime.arrays.views import (
    FRAMEWORK_NAMES,
    OF_ML_DTYPES,
    OF_SIX_BITS,
    ArrayView,
    byte_range,
    contiguous_strides,
    dtype_named,
)

Describer = Callable[[Any], ArrayView]
Looker = Callable[[Any], tuple[Any, int]]
MASKED = Finding("WS0737 a masked array", hint="give x.filled(0), or the mask as another argument")
FOREIGN = "WS0738 the byte order is foreign:"
_torch_dtypes: dict[Any, DType] = {}
_torch_devices: dict[Any, str] = {}
describers: dict[type, Describer] = {ArrayView: lambda view: view}
lookers: dict[type, Looker] = {}


def describe(array: Any, name: str = "") -> ArrayView:
    """Address, type, shape and strides of an array. LaunchError, which tells `name`, for a value
    that no kernel takes.
    """
    kind: type = type(array)
    try:
        describer = describers.get(kind)
        if describer is None:
            describer = describers[kind] = _describer(kind)
        return describer(array)
    except LaunchError as error:
        if not name:
            raise
        raise LaunchError(error.findings[0].within(name)) from None


def look_of(array: Any) -> tuple[Any, int]:
    """A key of an array on a GPU, and its address: together they decide how it is used. The key is
    hashable, and equal for arrays of the same kind and geometry.

    LaunchError for arrays of JAX and DLPack, and of torch that records gradients: each call
    describes these in full. Other errors are the framework's.
    """
    kind: type = type(array)
    looker = lookers.get(kind)
    if looker is None:
        looker = lookers[kind] = _LOOKERS.get(_describer(kind), _no_look)
    return looker(array)


def is_array(value: Any) -> bool:
    """Does `value` look like an array (as against a number)?"""
    try:
        _describer(type(value))
    except LaunchError:
        return False
    return True


def _describer(kind: type) -> Describer:
    if (known := describers.get(kind)) is not None:
        return known
    root = kind.__module__.partition(".")[0]
    if all(hasattr(kind, name) for name in ("data_ptr", "stride", "element_size")):
        return _torch
    traced = kind.__name__.endswith("Tracer")  # some have every method of an array
    if hasattr(kind, "unsafe_buffer_pointer") and not traced:
        return _jax
    if root in ("jax", "jaxlib"):
        hint = "inside jax.jit, call a kernel of @kernel or parse, not a ready or compiled one"
        raise LaunchError(f"WS0739 a {kind.__name__} of JAX has no memory", hint=hint)
    if root == "cupy" and hasattr(kind, "data"):
        return _cupy
    if hasattr(kind, "__cuda_array_interface__"):
        return _cuda_array_interface
    if hasattr(kind, "filled") and hasattr(kind, "mask"):
        raise LaunchError(MASKED)
    if hasattr(kind, "__array_interface__"):
        return _numpy
    if hasattr(kind, "__dlpack__"):
        return dlpack.describe
    hint = "give a torch, CuPy, JAX or NumPy array, or one with __cuda_array_interface__ or DLPack"
    raise LaunchError(f"WS0740 a {kind.__name__} is not an array", hint=hint)


def has_gradient(array: Any) -> bool:
    """Whether torch records what is done to it, for a gradient."""
    recorded = getattr(array, "requires_grad", False) is True
    return recorded and sys.modules["torch"].is_grad_enabled()


def is_transformed() -> bool:
    """Whether torch may carry tangents along with tensors, or trace what is done to them."""
    forward: Any = sys.modules.get("torch.autograd.forward_ad")
    if forward is None:
        return False
    state: Any = sys.modules["torch"]._C
    traced = state._is_tracing() or state._len_torch_dispatch_stack() > 0
    return traced or forward._current_level >= 0


def count_writes(tensors: Sequence[Any]) -> None:
    """Have torch see that its tensors were written: autograd raises for those that it has saved."""
    # The public function calls this after a check of types, which takes 0.5 µs.
    sys.modules["torch"]._C._increment_version(tensors)


def address_of(tensor: Any) -> int:
    """Of a torch tensor; LaunchError where a trace or transform, which sees no kernel, has it."""
    jit: Any = sys.modules.get("torch.jit")
    traced = jit is not None and jit.is_tracing()
    if is_transformed():
        proxies: Any = sys.modules.get("torch.fx.experimental.proxy_tensor")
        traced = traced or (proxies is not None and proxies.get_proxy_mode() is not None)
    try:
        found = 0 if traced or type(tensor).__name__ == "FakeTensor" else tensor.data_ptr()
    except RuntimeError:  # one of torch.func
        found = 0
    if traced or (not found and 0 not in tensor.shape and tensor.device.type != "meta"):
        hint = "call the kernel on plain tensors, outside torch.func, torch.export and fake modes"
        raise LaunchError("WS0741 a tensor of a trace or transform has no memory", hint=hint)
    return found


def _torch(array: Any) -> ArrayView:
    address = address_of(array)
    if getattr(array, "is_neg", bool)():
        hint = "give x.resolve_neg()"
        raise LaunchError("WS0742 a view that negates its memory, as .conj().imag", hint=hint)
    forward: Any = sys.modules.get("torch.autograd.forward_ad")
    tangent = forward.unpack_dual(array).tangent if is_transformed() else None
    if has_gradient(array) or tangent is not None:
        hint = "call it under `torch.no_grad()`, or give `.detach()` of the tensor"
        raise LaunchError("WS0743 torch records its gradient; a kernel has no gradient", hint=hint)
    dtype = _torch_dtypes.get(array.dtype)
    if dtype is None:
        name = str(array.dtype).removeprefix("torch.")
        dtype = _torch_dtypes[array.dtype] = dtype_named(name, array.element_size())
    layout = str(getattr(array, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise LaunchError(f"WS0744 a torch tensor of layout {layout}", hint="give a dense tensor")
    device = _torch_devices.get(array.device)
    if device is None:
        kind, index = array.device.type, array.device.index
        device = f"cuda:{index or 0}" if kind == "cuda" else str(kind)
        _torch_devices[array.device] = device
    shape, strides = tuple(array.shape), tuple(array.stride())
    return ArrayView(address, dtype, shape, strides, device, framework="torch", keepalive=array)


def _torch_look(array: Any) -> tuple[Any, int]:
    recorded = array.requires_grad and has_gradient(array)
    if recorded or array.is_neg() or not (address := array.data_ptr()):
        raise LaunchError("recorded, negated, or without memory")
    look = array.shape, array.stride(), array.dtype, array.device, array.layout, address & 15
    return look, address


def _no_look(array: Any) -> tuple[Any, int]:
    raise LaunchError(f"a {type(array).__name__} is described at each call")


def _jax(array: Any) -> ArrayView:
    if array.is_deleted():
        hint = "use the result of the jitted function to which it was donated"
        raise LaunchError("WS0745 a JAX array that has been deleted", hint=hint)
    devices = list(array.devices())
    if len(devices) != 1:
        hint = "call the kernel for the shard of each device"
        raise LaunchError(f"WS0746 a JAX array sharded over {len(devices)} devices", hint=hint)
    device = devices[0]
    index, name = getattr(device, "local_hardware_id", None), str(device.platform)
    if name in ("gpu", "cuda"):
        name = f"cuda:{device.id if index is None else index}"
    # JAX writes on streams of its own; nothing else says when it is done.
    array.block_until_ready()
    address, shape = int(array.unsafe_buffer_pointer()), tuple(array.shape)
    dtype = dtype_named(str(array.dtype.name), array.dtype.itemsize)
    where = address, dtype, shape, contiguous_strides(shape), name
    return ArrayView(*where, readonly=True, framework="jax", keepalive=array)


def _element_strides(strides: Sequence[int], itemsize: int) -> tuple[int, ...]:
    if any(s % itemsize for s in strides):
        message = f"WS0747 strides are {tuple(strides)} bytes, expected multiples of {itemsize}"
        raise LaunchError(message, hint="make a contiguous copy")
    return tuple(s // itemsize for s in strides)


def _cupy(array: Any) -> ArrayView:
    itemsize, device = int(array.dtype.itemsize), f"cuda:{int(array.device.id)}"
    dtype = dtype_named(str(array.dtype.name), itemsize)
    shape, strides = tuple(array.shape), _element_strides(array.strides, itemsize)
    where = int(array.data.ptr), dtype, shape, strides, device
    return ArrayView(*where, framework="cupy", keepalive=array)


def _cupy_look(array: Any) -> tuple[Any, int]:
    address = int(array.data.ptr)
    return (array.shape, array.strides, array.dtype, int(array.device.id), address & 15), address


def _numpy(array: Any) -> ArrayView:
    dtype = array.dtype
    name, itemsize = str(dtype.name), int(dtype.itemsize)
    if not dtype.isnative:
        raise LaunchError(f"{FOREIGN} {name}", hint="use .astype(x.dtype.newbyteorder('='))")
    if name in ("int4", "uint4", "float4_e2m1fn"):
        hint = "give a uint8 array of half the width, two elements per byte, low nibble first"
        raise LaunchError(f"WS0748 {name} of ml_dtypes takes a byte per element", hint=hint)
    pointer, readonly = array.__array_interface__["data"]
    strides = _element_strides(array.strides, max(1, itemsize))
    where = int(pointer), dtype_named(name, itemsize), tuple(array.shape), strides, "cpu"
    return ArrayView(*where, readonly=bool(readonly), framework="numpy", keepalive=array)


def _cuda_array_interface(array: Any) -> ArrayView:
    interface: dict[str, Any] = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise LaunchError(MASKED)
    typestr = str(interface["typestr"])
    order, kind, itemsize = typestr[0], typestr[1], int(typestr[2:])
    words = {"f": "float", "i": "int", "u": "uint", "V": "V"}
    name = "bool" if kind == "b" else f"{words.get(kind, kind)}{8 * itemsize}"
    if order == ">":
        raise LaunchError(f"{FOREIGN} {name}", hint="convert it")
    pointer, readonly = int(interface["data"][0] or 0), bool(interface["data"][1])
    shape, held = tuple(int(n) for n in interface["shape"]), interface.get("strides")
    strides = contiguous_strides(shape) if held is None else _element_strides(held, itemsize)
    where = pointer, dtype_named(name, itemsize), shape, strides, f"cuda:{_device_of(pointer)}"
    kind = "cuda array interface"
    return ArrayView(*where, readonly=readonly, framework=kind, keepalive=array)


def _device_of(pointer: int) -> int:
    if pointer == 0:
        return 0
    attribute = driver.api().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(driver.call("cuPointerGetAttribute", attribute, pointer))


_LOOKERS: dict[Describer, Looker] = {_torch: _torch_look, _cupy: _cupy_look}


def allocate(like: ArrayView, shape: Sequence[int], dtype: DType, *, zeros: bool = False) -> Any:
    """An array of the framework and on the device of `like`, uninitialised or of zeros."""
    return allocator(like, shape, dtype, zeros=zeros)()


def allocator(
    like: ArrayView, shape: Sequence[int], dtype: DType, *, zeros: bool = False
) -> Callable[[], Any]:
    """Makes such arrays, and does not hold the one of `like`."""
    make = "zeros" if zeros else "empty"
    shape = tuple(shape)
    if dtype.bits == 4:
        shape = (*shape[:-1], (shape[-1] + 1) // 2)
    name = FRAMEWORK_NAMES[dtype.name]
    if dtype.name in OF_SIX_BITS and like.framework != "numpy":
        name = "uint8"
    if like.framework == "xla":
        return partial(like.keepalive, shape, name)
    module: Any = sys.modules.get(like.framework)
    if module is None:
        message = f"WS0749 {like.framework} cannot allocate outputs"
        raise LaunchError(message, hint="give all outputs of the call")
    if like.framework == "torch":
        device = like.keepalive.device
        return partial(getattr(module, make), shape, dtype=getattr(module, name), device=device)
    if like.framework == "jax":
        on = next(iter(like.keepalive.devices()))
        numpy: Any = sys.modules["jax.numpy"]
        return lambda: getattr(numpy, make)(shape, dtype=name, device=on).block_until_ready()
    if like.framework == "cupy":
        index, kind = like.device_index, _cupy_dtype(module, dtype, like)

        def on_device() -> Any:
            with module.cuda.Device(index):
                return getattr(module, make)(shape, dtype=kind)

        return on_device
    return partial(getattr(module, make), shape, dtype=numpy_dtype(dtype))


def _cupy_dtype(cupy: Any, dtype: DType, like: ArrayView) -> Any:
    if not (dtype.is_float and dtype.bits < 32) or dtype.name == "f16":
        return FRAMEWORK_NAMES[dtype.name]
    raw = f"uint{dtype.bits}"
    if like.dtype.is_integer:
        return raw
    try:
        return cupy.dtype(numpy_dtype(dtype))
    except Exception:  # older CuPy rejects the types of ml_dtypes by several errors
        return raw


def host_array(view: ArrayView) -> Any:
    """A NumPy array of the memory of `view`, which is the host's and of at least 8-bit elements.

    It is valid as long as `view.keepalive` is.
    """
    import numpy

    dtype, size = numpy_dtype(view.dtype), view.dtype.bytes
    if view.is_empty:
        return numpy.empty(view.shape, dtype)
    low, high = byte_range(view)
    memory: Any = (ctypes.c_char * (high - low)).from_address(low)
    strides = [s * size for s in view.strides]
    array = numpy.ndarray(view.shape, dtype, memory, view.pointer - low, strides)
    array.flags.writeable = not view.readonly
    return array


def numpy_dtype(dtype: DType) -> Any:
    """NumPy's dtype for ours; bf16 and narrower floats by ml_dtypes."""
    import numpy

    name = FRAMEWORK_NAMES[dtype.name]
    if dtype.name in OF_ML_DTYPES:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)
