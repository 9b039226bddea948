"""A kernel's code in the GPU: loaded once a context, from a cubin or (assembled there) PTX."""

import ctypes
import re
import threading
from typing import Any

from wsdsl.artifact.machine_code import FIXED_IN, OF_REGISTERS, overwritten
from wsdsl.diagnostics import LaunchError
from wsdsl.record import record
from wsdsl.runtime import driver
from wsdsl.runtime.device import Context, current, driver_version, is_capturing, may_allocate

LOG_BYTES = 16384
SERIALISED = re.compile(r"C75(?:09|1[0-6]|18|20)|C7602|C7508")
"""Diagnostics of ptxas for a wgmma that it serializes, or a setmaxnreg that it ignores."""


@record
class Function:
    """A kernel loaded in one context. `notes`: messages to the user about its assembly."""

    handle: Any
    context: Context
    notes: tuple[str, ...] = ()


class Module:
    """One image: bytes of a cubin, or PTX text, which the driver assembles."""

    def __init__(self, image: bytes | str, name: str, smem_bytes: int) -> None:
        self.image = image.encode() if isinstance(image, str) else image
        self.name = name
        self.smem_bytes = smem_bytes
        self._functions: dict[int, Function] = {}
        self._lock = threading.Lock()

    @property
    def is_cubin(self) -> bool:
        return self.image.startswith(b"\x7fELF")

    def function(self, context: Context, stream: int) -> Function:
        """The kernel, ready to launch in `context`. It stays loaded, since graphs may refer to it.

        LaunchError if it has to be loaded while `stream` is captured.
        """
        found = self._functions.get(context.id)
        if found is not None:
            return found
        with self._lock:
            found = self._functions.get(context.id)
            if found is not None:
                return found
            if is_capturing(stream):
                message = f"WS0754 {self.name} is not loaded yet, but a CUDA graph is captured"
                hint = "call the kernel, or prepare() it, once before the capture"
                raise LaunchError(message, hint=hint)
            with current(context), may_allocate():
                found = self._load(context)
            self._functions[context.id] = found
            return found

    def _load(self, context: Context) -> Function:
        module, notes = self._load_image()
        handle = driver.call("cuModuleGetFunction", module, self.name.encode())
        attributes = driver.api().CUfunction_attribute
        if self.smem_bytes:
            limit = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.call("cuFuncSetAttribute", handle, limit, self.smem_bytes)
        if not self.is_cubin:
            local = attributes.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
            spilled = int(driver.call("cuFuncGetAttribute", local, handle))
            if spilled:
                notes = (*notes, f"{self.name} uses {spilled} bytes of local memory per thread")
        return Function(handle, context, notes)

    def _load_image(self) -> tuple[Any, tuple[str, ...]]:
        if self.is_cubin:
            return driver.call("cuModuleLoadData", self.image), ()
        option = driver.api().CUjit_option
        info, errors = bytearray(LOG_BYTES), bytearray(LOG_BYTES)
        options = {
            option.CU_JIT_INFO_LOG_BUFFER: info,
            option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
            option.CU_JIT_ERROR_LOG_BUFFER: errors,
            option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
            option.CU_JIT_LOG_VERBOSE: 1,
        }
        values = list(options.values())
        given = len(options), list(options), values
        try:
            if OF_REGISTERS.search(self.image):
                module = self._load_checked(given)
            else:
                module = driver.call("cuModuleLoadDataEx", self.image + b"\0", *given)
        except driver.DriverError as error:
            message = f"WS0755 the driver rejects PTX of {self.name}: {error.code}\n{_text(errors)}"
            hint = "install ptxas (pip install nvidia-cuda-nvcc), or update the driver"
            raise LaunchError(message.rstrip(), hint=hint) from None
        version = "{}.{}".format(*driver_version())
        notes = [f"assembled by the driver (CUDA {version}), since ptxas was not found"]
        lines = [line for log in (info, errors) for line in _text(log).splitlines()]
        notes += [line.strip() for line in lines if SERIALISED.search(line)]
        return module, tuple(notes)

    def _load_checked(self, options: tuple[int, list[Any], list[Any]]) -> Any:
        """By way of the machine code, in which products may lose registers that they read."""
        state = driver.call("cuLinkCreate", *options)
        try:
            kind = driver.api().CUjitInputType.CU_JIT_INPUT_PTX
            text = self.image + b"\0"
            name = self.name.encode()
            driver.call("cuLinkAddData", state, kind, text, len(text), name, 0, [], [])
            address, size = driver.call("cuLinkComplete", state)
            cubin = ctypes.string_at(int(address), int(size))
        finally:
            driver.call("cuLinkDestroy", state)
        if overwritten(cubin):
            version = "{}.{}".format(*driver_version())
            message = (
                f"WS0756 {self.name}: the driver's assembler (CUDA {version}) overwrites registers "
                "of an operand that an MMA in flight reads"
            )
            hint = (
                "install ptxas (pip install nvidia-cuda-nvcc), or transform the operand in SMEM: "
                f'Schedule(operand_transform="smem"); {FIXED_IN}'
            )
            raise LaunchError(message, hint=hint)
        return driver.call("cuModuleLoadData", cubin)


def _text(log: bytearray) -> str:
    return log.split(b"\0")[0].decode(errors="replace")
