"""NumPy arrays on a machine with a GPU: there, run, and back."""

import math
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from wsdsl.runtime import driver
from wsdsl.runtime.arguments import Call
from wsdsl.runtime.arrays.packed import Packed
from wsdsl.runtime.arrays.streams import given_stream, legacy_stream
from wsdsl.runtime.arrays.views import ArrayView, contiguous_strides
from wsdsl.runtime.device import context_for, current
from wsdsl.runtime.launcher import Launcher

PITCH = 16
"""Rows on the device begin at multiples of this many bytes, for any alignment on the host: a kernel
that was compiled for the host's alignment then fits the copy."""


def run_staged(launcher: Launcher, call: Call, stream: Any = None) -> None:
    """Copy the arrays to device 0, run, copy the outputs back into the caller's arrays."""
    context = context_for(0)
    handle = given_stream(stream) if stream is not None else legacy_stream()
    with current(context), ExitStack() as stack:
        hosts: dict[str, Any] = {}
        views: dict[str, ArrayView] = {}
        for name, view in call.views.items():
            array = call.arrays[name]
            if isinstance(array, Packed):
                views[name] = _send_packed(array, view, stack)
            else:
                hosts[name], views[name] = _send(call.host(name), view, stack)
        launcher.prepare(views, call.scalars, call.dims, handle)()
        driver.call("cuStreamSynchronize", handle)
        for name in call.outputs:
            _fetch(hosts[name], views[name], call.host(name))


def _send(array: Any, view: ArrayView, stack: ExitStack) -> tuple[Any, ArrayView]:
    """A host buffer with pitched rows, and the view of its copy on the device."""
    import numpy as np

    item = array.dtype.itemsize
    row = math.lcm(PITCH, item) // item
    shape = array.shape or (1,)
    pitched = (*shape[:-1], -(-max(1, shape[-1]) // row) * row)
    host = np.zeros(pitched, dtype=array.dtype)
    host[..., : shape[-1]] = array.reshape(shape)
    pointer = _copied(host, stack)
    per_item = array.dtype.itemsize * 8 // view.dtype.bits
    strides = (*(s * per_item for s in contiguous_strides(pitched)[:-1]), 1)
    strides = strides[: len(view.shape)] if view.shape else ()
    return host, replace(view, pointer=pointer, strides=strides, device="cuda:0", readonly=False)


def _send_packed(packed: Packed, view: ArrayView, stack: ExitStack) -> ArrayView:
    """Its bytes, as they are: only kernels' inputs are packed."""
    import numpy as np

    pointer = _copied(np.ascontiguousarray(packed.data), stack)
    return replace(view, pointer=pointer, device="cuda:0")


def _copied(host: Any, stack: ExitStack) -> int:
    """Where its bytes are on the device, until the stack ends."""
    pointer = int(driver.call("cuMemAlloc", max(PITCH, host.nbytes)))
    stack.callback(driver.call, "cuMemFree", pointer)
    if host.nbytes:
        driver.call("cuMemcpyHtoD", pointer, host.ctypes.data, host.nbytes)
    return pointer


def _fetch(host: Any, view: ArrayView, array: Any) -> None:
    if host.nbytes:
        driver.call("cuMemcpyDtoH", host.ctypes.data, view.pointer, host.nbytes)
        shape = array.shape or (1,)
        array[...] = host[..., : shape[-1]].reshape(array.shape)
