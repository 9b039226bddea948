"""Find ptxas, run it, and read what it reports."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wsdsl.codegen.emit import CPU
from wsdsl.diagnostics import CompileError, Finding


@dataclass(frozen=True, slots=True)
class Resources:
    """What the machine code takes, a thread (registers, stack, spills) and a CTA (`smem_bytes`:
    static only; the dynamic part is in `codegen.signature`)."""

    registers: int
    smem_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    ptxas_version: str


@dataclass(frozen=True, slots=True)
class Assembled:
    cubin: bytes
    resources: Resources
    log: str
    """ptxas' own output."""
    ptx: str


def find_ptxas(path: str | None = None) -> str | None:
    """The given ptxas, else the one of the wheel nvidia-cuda-nvcc, else the one on PATH.

    The wheel comes first: it is pinned, and so is the machine code that it makes.
    """
    if path is not None:
        found = shutil.which(path)
        if found is None:
            raise CompileError(
                Finding(f"no ptxas at {path}", hint="unset WSDSL_PTXAS, or correct it")
            )
        return found
    return _wheel_ptxas() or shutil.which("ptxas")


@cache
def _wheel_ptxas() -> str | None:
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = [p for place in places for p in sorted(Path(place).glob("cu*/bin/ptxas"))]
    return str(found[-1]) if found else None


@cache
def ptxas_version(path: str) -> str:
    """As in "13.0.88"."""
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"V([\d.]+)", text)
    return found[1] if found else "unknown"


def assemble(ptx: str, path: str | None = None) -> Assembled | None:
    """PTX to machine code. None if there is no ptxas: then the driver has to do it."""
    ptxas = find_ptxas(path)
    if ptxas is None:
        return None
    with tempfile.TemporaryDirectory(prefix="wsdsl-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [ptxas, f"-arch={CPU}", "-v", str(source), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = f"{done.stdout}{done.stderr}".replace(str(source), "kernel.ptx")
        if not cubin.exists() or done.returncode:
            raise AssembleError(log, ptxas)
        return Assembled(cubin.read_bytes(), read_resources(log, ptxas_version(ptxas)), log, ptx)


class AssembleError(CompileError):
    """ptxas made nothing. `gate.assemble_checked` says which line of the source it is about."""

    def __init__(self, log: str, ptxas: str) -> None:
        self.log = log
        hint = f"this is a bug in wsdsl; please report it ({ptxas}, {ptxas_version(ptxas)})"
        super().__init__(Finding(f"ptxas refuses the PTX:\n{log.strip()}", hint=hint))


def read_resources(log: str, version: str) -> Resources:
    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        smem_bytes=number(r"(\d+) bytes smem"),
        spill_store_bytes=number(r"(\d+) bytes spill stores"),
        spill_load_bytes=number(r"(\d+) bytes spill loads"),
        stack_bytes=number(r"(\d+) bytes stack frame"),
        ptxas_version=version,
    )
