"""`make demo`: what becomes of examples/02_gemm.py, and does it compute the right thing."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from itertools import groupby
from pathlib import Path

import ml_dtypes
import numpy as np

import wsdsl
from wsdsl import config
from wsdsl.cli.source_argument import import_file
from wsdsl.runtime.device import gpu_available

EXAMPLE = Path(__file__).parents[1] / "examples" / "02_gemm.py"
ARITHMETIC = re.compile(r"= (map|constant|cast|dim_size|slice|cta_index|num_ctas)\(")
SYNCHRONISATION = re.compile(
    r"\b(mbarrier|cp\.async\.bulk|wgmma|setmaxnreg|fence|bar|barrier|elect|stmatrix)\.[\w.:]*"
)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").strip())
    options.add_argument(
        "-v", "--verbose", action="store_true", help="show the IR and the PTX, too"
    )
    verbose = options.parse_args().verbose
    gemm = import_file(EXAMPLE).gemm
    on_gpu = gpu_available()
    size = 4096 if on_gpu else 512

    title(f"The source, examples/{EXAMPLE.name}")
    print(gemm.source.rstrip())

    began = time.perf_counter()
    with config.override(cache_dir=None):  # it shall be compiled each time
        compiled = gemm.compile(M=size, N=size, K=size)
    seconds = time.perf_counter() - began
    if verbose:
        title("The three levels (`print(compiled.ir(level))` shows them whole)")
        for level in ("tile", "partitioned", "scheduled"):
            print(shortened(compiled.ir(level)), end="\n\n")
        title("What waits for what in the PTX")
        print(skeleton(compiled.ptx))

    title(f"{size} x {size} x {size} on the {'GPU' if on_gpu else 'simulator (no GPU here)'}")
    generator = np.random.default_rng(0)
    a, b = (
        generator.standard_normal((size, size), "float32").astype(ml_dtypes.bfloat16)
        for _ in range(2)
    )
    began = time.perf_counter()
    c = gemm(a, b)
    ran = time.perf_counter() - began
    exact = a.astype("float32") @ b.astype("float32").T
    error = np.linalg.norm(c.astype("float32") - exact) / np.linalg.norm(exact)
    verdict = "correct" if error <= 2**-8 else "WRONG"
    print(f"relative error {error:.2g} against NumPy: {verdict} ({ran:.2f} s)")

    title(f"What was chosen, and why (compiled and proved in {seconds:.2f} s)")
    print(compiled.schedule)
    why = gemm.explain(M=size, N=size, K=size).splitlines()
    print("\n".join(line.strip() for line in why[1:3]))
    print(resources(compiled))

    title("Where to look further")
    print("the dumps of every level: make demo ARGS=-v, or `wsdsl compile FILE -o DIR`")
    print("a course of eleven examples: examples/README.md; the language: docs/language.md")
    if error > 2**-8:
        raise SystemExit(1)


def title(text: str) -> None:
    bold, plain = ("\033[1m", "\033[0m") if in_colour() else ("", "")
    print(f"\n{bold}==== {text}{plain}", flush=True)


def in_colour() -> bool:
    """As no-color.org has it: on a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def shortened(text: str, limit: int = 80) -> str:
    """Without the arithmetic, lines cut to the screen."""
    lines = text.rstrip().splitlines()
    kept = [cut(line) for line in lines if not ARITHMETIC.search(line)]
    if len(kept) > limit:
        kept = [*kept[: limit - 2], f"  … {len(kept) - limit} more lines", kept[-1]]
    left_out = sum(bool(ARITHMETIC.search(line)) for line in lines)
    return "\n".join(kept) + (f"   # arithmetic left out: {left_out}" if left_out else "")


def cut(line: str, width: int = 110) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def skeleton(ptx: str) -> str:
    """The synchronising instructions in order; runs of the same one are counted."""
    found = [match.group(0).rstrip(".:") for match in SYNCHRONISATION.finditer(ptx)]
    shown: list[str] = []
    for name, group in groupby(found):
        count = len(list(group))
        if name.startswith("setmaxnreg"):
            shown.append(
                "the loading warpgroup:" if ".dec." in name else "the computing warpgroups:"
            )
        shown.append(f"  {name}{f'  × {count}' if count > 1 else ''}")
    return "\n".join(shown)


def resources(compiled: wsdsl.Compiled) -> str:
    smem = f"{compiled.signature.smem_bytes} bytes of SMEM"
    if compiled.assembled is None:
        return f"no ptxas here (the driver will assemble): {smem}"
    held = compiled.resources
    spills = f"{held.spill_store_bytes + held.spill_load_bytes} bytes spilled"
    return f"{held.registers} registers per thread, {smem}, {spills}, ptxas {held.ptxas_version}"


if __name__ == "__main__":
    main()
