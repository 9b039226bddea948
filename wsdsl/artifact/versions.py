"""Versions that determine the generated code in addition to a kernel's source and schedule."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from wsdsl import config
from wsdsl.diagnostics import CompileError

if TYPE_CHECKING:
    from wsdsl.ir.op import Kernel

IMPORTED = time.time()
"""When this process began to import the package, or soon after."""

ROOT = Path(__file__).parents[1]
NO_EMITTERS = ("ahead", "calibrate", "cli", "kernels", "records", "report", "runtime", "tune")
"""Folders that take no part in what a kernel's text becomes."""


@cache
def emitter() -> str | None:
    """A digest of the sources that generate code, and of the libraries that they use. None where it
    is unknown: sources are not files, or changed since this process began, which may have loaded
    them before or after.
    """
    import hashlib

    found = hashlib.sha256()
    sources = 0
    try:
        for path in _sources(str(ROOT)):
            sources += 1
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_ctime > IMPORTED:
                    return None
                data = file.read()
            found.update(f"{path[len(str(ROOT)) :]} {len(data)}\n".encode())
            found.update(data)
        for library, file_name in (("llvmlite", "_version.py"), ("lark", "__init__.py")):
            found.update(_folder(library).joinpath(file_name).read_bytes())
    except (OSError, ImportError):
        return None
    return found.hexdigest() if sources else None


def _sources(folder: str) -> Iterator[str]:
    with os.scandir(folder) as held:
        entries = sorted(held, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            if folder != str(ROOT) or entry.name not in NO_EMITTERS:
                yield from _sources(entry.path)
        elif entry.name.endswith((".py", ".lark", ".json")):
            yield entry.path


def _folder(library: str) -> Path:
    """Where it is installed; it is not imported."""
    import importlib.util

    spec = importlib.util.find_spec(library)
    if spec is None or spec.origin is None:
        raise ImportError(library)
    return Path(spec.origin).parent


def require_compiler(package: str) -> None:
    """CompileError, with all packages that are missing, unless `package` is installed."""
    if _is_installed(package):
        return
    missing = ", ".join(name for name in ("lark", "llvmlite") if not _is_installed(name))
    message = f"WS0031 the compiler needs packages that are not installed: {missing}"
    raise CompileError(message, hint="pip install lark llvmlite nvidia-cuda-nvcc")


def _is_installed(package: str) -> bool:
    try:
        return package in sys.modules or importlib.util.find_spec(package) is not None
    except ImportError:
        return False


def assembler() -> str:
    """Which ptxas is used. CompileError where the one that WSDSL_PTXAS names is not there."""
    given = config.PTXAS.get()
    path = None if given == "off" else find_ptxas(given or None)
    if path is None:
        return "none"
    held = os.stat(path)
    return f"{os.path.realpath(path)} {held.st_size} {held.st_mtime_ns}"


def digest(kind: str, *parts: object) -> str | None:
    """A key of strings, numbers and tuples of them; None where the emitter is not known."""
    import hashlib

    made_by = emitter()
    if made_by is None:
        return None
    from wsdsl.rates.of_target import calibrated_digest

    text = repr((kind, made_by, calibrated_digest(), *parts))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def digest_of(tile: Kernel) -> str:
    """A digest of a kernel's checked source, independent of the names of the kernel, its tensors
    and its values. Names of axes and dimensions count: schedules and sizes refer to them.
    """
    import dataclasses
    import hashlib
    import re

    text = str(dataclasses.replace(tile, name="kernel", schedule=None))
    numbers: dict[str, str] = {}
    text = re.sub(r"%\w+", lambda name: numbers.setdefault(name[0], f"%{len(numbers)}"), text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def artifact_key(code: str | None) -> str | None:
    """Where what the tools of this machine make of a kernel's code is kept. `code` is its key."""
    return code and digest("artifact", code, assembler(), config.ALLOW_SPILLS.get())


# NVIDIA's programs.
def find_ptxas(path: str | None = None) -> str | None:
    """The given ptxas, else the one of the wheel nvidia-cuda-nvcc, else the one on PATH.

    The wheel comes first: it is pinned, and so is the machine code that it makes.
    """
    if path is not None:
        import shutil

        found = shutil.which(path)
        if found is None:
            raise CompileError(f"WS1029 no ptxas at {path}", hint="correct or unset WSDSL_PTXAS")
        return found
    return _find_tool("ptxas")


@cache
def _find_tool(name: str) -> str | None:
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or ()) if spec else []
    found: str | None = None
    for place in places:
        for folder in sorted(os.listdir(place)) if os.path.isdir(place) else ():
            tool = os.path.join(place, folder, "bin", name)
            if folder.startswith("cu") and os.path.exists(tool):
                found = tool
    if found is not None:
        return found
    import shutil

    return shutil.which(name)


@cache
def ptxas_version(path: str) -> str:
    """As in "13.0.88"."""
    import re
    import subprocess

    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"V([\d.]+)", text)
    return found[1] if found else "unknown"


def find_nvdisasm() -> str | None:
    """The one of the wheel nvidia-cuda-nvdisasm, else the one on PATH."""
    return _find_tool("nvdisasm")
