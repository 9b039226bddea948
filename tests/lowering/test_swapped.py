"""Columns on wgmma's M, where tiles come out evener that way."""

import dataclasses
import re

import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.ir.op import Kernel
from wsdsl.lowering.heuristics.orientation import may_be_swapped

GEMM, BATCHED = CASES["gemm"].kernel, CASES["batched"].kernel


def product(body: str = "acc", output: str = "bf16[M, N]", more: str = "") -> wsdsl.Kernel:
    """`gemm` with another end."""
    head = f"def gemm(A: bf16[M, K], B: bf16[N, K], C: {output}{more}):"
    text = re.sub(r"def gemm.*", head, CASES["gemm"].text)
    return wsdsl.parse(text.replace("C[m, n] = acc", f"C[m, n] = {body}")).gemm


def chosen(
    kernel: wsdsl.Kernel, m: int, n: int, k: int, given: Schedule | None = None, **more: int
) -> str:
    made = kernel.schedule(given, M=m, N=n, K=k, **more)
    assert made.tile is not None
    return f"{made.mma_m}: {made.tile['m']} x {made.tile['n']}"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # 128 tiles without a rest, where 64 by any multiple of 8 leaves one.
        ((5120, 512, 16384), "n: 160 x 128"),
        ((3072, 512, 5120), "n: 96 x 128"),
        # Two waves of 152 rows, not three of 64.
        ((448, 11008, 5120), "n: 152 x 256"),
        # No evener.
        ((4096, 4096, 4096), "None: 128 x 128"),
        ((1024, 3840, 4096), "None: 128 x 240"),
        ((768, 768, 4096), "None: 64 x 80"),
    ],
)
def test_choice(sizes: tuple[int, int, int], expected: str) -> None:
    assert chosen(GEMM, *sizes) == expected


SIZES = 3072, 512, 5120


@pytest.mark.parametrize(
    ("kernel", "mma"),
    [
        (product(output="f32[M, N]"), "n"),
        (product("acc * rows[m] + bias[n]", more=", rows: f32[M], bias: f32[N]"), "n"),
        (product("relu(acc) * alpha", more=", alpha: f32"), "n"),
        # Residuals and narrow results are left alone.
        (product("acc + cast(R[m, n], f32)", more=", R: bf16[M, N]"), None),
        (product(output="f8e4m3[M, N]"), None),
    ],
)
def test_epilogues(kernel: wsdsl.Kernel, mma: str | None) -> None:
    assert chosen(kernel, *SIZES).startswith(f"{mma}:")


def test_who_asks_for_something_gets_it() -> None:
    assert chosen(GEMM, *SIZES, Schedule(tile=dict(m=128))).startswith("None: 128")
    assert chosen(GEMM, *SIZES, Schedule(mma_m="m")).startswith("m:")
    assert chosen(GEMM, *SIZES, Schedule(consumers=2)) == "n: 96 x 128"


def test_nothing_is_chosen_without_all_sizes() -> None:
    assert GEMM.schedule(M=3072, N=512).mma is None
    assert GEMM.schedule(M=3072, N=512, K=5120).mma == "n"


SCALED = wsdsl.parse(
    CASES["gemm"]
    .text.replace("A[m, k] @ B[n, k]", "(A[m, k] @ B[n, k]) * rows[m]")
    .replace("C: ", "rows: f32[M], C: ")
).gemm


TWO_SIDES = wsdsl.parse("""
@kernel
def two_sides(A: bf16[M, K], B: bf16[N, K], D: bf16[L, K], C: bf16[M, N], E: bf16[M, L]):
    for m in tiles(M):
        for n in tiles(N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            C[m, n] = acc
        for l in tiles(L):
            acc = zeros(f32[m, l])
            for k in tiles(K):
                acc += A[m, k] @ D[l, k]
            E[m, l] = acc
""").two_sides


def tile(name: str) -> Kernel:
    return CASES[name].kernel.tile_ir


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (tile("gemm"), True),
        (tile("batched"), True),
        (tile("two_products"), True),
        (tile("mn_major"), True),
        (wsdsl.parse(CASES["two_loops"].text.replace("C: f32", "C: bf16")).two_loops.tile_ir, True),
        # Results of other axes; columns that a loop inside walks are no tiles.
        (TWO_SIDES.tile_ir, False),
        (tile("nested"), False),
        # Threads copy A; the schedule says who shares what.
        (dataclasses.replace(tile("gemm"), unaligned=("A",)), False),
        (dataclasses.replace(tile("gemm"), schedule=Schedule(consumer_split="n")), False),
        # Products that are scaled one by one; results of one axis.
        (SCALED.tile_ir, False),
        (
            product(
                "acc\n        R[n] = cast(bias[n], bf16)", more=", bias: f32[N], R: bf16[N]"
            ).tile_ir,
            False,
        ),
    ],
)
def test_forms(kernel: Kernel, expected: bool) -> None:
    assert may_be_swapped(kernel, "m", "n") == expected


def test_batches_are_tiles_too() -> None:
    """Of four 1280 x 1024, and of 1280 x 512 as of one 5120 x 512; of four 1024 x 512 nothing is
    gained."""
    assert chosen(BATCHED, 1280, 1024, 4096, G=4) == "n: 160 x 256"
    assert chosen(BATCHED, 1280, 512, 4096, G=4) == "n: 160 x 128"
    assert chosen(BATCHED, 1024, 512, 4096, G=4).startswith("None:")
