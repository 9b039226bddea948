"""Native functions: machine code that is cached on disk, and executed from memory."""

import ctypes
import hashlib
import mmap
import platform
from collections.abc import Callable
from pathlib import Path

from wsdsl.artifact.cache import get_or_compute
from wsdsl.artifact.versions import digest

SOURCES = "native_ir.py", "launch_stub_ir.py", "launch_table.py"


_shipped: dict[str, bytes] = {}
"""Machine code of exported folders, by key."""


def cached(name: str, emit: Callable[[], bytes]) -> int:
    """Address of a native function; `emit` gives its machine code, once for all processes."""
    return executable(_shipped.get(key_of(name)) or code_of(name, emit))


def code_of(name: str, emit: Callable[[], bytes]) -> bytes:
    """Machine code of a native function."""
    return get_or_compute(digest("native", key_of(name)), bytes, emit)


def key_of(name: str) -> str:
    """Key of a native function: its sources, which `digest` does not cover, and its platform."""
    sources = [Path(__file__).with_name(file).read_bytes() for file in SOURCES]
    layout = platform.machine(), bytes.__basicsize__, tuple.__basicsize__
    return hashlib.sha256(repr((name, *layout, *sources)).encode()).hexdigest()


def add_shipped(key: str, code: bytes) -> None:
    """Use machine code of an exported folder, where no compiler emits it."""
    _shipped[key] = code


def executable(code: bytes) -> int:
    """Address of machine code, never unmapped. OSError where none may be executed."""
    kinds = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    memory = mmap.mmap(-1, len(code), prot=kinds)
    memory.write(code)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if platform.machine() == "aarch64":
        clear = ctypes.CDLL("libgcc_s.so.1")["__clear_cache"]
        clear(ctypes.c_void_p(address), ctypes.c_void_p(address + len(code)))
    return address
