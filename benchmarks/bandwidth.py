"""Kernels without products beside torch's and a copy of as many bytes, in one run.

python -m benchmarks.bandwidth                        # all of them
python -m benchmarks.bandwidth -k rmsnorm --seconds 0.05

Bursts of CUDA graphs in turns, of operands that are in no cache; a share is the copy's time over
that of the kernel. Results are compared with torch's in f32 first.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.bandwidth_case import Case
from benchmarks.burst import Burst
from benchmarks.column_cases import column_cases
from benchmarks.machine import write
from benchmarks.pattern_cases import pattern_cases
from benchmarks.row_cases import row_cases
from benchmarks.transpose_cases import transpose_cases

TEXT = """
@kernel
def add_line(X: f32[N], Y: f32[N]):
    for n in tiles(N):
        Y[n] = X[n] + 1.0

@kernel
def add(X: bf16[M, N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n] + 1.0

@kernel
def silu_mul(X: bf16[M, N], Z: bf16[M, N], bias: f32[N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = silu(X[m, n] + bias[n]) * Z[m, n]

@kernel
def rmsnorm(X: bf16[M, N], W: bf16[N], count: f32, Y: bf16[M, N]):
    for m in tiles(M):
        squares = zeros(f32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            squares += sum(x * x, over=n)
        scale = rsqrt(squares / count + 1e-6)
        for n in tiles(N):
            Y[m, n] = X[m, n] * scale * W[n]

@kernel
def softmax(X: bf16[M, N], Y: bf16[M, N]):
    for m in tiles(M):
        most = full(f32[m], -inf)
        total = zeros(f32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            before = most
            most = max(most, max(x, over=n))
            total = total * exp(before - most) + sum(exp(x - most), over=n)
        for n in tiles(N):
            Y[m, n] = exp(cast(X[m, n], f32) - most) / total
"""
BEYOND_CACHE = 120 << 20
"""Bytes of the sets of operands that take turns, at the least."""
ROUNDS = 12
PEERS = "copy", "torch", "compiled"


def cases() -> Iterator[Case]:
    import torch

    def drawn(*shape: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.randn(*shape, device="cuda", dtype=dtype)

    f32, f = torch.float32, torch.nn.functional
    for n in (1 << 26, 1 << 20, (1 << 26) - 3):
        yield Case(
            f"add {n}", "add_line",
            lambda n=n: (drawn(n, dtype=f32), drawn(n, dtype=f32)),
            lambda x, y: x + 1.0, lambda x, y: torch.add(x, 1.0, out=y), 8 * n,
        )  # fmt: skip
    for m, n in ((8192, 8192), (1024, 1024), (16384, 4096), (4096, 4099)):
        yield Case(
            f"add {m}x{n}", "add", lambda m=m, n=n: (drawn(m, n), drawn(m, n)),
            lambda x, y: x.float() + 1.0, lambda x, y: torch.add(x, 1.0, out=y), 4 * m * n,
        )  # fmt: skip
    yield Case(
        "silu_mul 8192x8192", "silu_mul",
        lambda: (drawn(8192, 8192), drawn(8192, 8192), drawn(8192, dtype=f32), drawn(8192, 8192)),
        lambda x, z, b, y: f.silu(x.float() + b) * z.float(),
        lambda x, z, b, y: torch.mul(f.silu(x + b.bfloat16()), z, out=y), 6 << 26,
    )  # fmt: skip
    for m, n in ((16384, 8192), (16384, 4096), (65536, 1024), (1024, 65536), (64, 100000)):
        yield Case(
            f"rmsnorm {m}x{n}", "rmsnorm",
            lambda m=m, n=n: (drawn(m, n), drawn(n), float(n), drawn(m, n)),
            lambda x, w, n, y: f.rms_norm(x.float(), x.shape[1:], w.float(), 1e-6),
            lambda x, w, n, y: f.rms_norm(x, x.shape[1:], w, 1e-6), 4 * m * n,
        )  # fmt: skip
        yield Case(
            f"softmax {m}x{n}", "softmax", lambda m=m, n=n: (drawn(m, n), drawn(m, n)),
            lambda x, y: torch.softmax(x.float(), 1), lambda x, y: torch.softmax(x, 1), 4 * m * n,
        )  # fmt: skip


def race(case: Case, seconds: float, compiles: bool) -> dict[str, float]:
    """Microseconds a call of each contestant, and the largest error beside the largest value."""
    import torch

    from wsdsl import parse

    kernel = vars(parse(TEXT))[case.kernel] if isinstance(case.kernel, str) else case.kernel
    sets = [case.inputs() for _ in range(max(2, -(-BEYOND_CACHE // case.bytes)))]
    first = sets[0]
    kernel(*first)
    torch.cuda.synchronize()
    wanted = case.wanted(*first)
    error = float((first[-1].float() - wanted).abs().max() / wanted.abs().max())
    half = case.bytes // 2
    places = [torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(2 * len(sets))]
    pairs = list(zip(places[::2], places[1::2], strict=True))
    contestants: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
        "copy": (lambda a, b: b.copy_(a), pairs),
        "torch": (case.peer, sets),
        "wsdsl": (kernel, sets),
    }
    if compiles:
        torch._dynamo.reset()  # else sizes count as unknown from the second case on
        contestants["compiled"] = (torch.compile(case.peer, dynamic=False), sets)
    bursts: dict[str, Burst] = {}
    for name, (call, held) in contestants.items():
        try:
            bursts[name] = Burst("", call, held, lambda doing, given=None: None, seconds)
        except Exception as failed:
            if name in ("copy", "wsdsl"):
                raise
            print(f"{case.name}: {name} failed: {str(failed).splitlines()[:1]}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in bursts}
    for _ in range(ROUNDS):
        for name, burst in bursts.items():
            times[name].append(burst.run(seconds))
    found = {name: 1e6 * statistics.median(held) for name, held in times.items()}
    return found | {"error": error, "bytes": case.bytes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", help="cases whose name has one of these in it, a,b,c")
    parser.add_argument("--compile", action="store_true", help="race torch.compile, too")
    parser.add_argument("--seconds", type=float, default=0.02, help="of a burst (0.02)")
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    parser.add_argument("--name", default="bandwidth", help="name of the result file")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    wrong = 0
    for case in (*cases(), *row_cases(), *column_cases(), *transpose_cases(), *pattern_cases()):
        if not any(part in case.name for part in options.k.split(",")):
            continue
        own = found[case.name] = race(case, options.seconds, options.compile)
        peers = ", ".join(
            f"{own[name] / own['wsdsl']:.3f} of {name}" for name in PEERS if name in own
        )
        is_wrong = own["error"] > case.allowed
        wrong += is_wrong
        print(
            f"{case.name:22} {own['wsdsl']:9.1f} us  {case.bytes / own['wsdsl'] / 1e6:6.2f} TB/s  "
            f"{peers}  error {own['error']:.1e}{'  WRONG' * is_wrong}",
            flush=True,
        )
    print(f"written to {write(options.name, found, options.out)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
