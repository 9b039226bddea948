"""The CUDA driver through cuda-python: loaded on first use, every failure a LaunchError."""

import ctypes
import importlib
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from wsdsl.diagnostics import Finding, LaunchError

STICKY = {
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
}
"""Errors that a kernel leaves behind, and every later call reports."""

HINTS = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "compile the kernel for the architecture of this GPU",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "update the driver, which is older than the PTX",
    "CUDA_ERROR_OUT_OF_MEMORY": "free device memory",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "call the kernel once before the capture",
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": (
        "use another stream: the legacy default stream cannot run while a stream is captured"
    ),
}


class DriverError(LaunchError):
    """A call of the CUDA driver failed; `code` is the CUresult's name."""

    def __init__(self, function: str, code: str, detail: str = "") -> None:
        self.code = code
        hint = HINTS.get(code, "")
        if code in STICKY:
            hint = "start a new process: an earlier kernel corrupted the CUDA context"
        message = f"WS0734 {function} failed: {code}" + (f" ({detail})" if detail else "")
        super().__init__(Finding(message, hint=hint))


@cache
def is_installed() -> bool:
    """Is there a libcuda? Asked before cuda-python is imported, which takes half a second."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


@cache
def api() -> Any:
    """cuda.bindings.driver, initialized."""
    try:
        driver: Any = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        hint = 'install it: pip install "cuda-bindings>=12.9"'
        raise LaunchError(f"WS0735 cuda-python cannot be imported: {error}", hint=hint) from None
    if not is_installed():
        hint = "install an NVIDIA driver, or run in the simulator (WSDSL_BACKEND=simulator)"
        raise LaunchError("WS0736 no CUDA driver (libcuda.so.1) was found", hint=hint)
    status = driver.cuInit(0)[0]
    if int(status) != 0:
        raise DriverError("cuInit", name_of(status))
    return driver


def name_of(status: Any) -> str:
    return str(getattr(status, "name", f"CUresult {int(status)}"))


def call(function: str, *arguments: Any) -> Any:
    """`call("cuCtxGetCurrent")`: the call's one result (None, or a tuple of several), or raises."""
    status, *results = getattr(api(), function)(*arguments)
    if int(status) != 0:
        raise DriverError(function, name_of(status), describe(status))
    return results[0] if len(results) == 1 else tuple(results) or None


def launch_config(
    grid: int, threads: int, smem_bytes: int, stream: Any = 0, attributes: Sequence[Any] = ()
) -> Any:
    """A CUlaunchConfig of one dimension."""
    config = api().CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes, config.hStream = smem_bytes, stream
    config.attrs, config.numAttrs = [*attributes], len(attributes)
    return config


def launch_attribute(together: bool) -> Any:
    """The launch attribute of a kernel whose CTAs all wait for each other, or of one that waits for
    the one before it by itself.
    """
    made, of = api().CUlaunchAttribute(), api().CUlaunchAttributeID
    if together:
        made.id, made.value.cooperative = of.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1
    else:
        made.id = of.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        made.value.programmaticStreamSerializationAllowed = 1
    return made


def describe(status: Any) -> str:
    """The driver's own words for a CUresult."""
    error, text = api().cuGetErrorString(status)
    if int(error) != 0 or not text:
        return ""
    return text.decode() if isinstance(text, bytes) else str(text)
