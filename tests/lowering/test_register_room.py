"""What an epilogue reads and computes is taken into account: ptxas finds the registers it needs."""

import dataclasses

import pytest

import wsdsl
from tests.case_table import matmul_text
from tests.corpus.texts import SECTIONS
from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.codegen.ptxas import find_ptxas
from wsdsl.lowering.footprint import accumulator_registers
from wsdsl.lowering.heuristics.register_room import rank_beside_sums
from wsdsl.lowering.pipeline import scheduled_tile

TEXT = matmul_text(
    "f(A: bf16[M, K], B: bf16[N, K], u: f32[N], v: f32[N], w: f32[N], r: f32[M], C: bf16[M, N])",
    "A[m, k] @ B[n, k]",
    "C[m, n] = WHAT",
)
SHORT, SQUARE = dict(M=4096, N=7168, K=2048), dict(M=8192, N=8192, K=8192)


def chosen(what: str, **sizes: int) -> int:
    """Columns of the tile, where consumers take turns."""
    made = wsdsl.parse(TEXT.replace("WHAT", what)).f.schedule(**sizes)
    assert made.tile and made.mode == "pingpong"
    return made.tile["n"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("acc", 176),
        ("acc + u[n]", 176),
        ("acc * r[m]", 176),
        ("gelu(acc + u[n])", 176),
        ("gelu(acc + u[n]) * v[n]", 160),
        ("(acc + u[n]) * v[n] + w[n]", 160),
        ("tanh((acc + u[n]) * r[m]) + v[n]", 144),
        ("gelu(acc + u[n]) * v[n] + w[n]", 144),
    ],
)
def test_tiles_are_as_wide_as_registers_allow(what: str, most: int) -> None:
    """176 columns fill the waves of this product best."""
    assert most - 16 <= chosen(what, **SHORT) <= most


def test_a_row_of_numbers_is_no_more_than_is_left() -> None:
    assert chosen("acc + u[n]", **SQUARE) == 192


@pytest.mark.sampled(2)
@pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
@pytest.mark.parametrize("what", ["gelu(acc * r[m] + u[n])", "silu(acc + u[n]) * v[n]"])
def test_the_first_choice_does_not_spill(what: str) -> None:
    kernel = wsdsl.parse(TEXT.replace("WHAT", what)).f
    assert kernel.compile(**SHORT).notes == ()


@pytest.mark.parametrize(
    ("scales", "place", "columns"), [("KB, N", "kb, n", 128), ("N, KB", "n, kb", 96)]
)
def test_factors_beside_sums_in_tensor_memory(scales: str, place: str, columns: int) -> None:
    """Those that do not lie beside each other have an address each."""
    text = f"""
@kernel
def f(A: f8e4m3[M, K], B: f8e4m3[N, K], s: f32[{scales}], bias: bf16[N], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ (B[n, k] * s[{place.replace("kb", "index(k) // 128")}])
        C[m, n] = silu(acc + bias[n])
"""
    made = wsdsl.parse(text).f.schedule(Schedule(arch="sm_100a"), M=4096, N=4096, K=4096, KB=32)
    assert made.tile is not None and made.tile["n"] == columns


def test_values_that_are_used_twice_are_looked_at_once() -> None:
    lines = "\n        ".join(["y = acc + u[n]", *["y = y * y + y"] * 40, "C[m, n] = y"])
    kernel = wsdsl.parse(TEXT.replace("C[m, n] = WHAT", lines)).f
    assert rank_beside_sums(kernel.tile_ir) == 1


def test_scalars_are_nothing_beside_sums() -> None:
    text = TEXT.replace("C: bf16", "a: f32, C: bf16").replace("WHAT", "acc * a")
    assert rank_beside_sums(wsdsl.parse(text).f.tile_ir) == 0


@pytest.mark.parametrize("dim", [64, 256])
def test_rescaled_accumulators_count_once(dim: int) -> None:
    """`acc * shrink + p @ V` is updated in place: beside it there are the scores."""
    sizes = dict(H=32, M=4096, N=4096, D=dim)
    tile = dataclasses.replace(CASES["attention"].kernel.tile_ir, sizes=(("D", dim),))
    made = scheduled_tile(tile, sizes)
    assert made.schedule and made.schedule.tile
    scores = made.schedule.tile["n"] // 2
    assert made.schedule.tile["m"] == 64 * (made.schedule.consumers or 1)
    assert accumulator_registers(made, made.schedule) == dim // 2 + scores


@pytest.mark.parametrize("page", [16, 64])
def test_tiles_are_no_longer_than_pages(page: int) -> None:
    kernel = wsdsl.parse(next(text for name, text, _ in SECTIONS if name == "decode/paged")).paged
    sizes = dict(B=16, KV=8, S=8, D=128, P=8192, T=page, TP=128)
    assert kernel.schedule(**sizes).tile == dict(q=64, t=page)


def test_one_consumer_is_tried_where_nothing_else_fits() -> None:
    """Beside its own queries of 192 columns, SMEM has no room for another's."""
    text = next(text for name, text, _ in SECTIONS if name == "backward/queries")
    made = wsdsl.parse(text).backward_q.schedule(B=2, H=16, S=4096, T=4096, D=192)
    assert made.consumers == 1 and made.tile == dict(q=64, t=64)
