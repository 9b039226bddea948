"""Which GPUs there are, and the context in which a call runs."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.hardware.target import TARGETS
from wsdsl.record import record
from wsdsl.runtime import driver

T = TypeVar("T")


@record
class Device:
    """Properties of a GPU for the compiler and the launch."""

    index: int
    name: str
    num_sms: int
    capability: tuple[int, int]
    driver: tuple[int, int]
    """The CUDA version that the driver takes, (12, 3)."""

    @property
    def arch(self) -> str | None:
        """The target that runs here; None where wsdsl has none."""
        return next((t.arch for t in TARGETS if t.capability == self.capability), None)

    def __str__(self) -> str:
        capability = ".".join(map(str, self.capability))
        return f"cuda:{self.index} ({self.name}, compute capability {capability})"

    def about(self) -> dict[str, Any]:
        """The values that measurements are stored with."""
        return {"device": self.name, "arch": self.arch, "num_sms": self.num_sms}


@record
class Context:
    """A CUDA context; `id` is unique in the process, a handle may come back after a destroy."""

    handle: Any
    id: int
    device: Device


class EachContext(Generic[T]):
    """A function of a context that runs once for each of them, in one thread at a time."""

    def __init__(self, make: Callable[..., T]) -> None:
        self.make, self.known, self._lock = make, dict[int, T](), threading.Lock()

    def __call__(self, context: Context, *rest: Any) -> T:
        with self._lock:
            if context.id not in self.known:
                self.known[context.id] = self.make(context, *rest)
            return self.known[context.id]


@cache
def num_devices() -> int:
    """How many GPUs there are; 0 without a driver. Never raises."""
    if not driver.is_installed():
        return 0
    try:
        return int(driver.call("cuDeviceGetCount"))
    except LaunchError:
        return 0


def gpu_available() -> bool:
    """Is there a GPU that kernels are compiled for? Never raises; cached."""
    able = {target.capability for target in TARGETS if target.is_run}
    return any(device_properties(i).capability in able for i in range(num_devices()))


@cache
def device_properties(index: int) -> Device:
    raw: bytes = driver.call("cuDeviceGetName", 256, driver.call("cuDeviceGet", index))
    ends = "MAJOR", "MINOR"
    major, minor = (device_attribute(index, f"COMPUTE_CAPABILITY_{end}") for end in ends)
    num_sms = device_attribute(index, "MULTIPROCESSOR_COUNT")
    name = raw.split(b"\0")[0].decode()
    return Device(index, name, num_sms, (major, minor), driver_version())


def device_attribute(index: int, name: str) -> int:
    attribute = getattr(driver.api().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(driver.call("cuDeviceGetAttribute", attribute, driver.call("cuDeviceGet", index)))


def memory_bytes(index: int) -> int:
    return int(driver.call("cuDeviceTotalMem", driver.call("cuDeviceGet", index)))


def driver_version() -> tuple[int, int]:
    """Return the CUDA version that the driver supports."""
    version = int(driver.call("cuDriverGetVersion"))
    return version // 1000, version % 1000 // 10


def new_stream() -> Any:
    """Create a stream that does not synchronize with the default stream."""
    return driver.call("cuStreamCreate", int(driver.api().CUstream_flags.CU_STREAM_NON_BLOCKING))


def known_devices() -> list[Device]:
    """All, if this process has asked the driver for one; it is not woken here."""
    if not device_properties.cache_info().currsize:
        return []
    return [device_properties(index) for index in range(num_devices())]


def see_device(device: str) -> None:
    """Query the driver, which a call's arrays have initialized, for their device: `known_devices`
    then lists the GPU without a search.
    """
    if device != "cpu" and num_devices():
        num_sms_of(device)


def num_sms_of(device: str) -> int:
    """Of "cuda:1"; of where arrays of the CPU go."""
    index = int(device.removeprefix("cuda:")) if device != "cpu" else 0
    return device_properties(index).num_sms


def needed_device(arch: str = "sm_90a") -> str:
    """Describe the GPUs that run code for `arch`."""
    cards = [target for target in TARGETS if target.arch == arch]
    major, minor = cards[0].capability
    return f"compute capability {major}.{minor} ({', '.join(card.name for card in cards)})"


def require_arch(device: Device, arch: str) -> None:
    """LaunchError unless `device` runs code for `arch` (which runs on exactly one capability)."""
    if device.arch != arch:
        message = f"WS0731 the kernel is compiled for {arch}; the arrays are on {device}"
        hint = f"use a GPU of {needed_device(arch)}, or NumPy arrays with WSDSL_BACKEND=simulator"
        raise LaunchError(message, hint=hint)


_primaries: dict[int, Any] = {}
_primaries_lock = threading.Lock()


def _primary(index: int) -> Any:
    """The device's primary context, retained once for the process' life."""
    with _primaries_lock:
        if index not in _primaries:
            handle = driver.call("cuDeviceGet", index)
            _primaries[index] = driver.call("cuDevicePrimaryCtxRetain", handle)
        return _primaries[index]


def context_for(index: int) -> Context:
    """The caller's current context if it is of this device, else the device's primary one.

    A thread without any context gets the primary one made current, as the CUDA runtime does.
    """
    if not 0 <= index < num_devices():
        raise LaunchError(f"WS0732 cuda:{index} is not among the {num_devices()} GPUs")
    handle = driver.call("cuCtxGetCurrent")
    if int(handle) == 0:
        handle = _primary(index)
        driver.call("cuCtxSetCurrent", handle)
    elif int(driver.call("cuCtxGetDevice")) != index:
        handle = _primary(index)
    return Context(handle, int(driver.call("cuCtxGetId", handle)), device_properties(index))


def current_context_id() -> int:
    """Of the thread's context; 0 if it has none."""
    handle = driver.call("cuCtxGetCurrent")
    return int(driver.call("cuCtxGetId", handle)) if int(handle) else 0


@contextmanager
def current(context: Context) -> Generator[None]:
    """Run the block with `context` current."""
    driver.call("cuCtxPushCurrent", context.handle)
    try:
        yield
    finally:
        driver.call("cuCtxPopCurrent")


@contextmanager
def may_allocate() -> Generator[None]:
    """Let this thread allocate and load while another one captures a graph."""
    mode = driver.api().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = driver.call("cuThreadExchangeStreamCaptureMode", mode)
    try:
        yield
    finally:
        driver.call("cuThreadExchangeStreamCaptureMode", before)


def is_capturing(stream: int) -> bool:
    """Is a CUDA graph being captured from `stream`, or from one that the default stream blocks?"""
    try:
        status = driver.call("cuStreamIsCapturing", stream)
    except driver.DriverError as error:
        if error.code == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT":
            return True
        raise
    return int(status) != 0
