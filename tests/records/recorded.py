"""A kernel, and what might have been measured of it."""

from typing import Any

from wsdsl import Kernel, Schedule, bf16, dims, f32, kernel, tiles, zeros
from wsdsl.records.entry import Request, Row
from wsdsl.records.find_entry import key_of

M, N, K = dims("M N K")
SIZES = dict(M=1000, N=4096, K=4096)
ASKED = Request(None, tuple(SIZES.items()))
USUAL = Schedule(
    tile=dict(m=128, n=128, k=64),
    stages=4,
    consumers=2,
    mode="pingpong",
    scheduler="persistent",
    swizzle=4,
    registers=dict(load=40, compute=232),
)
"""Which the model does not choose."""


def make_gemm() -> Kernel:
    @kernel
    def gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            C[m, n] = acc

    return gemm


def make_other() -> Kernel:
    @kernel
    def same_by_another_name(X: bf16[M, K], W: bf16[N, K], out: bf16[M, N]):
        """The same, said with other spaces and names."""
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])  # sums

            for k in tiles(K):
                acc += X[m, k] @ W[n, k]
            out[m, n] = acc

    return same_by_another_name


def row(of: Kernel, given: Schedule | None = None, **changes: Any) -> Row:
    sizes = changes.pop("of_sizes", SIZES)
    held: dict[str, Any] = key_of(of.declaration, Request(given, tuple(sizes.items())))._asdict()
    held |= dict(name=of.name, device="a card", memory_gib=141, emitter="e")
    held |= dict(schedule=repr(USUAL), bursts=31.25, sustained=33.0, spread=0.004, samples=20)
    held |= dict(date="2026-11-25 12:00:00", source="tune", chosen=True)
    return Row(**(held | changes))
