"""What a result file says about the machine and the versions, and where it is written."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
ROOT = f"{RESULTS.parents[1]}/"
PACKAGES = (
    *("wsdsl", "llvmlite", "lark", "numpy", "cuda-bindings", "torch", "triton", "jax", "cupy"),
    *("nvidia-cublas", "quack-kernels", "nvidia-cutlass-dsl", "apache-tvm-ffi"),
)


def output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def gpu() -> dict[str, str]:
    """The first GPU; by nvidia-smi, since the parent of watched children must not call CUDA."""
    names = ("name", "driver_version", "power.limit", "clocks.max.sm", "memory.total")
    query = f"--query-gpu={','.join(names)}"
    rows = output_of("nvidia-smi", query, "--format=csv,noheader").splitlines()
    return (
        dict(zip(names, (cell.strip() for cell in rows[0].split(",")), strict=True)) if rows else {}
    )


@cache
def ptxas_version() -> str:
    """That of the ptxas which compiles our kernels here."""
    from wsdsl import config
    from wsdsl.codegen import ptxas

    asked = config.PTXAS.get()
    path = None if asked == "off" else ptxas.find_ptxas(asked or None)
    return ptxas.ptxas_version(path) if path else "none: the driver assembles"


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        for distribution in (name, f"{name}-cuda13x", f"{name}-cuda12x"):
            try:
                found[name] = importlib.metadata.version(distribution)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    commit = output_of("git", "-C", str(RESULTS), "describe", "--always", "--dirty")
    return found | ({"commit": commit} if commit else {})


def description() -> dict[str, Any]:
    return {
        "gpu": gpu(),
        "cpu": platform.processor() or platform.machine(),
        "versions": versions() | {"ptxas": ptxas_version()},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", "-m", _module(), *_arguments(sys.argv[1:])]),
    }


def _module() -> str:
    return f"benchmarks.{Path(sys.argv[0]).stem}"


def _arguments(given: list[str]) -> list[str]:
    """Without where the results go, which says nothing of them."""
    return [
        word
        for before, word in zip(["", *given], given, strict=False)
        if "--out" not in (before, word.partition("=")[0])
    ]


def write(name: str, result: dict[str, Any], folder: Path | None = None) -> Path:
    folder = folder or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    text = json.dumps(description() | {"result": result}, indent=1)
    # Messages name files; whoever reads them has the repository elsewhere.
    path.write_text(text.replace(ROOT, "") + "\n")
    return path
