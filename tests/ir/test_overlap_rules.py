"""Rules of tiles that overlap: each objects, with a caret."""

import dataclasses

import pytest

import wsdsl
from tests.case_table import matmul_text
from tests.simulator.kernels import rejected
from wsdsl import Schedule
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify
from wsdsl.lowering.pipeline import lower

SOURCE = matmul_text(
    "f(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N], D: bf16[M, N])",
    "A[m, k] @ B[n, k]",
    "C[m, n] = acc + cast(D[m, n], f32)",
)
INSIDE = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N], D: f32[M, N]):
    for m in tiles(M):
        top = zeros(f32[m])
        for n in tiles(N):
            top = max(top, max(D[m, n], over=n))
        for n in tiles(N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            C[m, n] = acc - top
"""
SCHEDULE = Schedule(tile=dict(m=64, n=32), consumers=1, scheduler="persistent")


def texts() -> dict[str, str]:
    """What becomes of the kernel: its text after each pass that the rules below are about."""
    made: dict[str, str] = {}
    kernel = dataclasses.replace(wsdsl.parse(SOURCE).f.tile_ir, schedule=SCHEDULE)
    lower(kernel, listeners=[lambda name, before, after: made.update({name: str(after)})])
    return {
        "tile": made["fit_last_tiles"],
        "partitioned": made["assign_multicast"],
        "scheduled": made["cse"],
    }


TEXTS = texts()
BROKEN = {
    "carried": ("tile", "args=(%acc_1", "within=1, args=(%acc_1", "the loop carries variables"),
    "unit": ("tile", "within=8", "within=4", "within=4 of 32: tiles begin at multiples of 8"),
    "size": ("tile", "within=8", "within=24", "within=24 of 32: tiles begin at multiples of 8"),
    "adds": ("tile", "value=%t_5)", "value=%t_5, accumulate=True)", "a store accumulates"),
    "in place": ("tile", "load(tensor=%D", "load(tensor=%C", "a stored tensor is read"),
    "unlike": ("partitioned", "within=(1, 8)", "within=(0, 8)", "iterate over different tiles"),
    "cut": (
        "partitioned", "within=(1, 8)", 'within=(1, 8), contraction=(("K", 64),)',
        "their accumulation order differs"),
    "a grid that cuts": (
        "scheduled", "overlapping=True",
        'scheduler="stream_k", contraction=(("K", 64),), overlapping=True',
        "their accumulation order differs"),
    "a grid that reads": (
        "scheduled", "make_tensor_map(tensor=%A", "make_tensor_map(tensor=%C", "is read as well"),
    "a grid that adds": (
        "scheduled", "row_dim=0, shared=%staging", "row_dim=0, accumulate=True, shared=%staging",
        "this store adds twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    level, before, after, words = BROKEN[name]
    text = TEXTS[level]
    verify(parse_kernel(text))
    rejected(text, before, after, words, count=1)


def test_partitions_walk_the_tiles_of_loops_inside_alike() -> None:
    kernel = dataclasses.replace(wsdsl.parse(INSIDE).f.tile_ir, schedule=SCHEDULE)
    text = str(lower(kernel, "partitioned"))
    loading = "axis<n__1 of N by 32 columns>, within=8) {"
    assert text.count(loading) == 2
    rejected(text, ", within=8) {", ") {", "iterate over different tiles", count=1)
