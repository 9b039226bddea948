"""Import time, gemm to PTX, its proof, and a cold compile (both, and ptxas), each in a process of
its own.

python -m benchmarks.compile_time
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.machine import write

ROOT = Path(__file__).parents[1]
START = "import time; start = time.perf_counter(); "
STOP = "; print(time.perf_counter() - start)"
GEMM = "from benchmarks.kernels import gemm; "
SIZES = "M=4096, N=4096, K=4096"
PROGRAMS = {
    "import wsdsl": START + "import wsdsl" + STOP,
    "gemm to PTX": GEMM + START + f"gemm._compile(None, dict({SIZES}), ()).ptx" + STOP,
    "prove gemm": GEMM
    + f"c = gemm._compile(None, dict({SIZES}), ()); "
    + START
    + "c.certificate"
    + STOP,
    "compile gemm to a cubin": GEMM + START + f"gemm.compile({SIZES}).cubin" + STOP,
}
LIMIT_SECONDS = {
    "import wsdsl": 0.25,
    "gemm to PTX": 0.3,
    "prove gemm": 0.15,
    "compile gemm to a cubin": 1.0,
}


def seconds(program: str, ptxas: str) -> float:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {
        "PYTHONPATH": path, "WSDSL_PTXAS": ptxas, "WSDSL_CACHE_DIR": "off",
    }  # fmt: skip
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return float(done.stdout)


def run(times: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, program in PROGRAMS.items():
        ptxas = os.environ.get("WSDSL_PTXAS", "") if "cubin" in name else "off"
        seconds(program, ptxas)  # the first one writes bytecode
        measured = [seconds(program, ptxas) for _ in range(times)]
        middle, limit = statistics.median(measured), LIMIT_SECONDS[name]
        found[name] = {"seconds": middle, "all": measured, "limit": limit}
        print(f"{name:<24} {middle:.3f} s  (limit {limit} s)", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=7, help="processes of each kind (7)")
    parser.add_argument("--quick", action="store_true", help="three of each")
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    parser.add_argument("--json", action="store_true", help="print the result too")
    options = parser.parse_args()
    result = run(3 if options.quick else options.times)
    path = write("compile_time", result, options.out)
    print(json.dumps(result, indent=1) if options.json else f"written to {path}")
    return 0 if all(row["seconds"] < row["limit"] for row in result.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
