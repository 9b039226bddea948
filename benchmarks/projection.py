"""A projection and the rmsnorm of its rows in one kernel, beside the same in two.

python -m benchmarks.projection                 # 16384 x 2048 x 2048
python -m benchmarks.projection --size 8192 1024 4096

Bursts of CUDA graphs in turns. The two kernels are each at its best: the quicker of cuBLAS and
`wsdsl.kernels.matmul`, and `wsdsl.kernels.rmsnorm`.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from benchmarks.burst import Burst
from benchmarks.machine import write

TEXT = """
@kernel
def normed(X: bf16[M, K], W: bf16[N, K], G: bf16[N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ W[n, k]
        scale = rsqrt(sum(acc * acc, over=n) / cast(N, f32) + 1e-6)
        Y[m, n] = acc * scale * G[n]
"""
ROUNDS, SECONDS, SETS = 12, 0.02, 4


def race(M: int, N: int, K: int) -> dict[str, float]:
    """Microseconds a call of each contestant."""
    import torch

    from wsdsl import Schedule, kernels, parse

    def drawn(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    normed = parse(TEXT).normed
    sets = [(drawn(M, K), drawn(N, K), drawn(N), drawn(M, N), drawn(M, N)) for _ in range(SETS)]
    x, w, g, y, _ = sets[0]
    f = torch.nn.functional
    others: dict[str, Schedule | None] = {"one": None}
    others |= {
        "one, cooperative": Schedule(mode="cooperative", consumers=2),
        "one, cooperative, multicast": Schedule(mode="cooperative", consumers=2, multicast=True),
        "one, one consumer": Schedule(consumers=1),
        "one, columns shared": Schedule(mode="cooperative", consumers=2, consumer_split="n"),
    }
    exact = x.float() @ w.float().T
    exact = f.rms_norm(exact, (N,), g.float(), 1e-6)
    calls: dict[str, Any] = {
        "cuBLAS": lambda x, w, g, y, z: torch.mm(x, w.T, out=y),
        "matmul": lambda x, w, g, y, z: kernels.matmul(x, w.T, out=y),
        "rmsnorm": lambda x, w, g, y, z: kernels.rmsnorm(z, g, 1e-6, out=y),
        "torch": lambda x, w, g, y, z: f.rms_norm(torch.mm(x, w.T, out=z), (N,), g, 1e-6),
    }
    for name, schedule in others.items():
        calls[name] = lambda *a, schedule=schedule: normed(*a[:4], schedule=schedule)
        try:
            calls[name](x, w, g, y, y)
        except Exception as told:
            print(f"{name}: {str(told).splitlines()[0]}")
            del calls[name]
            continue
        error = float((y.float() - exact).abs().max() / exact.abs().max())
        print(f"{name}: largest error {error:.1e} of the largest value")
    bursts = {
        name: Burst("", call, sets, lambda doing, given=None: None, SECONDS)
        for name, call in calls.items()
    }
    times: dict[str, list[float]] = {name: [] for name in bursts}
    for _ in range(ROUNDS):
        for name, burst in bursts.items():
            times[name].append(burst.run(SECONDS))
    return {name: 1e6 * statistics.median(held) for name, held in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, nargs=3, default=(16384, 2048, 2048))
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    options = parser.parse_args()
    found = race(*options.size)
    two = min(found["cuBLAS"], found["matmul"]) + found["rmsnorm"]
    for name, time in found.items():
        print(f"{name:22s} {time:8.1f} us  {two / time:.3f} of two kernels at their best")
    shape = "x".join(map(str, options.size))
    print(write(f"projection_{shape}", found, options.out))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
