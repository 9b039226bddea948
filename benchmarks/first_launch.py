"""What the first launch of a kernel costs in a new process: compiled there, and kept on disk.

python -m benchmarks.first_launch      (needs a GPU)

Two processes, one after the other, with an empty folder for `WSDSL_CACHE_DIR`. torch is imported
and has a context when the clock starts; `import wsdsl` is timed by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import write

SIZE = 1024
ROOT = Path(__file__).parents[1]
SECONDS = 120.0


def child() -> dict[str, float]:
    """Milliseconds of the import, and from there until the first launch is over."""
    import torch

    a, b = (torch.randn(SIZE, SIZE, device="cuda").bfloat16() for _ in range(2))
    torch.cuda.synchronize()
    begin = time.perf_counter()
    import wsdsl.kernels

    imported = time.perf_counter()
    c = wsdsl.kernels.matmul(a, b)
    torch.cuda.synchronize()
    over = time.perf_counter()
    worst = float((c.float() - a.float() @ b.float()).abs().max())
    assert worst < 1.0, worst
    return {"import": 1e3 * (imported - begin), "first launch": 1e3 * (over - imported)}


def run() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment: dict[str, Any] = os.environ | {"WSDSL_CACHE_DIR": folder}
        for name in ("nothing kept", "kept on disk", "kept on disk, again"):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.first_launch", "--child"],
                capture_output=True, text=True, env=environment, cwd=ROOT, timeout=SECONDS,
                check=False,
            )  # fmt: skip
            if done.returncode:
                raise SystemExit(done.stderr)
            found[name] = json.loads(done.stdout.splitlines()[-1])
            told = ", ".join(f"{what} {ms:.1f} ms" for what, ms in found[name].items())
            print(f"{name}: {told}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child()))
        return 0
    print(f"written to {write('first_launch', run(), options.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
