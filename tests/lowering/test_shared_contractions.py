"""Clusters whose CTAs share the contraction of each tile: who may, and what comes out."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from tests.kernels import CASES, simulated
from tests.simulator.kernels import rejected
from wsdsl import Schedule, parse
from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.lowering.smem_allocations import smem_bytes

PAIRS = Schedule(cluster=dict(k=2))


def test_who_shares() -> None:
    """The others are refused in words (test_simulated.py runs all of them)."""
    shared: set[str] = set()
    for name, case in CASES.items():
        try:
            case.kernel.schedule(PAIRS, **case.sizes)
        except ScheduleError:
            continue
        shared.add(name)
    assert shared >= {
        "gemm", "mn_major", "batched", "epilogue", "two_products", "product_f8e4m3", "product_i8",
        "product_tf32", "block_scaled",
    }  # fmt: skip


@pytest.mark.parametrize("sharing", [2, 4, 8])
def test_what_is_reckoned_is_what_is_taken(sharing: int) -> None:
    given = Schedule(tile=dict(m=128, n=128), stages=2, consumers=2, cluster=dict(k=sharing))
    made = CASES["epilogue"].kernel._compile(given, {}, ())
    reckoned = smem_bytes(scheduled_tile(CASES["epilogue"].kernel.tile_ir), made.schedule, 2)
    assert reckoned == made.signature.smem_bytes


@pytest.mark.sampled(8)
@pytest.mark.parametrize("sharing", [2, 4, 8])
@pytest.mark.parametrize("k", [0, 8, 64, 72, 200])
def test_fewer_steps_than_ctas(k: int, sharing: int) -> None:
    given = Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(k=sharing))
    simulated(CASES["gemm"], given, seed=1, M=72, N=136, K=k)


def test_scales_of_blocks_that_a_chunk_reaches_over() -> None:
    """Slices of 96 columns are chunks of 64 and 32: the third begins at 96, and ends behind 128."""
    schedule = Schedule(tile=dict(m=128, n=192, k=128), cluster=dict(k=2))
    simulated(CASES["block_scaled"], schedule, M=64, N=192, K=256, KB=2)


def test_only_whole_blocks_are_sent() -> None:
    text = str(CASES["gemm"].kernel._compile(PAIRS, {}, ()).scheduled)
    verify(parse_kernel(text))
    rejected(text, "send_fragment(", "send_fragment(offset=8, ", "not a multiple of 16", count=1)


def test_tiles_of_four_sums_do_not_overlap() -> None:
    """In each slice its own CTA's come first."""
    given = Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(k=4))
    text = str(CASES["gemm"].kernel._compile(given, {}, ()).scheduled)
    rejected(text, "sharing=4", "sharing=4, overlapping=True", "cannot overlap")


def test_sums_of_columns_that_do_not_come_out_even_are_not_shared() -> None:
    """Slices are of a multiple of 8 columns."""
    for given, words in [
        (Schedule(tile=dict(n=72), cluster=dict(k=2)), "has no 2 slices"),
        (Schedule(tile=dict(n=96), cluster=dict(k=8)), "use a multiple of 64 columns"),
        (Schedule(cluster=dict(k=2), mode="pingpong"), 'use mode="cooperative"'),
        (Schedule(cluster=dict(k=2), scheduler="stream_k"), "splits it, too"),
        (
            Schedule(cluster=dict(k=2), consumer_split="n", consumers=2, tile=dict(n=128)),
            "leave consumer_split out",
        ),
    ]:
        with pytest.raises(ScheduleError, match=words):
            CASES["gemm"].kernel.schedule(given, M=512, N=512, K=4096)


@pytest.mark.parametrize("name", ["quantised", "two_loops"])
def test_who_can_not_share_a_sum_is_told_why(name: str) -> None:
    with pytest.raises(ScheduleError, match="leave `k` out of the cluster"):
        CASES[name].kernel.schedule(Schedule(cluster=dict(k=2)))


BEYOND = """
@kernel
def k(A: bf16[M, K], B: bf16[N, K], X: f32[M, N], s: f32[M], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K, by=64):
            acc += {added}
        C[m, n] = acc
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("added", "shared"),
    [
        ("A[m, k] @ B[n, k]", True),
        ("(A[m, k] @ B[n, k]) * s[m]", True),
        ("0.5 * (A[m, k] @ B[n, k]) / 3.0 + (A[m, k] * 2.0) @ B[n, k]", True),
        ("(A[m, k] @ B[n, k]) * (0.5 * s[m])", True),
        ("sum(exp(cast(A[m, k], f32)), over=k) * s[m] + A[m, k] @ B[n, k]", True),
        ("A[m, k] @ B[n, k] + 1.0", False),
        ("A[m, k] @ B[n, k] + X[m, n]", False),
        ("exp(A[m, k] @ B[n, k])", False),
        ("(A[m, k] @ B[n, k]) / s[m]", False),
        ("2.0 / (A[m, k] @ B[n, k])", False),
        ("A[m, k] @ B[n, k] + max(cast(A[m, k], f32), over=k)", False),
    ],
)
def test_only_zeros_are_added_beyond_the_end(added: str, shared: bool) -> None:
    """All CTAs of a cluster take as many steps, so that the last ones may be beyond it."""
    kernel = parse(BEYOND.format(added=added)).k
    given = Schedule(cluster=dict(k=4), tile=dict(m=64, n=64))
    if shared:
        assert kernel.schedule(given).cluster == dict(k=4)
    else:
        with pytest.raises(ScheduleError, match="beyond the end of K may add to `acc") as refused:
            kernel.schedule(given)
        assert "leave `k` out of the cluster" in str(refused.value)
        assert "k" not in (kernel.schedule(M=64, N=640, K=5120).cluster or {})


ONCE = """
@kernel
def k(A: bf16[M, K], B: bf16[N, K], C: f32[M, N], R: f32[M]):
    for m in tiles(M):
        for n in tiles(N, by=64):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            C[m, n] = acc + cast(end(n), f32)
            {more}
"""


def test_what_is_added_once_a_tile_is_not_added_by_each_slice() -> None:
    kernel = parse(ONCE.format(more="R[m] += cast(index(m), f32)")).k
    for given in (
        Schedule(cluster=dict(k=2)),
        Schedule(scheduler="split_k", splits=2, reduction="parallel"),
    ):
        with pytest.raises(ScheduleError, match="each slice would repeat this add"):
            kernel.schedule(given)
    assert "k" not in (kernel.schedule(M=128, N=640, K=5120).cluster or {})


BY_SLICES = [
    Schedule(cluster=dict(k=2), tile=dict(m=64, n=64), consumers=1),
    Schedule(
        scheduler="split_k", splits=2, reduction="parallel", tile=dict(m=64, n=64), consumers=1
    ),
]


@pytest.mark.parametrize("given", BY_SLICES, ids=["cluster", "parallel"])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("C[m, index(n) ^ 32] = acc", "may store the same elements of `C`"),
        ("C[m, end(n) - 1] = cast(index(m), f32)", "would repeat this store"),
        ("C[m, n] = acc * sum(acc, over=n)", "all columns of `n`"),
        ("C[m, n] = acc + A[m, :] @ B[n, :]", "this matmul after its loop"),
    ],
)
def test_what_slices_can_not_do(given: Schedule, more: str, words: str) -> None:
    """Each is stored by several CTAs, or is of a whole tile."""
    kernel = parse(ONCE.format(more=more)).k
    with pytest.raises(ScheduleError, match=words):
        kernel.schedule(dataclasses.replace(given, mma_m="m"), M=128, N=128, K=64)


@pytest.mark.parametrize("given", BY_SLICES, ids=["cluster", "parallel"])
@pytest.mark.parametrize(
    ("made", "words"),
    [("sum(X[m, n], over=n)", "all columns of `n`"), ("Y[m, :] @ Z[n, :]", "needs whole tiles")],
)
def test_what_is_made_of_whole_tiles_before(given: Schedule, made: str, words: str) -> None:
    text = BEYOND.format(added="A[m, k] @ B[n, k]").replace(
        "acc = zeros", f"t = {made}\n        acc = zeros"
    )
    text = text.replace("= acc", "= acc * t").replace(
        "X: f32[M, N]", "X: f32[M, N], Y: bf16[M, J], Z: bf16[N, J]"
    )
    with pytest.raises(ScheduleError, match=words):
        parse(text).k.schedule(dataclasses.replace(given, mma_m="m"), J=32, N=64)


@pytest.mark.parametrize("given", BY_SLICES, ids=["cluster", "parallel"])
def test_a_tile_ends_where_all_of_it_does(given: Schedule) -> None:
    kernel = parse(ONCE.format(more="").replace(", R: f32[M]", "")).k
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (64, 200)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-2, 3, (96, 200)).astype(ml_dtypes.bfloat16)
    c = np.zeros((64, 96), np.float32)
    kernel.simulate(a, b, c, schedule=given)
    exact = a.astype(np.float32) @ b.astype(np.float32).T
    assert np.array_equal(c, exact + np.minimum(np.arange(96) // 64 * 64 + 64, 96))


@pytest.mark.parametrize("sharing", [2, 4, 8])
def test_few_columns_are_enough_for_all_who_share(sharing: int) -> None:
    given = Schedule(tile=dict(m=128), cluster=dict(k=sharing))
    made = CASES["gemm"].kernel.schedule(given, M=256, N=8, K=4096)
    assert made.tile and made.tile["n"] == 8 * max(sharing, 2)


def test_sums_of_nothing_have_a_schedule() -> None:
    """Each of two CTAs has half of no step."""
    kernel = CASES["gemm"].kernel
    assert kernel.schedule(PAIRS, M=200, N=136, K=0).cluster == {"k": 2}
