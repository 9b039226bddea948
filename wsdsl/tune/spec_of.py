"""What a process that measures is told of a call."""

from __future__ import annotations

import ctypes

from wsdsl.artifact.access import Access
from wsdsl.runtime import driver
from wsdsl.runtime.arguments import Call
from wsdsl.runtime.device import context_for, current
from wsdsl.runtime.views import ArrayView, byte_range
from wsdsl.tune.memory import ALIGN
from wsdsl.tune.spec import Argument, Spec

MAX_DATA_BYTES = 256 << 20


def spec_of(text: str, call: Call, access: Access) -> Spec:
    """Integers of 16 bits and more that are only read may be indices and bounds, which say how much
    work there is: they are copied, if they are there. Nothing else of the arrays is looked at.
    """
    arguments: list[Argument] = []
    for name, view in call.views.items():
        is_read, is_written = name not in access.only_written, name in access.writes
        is_index = view.dtype.kind in ("int", "uint") and view.dtype.bits >= 16
        data = _held(view) if is_index and is_read and not is_written else None
        arguments.append(
            Argument(
                name,
                view.dtype.name,
                view.shape,
                view.strides,
                view.pointer % ALIGN,
                is_read,
                is_written,
                data,
                view.packed,
            )
        )
    index = next((v.device_index for v in call.views.values() if v.on_gpu), 0)
    return Spec(text, tuple(arguments), dict(call.scalars), dict(call.dims), index)


def _held(view: ArrayView) -> bytes | None:
    low, high = byte_range(view)
    if not view.pointer or high - low > MAX_DATA_BYTES:
        return None
    if not view.on_gpu:
        return ctypes.string_at(low, high - low)
    data = bytearray(high - low)
    with current(context_for(view.device_index)):
        driver.call("cuCtxSynchronize")
        driver.call("cuMemcpyDtoH", data, low, len(data))
    return bytes(data)
