"""Last tiles that overlap the ones before: where they may, and that nobody can tell."""

import re

import numpy as np
import pytest

import wsdsl
from tests.kernels import CASES, check, expected, inputs
from wsdsl import Schedule
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import ForTiles
from wsdsl.ir.verify.overlapping_tiles import why_apart
from wsdsl.lowering.passes.fit_last_tiles import fit_last_tiles, reach_over
from wsdsl.simulator.simulation import simulate

SMALL = Schedule(tile=dict(m=64, n=48), consumers=1, scheduler="persistent")
COOPERATIVE = Schedule(tile=dict(m=128, n=80), consumers=2, mode="cooperative", scheduler="grid")
PINGPONG = Schedule(tile=dict(m=64, n=32), consumers=2, mode="pingpong", scheduler="persistent")
RAGGED = dict(M=200, N=264, K=72)
FITTED = {
    "gemm": ("gemm", SMALL, RAGGED),
    "cooperative": ("gemm", COOPERATIVE, RAGGED),
    "pingpong": ("gemm", PINGPONG, RAGGED),
    "a cluster of rows": (
        "gemm",
        Schedule(tile=dict(m=64, n=80), consumers=1, cluster=dict(m=2)),
        RAGGED | dict(M=150),
    ),
    "a cluster of columns": (
        "gemm",
        Schedule(tile=dict(m=64, n=48), consumers=1, cluster=dict(n=2)),
        RAGGED | dict(N=200),
    ),
    "smaller than a tile": ("gemm", SMALL, dict(M=40, N=24, K=72)),
    "begins at 16 bytes": ("epilogue", SMALL, dict(M=75, N=88, K=40)),
    "odd sizes": ("epilogue", SMALL, dict(M=75, N=83, K=40)),
    "lines over the end": ("mn_major", SMALL, dict(M=136, N=72, K=40)),
    "transposed": (
        "mn_major",
        Schedule(tile=dict(m=64, n=64), consumers=1),
        dict(M=136, N=72, K=40),
    ),
    "bytes": ("product_f8e4m3", Schedule(tile=dict(m=64, n=48), consumers=1), RAGGED | dict(K=80)),
    "four bytes": ("column_major_b", SMALL, dict(M=100, N=88, K=40)),
    "batched": ("batched", SMALL, dict(M=70, N=56)),
    "a loop inside": ("row_softmax", Schedule(tile=dict(m=64, n=48), consumers=1), dict(N=88)),
    "without products": ("scale", Schedule(tile=dict(m=64, n=16), consumers=1), dict(N=40)),
}


def without_overlap(text: str) -> str:
    changed = re.sub(r", within=(\([\d, ]+\)|\d+)", "", text)
    assert changed != text
    return changed


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", FITTED)
def test_the_same_bits(name: str) -> None:
    case_name, schedule, sizes = FITTED[name]
    case = CASES[case_name]
    arrays = inputs(case, 3, **sizes)
    wanted = expected(case, arrays)
    threads = () if name != "odd sizes" else tuple(p.name for p in case.kernel.tile_ir.params)
    compiled = case.kernel._compile(schedule, case.sizes | sizes, threads)
    apart = wsdsl.compile_ir(without_overlap(compiled.ir("partitioned")))
    assert "overlapping=True" in compiled.ir() and "overlapping" not in apart.ir()
    others = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
    simulate(compiled.scheduled, arrays, seed=1)
    simulate(apart.scheduled, others, seed=1)
    check(case, arrays, wanted)
    for tensor in wanted:
        assert arrays[tensor].tobytes() == others[tensor].tobytes()


@pytest.mark.parametrize("name", ["cooperative", "pingpong", "a cluster of rows", "batched"])
def test_proved_and_emitted(name: str) -> None:
    case_name, schedule, _ = FITTED[name]
    compiled = CASES[case_name].kernel._compile(schedule, {}, ())
    assert compiled.certificate and "overlapping=True" in compiled.ir()
    assert compiled.ptx


HEAD = "@kernel\ndef f({}):\n    for m, n in tiles(M, N):\n"
SUM = """        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
"""
AB = "A: bf16[M, K], B: bf16[N, K], "
APART = {
    "adds": (AB + "C: f32[M, N]", SUM + "        C[m, n] += acc", "a store accumulates"),
    "in place": (
        AB + "C: f32[M, N]", SUM + "        C[m, n] = acc + C[m, n]", "is read as well"),
    "a sum of a row": (
        AB + "C: f32[M]", SUM + "        C[m] = sum(acc, over=n)", "are reduced"),
    "the largest": (
        AB + "C: f32[M]", SUM + "        C[m] = max(acc, over=n)", "are reduced"),
    "a block": (
        AB + "s: f32[P], C: f32[M, N]", SUM + "        C[m, n] = acc * s[index(n) // 128]",
        "index depends on where"),
    "twice": (
        AB + "C: f32[M, N]", SUM + "        C[m, n] = acc\n        C[m, n] = acc * 2.0",
        "write the same tensor"),
    "several times": (
        AB + "C: f32[M, N], s: f32[E]",
        SUM + "        for e in each(E):\n            C[m, n] = acc * s[e]", "several iterations"),
    "not by its place": (
        AB + "C: f32[M]", "        C[m] = cast(A[m, 0], f32)", "several iterations"),
}  # fmt: skip


def loops_of(kernel: Kernel) -> list[ForTiles]:
    return [op for op in kernel.ops if isinstance(op, ForTiles)]


@pytest.mark.parametrize("name", APART)
def test_tiles_that_may_not_overlap(name: str) -> None:
    params, body, reason = APART[name]
    kernel = wsdsl.parse(HEAD.format(params) + body + "\n").f.tile_ir
    told = {op.index.name: why_apart(kernel, op) for op in loops_of(kernel)}
    assert reason in told["n"]
    within = {op.index.name: op.within for op in loops_of(fit_last_tiles(kernel))}
    assert not within["n"]
    assert bool(within["m"]) == (not told["m"])


def test_a_tile_whose_end_is_stored_does_not_overlap() -> None:
    text = "for m in tiles(M):\n        for n in tiles(N, by=64):\n            C[m, n] = end(n)"
    kernel = wsdsl.parse(f"@kernel\ndef f(C: i32[M, N]):\n    {text}\n").f.tile_ir
    m, n = (why_apart(kernel, op) for op in loops_of(kernel))
    assert not m and "end depends on where" in n


@pytest.mark.parametrize(
    ("size", "tile", "unit", "over"),
    [(576, 80, 8, 0), (576, 80, 0, 64), (570, 80, 8, 6), (60, 80, 8, 20), (80, 80, 8, 0),
     (160, 80, 0, 0), (570, 80, 1, 0), (576, 72, 16, 0), (580, 72, 16, 68)],
)  # fmt: skip
def test_what_reach_over(size: int, tile: int, unit: int, over: int) -> None:
    assert reach_over(size, tile, unit) == over
