"""The stream on which a call runs: given, or the current one of the arrays' framework."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from wsdsl.diagnostics import LaunchError
from wsdsl.runtime import driver
from wsdsl.runtime.arrays.views import ArrayView
from wsdsl.runtime.device import is_capturing

MAX_STREAMS = 64
"""Streams for which memory and launches are kept; another one takes the place of one, or of all."""
LAST_SPECIAL = 2
"""Handles up to this one are those of default streams."""
StreamOf = Callable[[], int]


class Place(NamedTuple):
    """Where launches follow each other: a stream, or what is captured of it into one graph."""

    stream: int
    capture: int | None


def place_of(stream: int) -> Place:
    """By ids of the driver's, which no other stream or capture gets later. Handles come back, and
    that of the per-thread default stream means another stream in each thread. But of a stream that
    is being captured the driver does not tell the id; within one capture handles do.
    """
    if is_capturing(stream):
        own = stream if stream > LAST_SPECIAL else -threading.get_ident()
        return Place(own, _capture_id(stream))
    return Place(int(driver.call("cuStreamGetId", stream)), None)


def _capture_id(stream: int) -> int | None:
    try:
        return int(driver.call("cuStreamGetCaptureInfo", stream)[1])
    except driver.DriverError as error:
        if error.code != "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT":
            raise
        # Another stream is captured, which forbids to launch on this one; the launch says so.
        return None


def legacy_stream() -> int:
    return 0


class FixedStream(NamedTuple):
    """A stream that is given."""

    handle: int

    def __call__(self) -> int:
        return self.handle


def is_of_torch(stream: StreamOf) -> bool:
    """Whether it is torch's current stream."""
    raw = getattr(getattr(sys.modules.get("torch"), "_C", None), "_cuda_getCurrentRawStream", None)
    return raw is not None and getattr(stream, "func", None) is raw


def given_stream(stream: Any) -> int:
    """The CUstream of an int, of a stream of torch, CuPy, Numba or cuda-python, or of what has
    `__cuda_stream__`.
    """
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        given: Any = protocol() if callable(protocol) else protocol
        return int(given[1])
    for name in ("cuda_stream", "ptr", "handle"):
        held = getattr(stream, name, None)
        if held is not None:
            return int(getattr(held, "value", held) or 0)
    if type(stream).__module__.partition(".")[0] == "cuda":
        return int(stream)
    hint = "give a torch or CuPy stream, or the CUstream as an int"
    raise LaunchError(f"WS0763 stream is {stream!r}, expected a CUDA stream", hint=hint)


def current_stream(view: ArrayView) -> StreamOf:
    """How to ask for the current stream of the framework that made `view`.

    JAX and bare DLPack name none: there it is the legacy default stream.
    """
    if view.framework == "tvm_ffi.Tensor":
        tvm_ffi: Any = sys.modules["tvm_ffi"]
        return partial(tvm_ffi.get_raw_stream, tvm_ffi.device("cuda", view.device_index))
    if view.framework == "torch":
        return _torch_stream(view.device_index)
    if view.framework == "cupy":
        return _cupy_stream(view.device_index)
    if view.framework == "cuda array interface":
        return partial(int, view.keepalive.__cuda_array_interface__.get("stream") or 0)
    return legacy_stream


def _torch_stream(index: int) -> StreamOf:
    torch: Any = sys.modules.get("torch")
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return partial(raw, index)
    if torch is None:
        return legacy_stream
    return lambda: int(torch.cuda.current_stream(index).cuda_stream)


def _cupy_stream(index: int) -> StreamOf:
    cupy: Any = sys.modules.get("cupy")
    if cupy is None:
        return legacy_stream
    get = cupy.cuda.get_current_stream
    try:
        get(index)
    except TypeError:
        return lambda: int(get().ptr)
    return lambda: int(get(index).ptr)
