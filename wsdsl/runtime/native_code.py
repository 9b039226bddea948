"""Native functions: machine code that is cached on disk, and executed from memory."""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable
from pathlib import Path

from wsdsl.artifact.kept import kept
from wsdsl.artifact.versions import digest

SOURCES = "native_ir.py", "launch_stub_ir.py", "launch_table.py"


def cached(name: str, emit: Callable[[], bytes]) -> int:
    """Address of a native function; `emit` gives its machine code, once for all processes."""
    # `digest` covers compiler sources only.
    sources = [Path(__file__).with_name(file).read_bytes() for file in SOURCES]
    layout = platform.machine(), bytes.__basicsize__, tuple.__basicsize__
    return executable(kept(digest("native", name, *layout, *sources), bytes, emit))


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
