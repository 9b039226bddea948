"""What a call costs the host, beside torch's: a small product, which the card has done by then.

python -m benchmarks.host_time      (needs a GPU)
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import write
from benchmarks.watchdog import Report, watched

SIZE, CALLS, ROUNDS = 256, 200, 15
PLACES = 100
"""More than are remembered: every call finds its arrays elsewhere."""


def run() -> dict[str, float]:
    """Microseconds a call, medians of rounds in turn."""
    outcome = watched(measure)
    if not outcome.ok:
        raise SystemExit(str(outcome))
    found: dict[str, float] = outcome.value
    for name, spent in found.items():
        print(f"{name:<34} {spent:6.1f} us", flush=True)
    return found


def measure(report: Report) -> dict[str, float]:
    import torch

    from benchmarks.kernels import gemm

    calls = contestants()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-2, ROUNDS):
        for name, call in calls.items():
            report(name)
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            if turn >= 0:
                times[name].append((time.perf_counter() - start) / CALLS)
    torch.cuda.synchronize()
    if gemm._recent.repeater.launch is None:
        raise RuntimeError("Python launched known calls; the launch stub did not run")
    return {name: 1e6 * statistics.median(spent) for name, spent in times.items()}


def contestants() -> dict[str, Callable[[], Any]]:
    import torch

    from benchmarks.kernels import gemm
    from wsdsl import Schedule
    from wsdsl.kernels import matmul

    def made() -> Any:
        return torch.randn(SIZE, SIZE, device="cuda").bfloat16()

    a, b, out = made(), made(), made()
    transposed, bias, scales = b.T, made()[0], torch.ones(2, SIZE, device="cuda").unbind()
    fp8 = [x.to(torch.float8_e4m3fn) for x in (a, b)]
    prepared = gemm.prepare(a, b, out)
    elsewhere = itertools.cycle([(made(), made(), made()) for _ in range(PLACES)])
    cut = Schedule(scheduler="stream_k")
    return {
        "torch.mm(a, b, out=out)": lambda: torch.mm(a, transposed, out=out),
        "torch.mm(a, b)": lambda: torch.mm(a, transposed),
        "kernel(a, b, out)": lambda: gemm(a, b, out),
        "kernel(a, b)": lambda: gemm(a, b),
        "kernel(a, b, out), new addresses": lambda: gemm(*next(elsewhere)),
        "kernel(a, b, out), stream-K": lambda: gemm(a, b, out, schedule=cut),
        "matmul(a, b, out=out)": lambda: matmul(a, transposed, out=out),
        "matmul(a, b)": lambda: matmul(a, transposed),
        "matmul(a, b, bias), gelu": lambda: matmul(a, transposed, bias, "gelu"),
        "matmul(fp8, fp8), scales by rows": lambda: matmul(fp8[0], fp8[1].T, scales=scales),
        "prepared()": prepared,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    options = parser.parse_args()
    print(f"written to {write('host_time', run(), options.out)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
