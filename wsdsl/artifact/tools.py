"""The programs of NVIDIA that are used: where they are, and which version."""

from __future__ import annotations

import importlib.util
import os
from functools import cache

from wsdsl.diagnostics import CompileError, Finding


def find_ptxas(path: str | None = None) -> str | None:
    """The given ptxas, else the one of the wheel nvidia-cuda-nvcc, else the one on PATH.

    The wheel comes first: it is pinned, and so is the machine code that it makes.
    """
    if path is not None:
        import shutil

        found = shutil.which(path)
        if found is None:
            hint = "unset WSDSL_PTXAS, or correct it"
            raise CompileError(Finding(f"no ptxas at {path}", hint=hint))
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
