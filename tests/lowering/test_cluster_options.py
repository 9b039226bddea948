"""Clusters, deep rings and the order of tiles, where loading operands is the limit."""

import ml_dtypes
import numpy as np
import pytest

from tests.kernels import CASES
from wsdsl import Schedule, parse
from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.op import Kernel
from wsdsl.lowering.choice.cluster_options import cluster_options
from wsdsl.lowering.choose_schedule import ranked
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.model.clusters import ROOM, cluster_room
from wsdsl.lowering.model.predict import NUM_SMS, predict
from wsdsl.lowering.model.workload import Work
from wsdsl.lowering.pipeline import scheduled_tile

EIGHT = dict(m=4, n=2)


def chosen(m: int, n: int, k: int, schedule: Schedule | None = None) -> Schedule:
    return CASES["gemm"].kernel.schedule(schedule, M=m, N=n, K=k)


@pytest.mark.parametrize(
    ("sizes", "tile", "cluster", "stages", "swizzle"),
    [
        # Few and narrow tiles: 12 clusters of 8, with rings as deep as SMEM allows.
        ((1024, 384, 4096), (64, 64), EIGHT, 12, 1),
        ((1024, 576, 4096), (64, 96), EIGHT, 10, 1),
        ((768, 768, 8192), (64, 96), EIGHT, 10, 1),
        # 128 tiles: no room for 16 such clusters. Pairs lie along the shorter side, and are walked
        # along the longer one.
        ((1024, 768, 4096), (64, 96), dict(n=2), 9, 16),
        ((1024, 960, 4096), (64, 120), dict(n=2), 8, 16),
        ((512, 2048, 4096), (64, 128), dict(m=2), 8, 1),
        # Short sums do not pay for a cluster's start. Tiles are walked along the shorter side.
        ((1024, 384, 1024), (64, 48), None, 6, 1),
        ((1024, 960, 1024), (64, 128), None, 7, 1),
        ((1024, 1152, 1024), (64, 144), None, 6, 16),
        # Tiles for a part of the SMs alone: CTAs of a cluster share the sum of each.
        ((128, 1536, 4096), (128, 64), dict(k=4), 7, 1),
        ((256, 1024, 4096), (64, 64), dict(k=2), 12, 4),
        ((64, 896, 7168), (64, 32), dict(k=4), 8, 1),
        # Not so where they would drift apart for long, or tiles have no need of it.
        ((1024, 768, 16384), (128, 96), None, 6, 1),
        ((512, 512, 1024), (64, 32), None, 7, 1),
        # Products take as long as loading: as ever.
        ((1024, 1344, 4096), (64, 168), None, 7, 16),
        ((1024, 3840, 4096), (128, 240), None, 4, 8),
    ],
)
def test_choice(
    sizes: tuple[int, int, int],
    tile: tuple[int, int],
    cluster: dict[str, int] | None,
    stages: int,
    swizzle: int,
) -> None:
    made = chosen(*sizes)
    assert made.tile is not None
    assert ((made.tile["m"], made.tile["n"]), made.cluster) == (tile, cluster)
    assert (made.stages, made.swizzle) == (stages, swizzle)


def test_who_asks_for_something_gets_it() -> None:
    assert chosen(1024, 576, 4096, Schedule(cluster=dict(m=1))).cluster == dict(m=1)
    assert chosen(1024, 576, 4096, Schedule(scheduler="grid")).cluster is None
    # Eight CTAs with 8 slots would wait for each other.
    assert chosen(1024, 576, 4096, Schedule(tile=dict(n=96), stages=8)).cluster is None


def test_tiles_of_a_given_cluster_may_be_cut() -> None:
    given = Schedule(tile=dict(m=64, n=96), consumers=1, cluster=dict(n=2))
    sizes = dict(M=1024, N=768, K=16384)
    kernel = scheduled_tile(CASES["gemm"].kernel.tile, sizes)
    assert any(p.work.cut for _, p in ranked(kernel, given, sizes, every=True))


def options(kernel: Kernel, **sizes: int) -> list[dict[str, int]]:
    schedule = Schedule(tile=dict(m=64, n=96, k=64), consumers=1, mode="cooperative")
    work = Work(kernel, sizes)
    tile = axis_sizes(kernel, schedule)
    made = cluster_options(
        kernel, Schedule(), work, (schedule, predict(work, schedule, tile)), tile
    )
    return [dict(option.cluster or {}) for option in made]


def test_options() -> None:
    kernel = scheduled_tile(CASES["gemm"].kernel.tile)
    assert options(kernel, M=1024, N=576, K=4096) == [dict(n=2), EIGHT]
    # 16 clusters of 8 may not run at the same time; an odd number of tiles is in no pair.
    assert options(kernel, M=1024, N=768, K=4096) == [dict(n=2)]
    assert options(kernel, M=1024, N=672, K=4096) == []
    # Two waves, sizes that are not known.
    assert options(kernel, M=2048, N=768, K=4096) == []
    assert options(kernel, M=1024, N=576) == []
    # Idle SMs: as many share a sum as there are SMs for, and steps.
    assert options(kernel, M=512, N=384, K=4096) == [dict(k=2)]
    assert options(kernel, M=256, N=192, K=4096) == [dict(k=2), dict(k=4)]
    assert options(kernel, M=256, N=192, K=256) == [dict(k=2)]


def test_room() -> None:
    """What is said to run at the same time has to fit: SMs that a GPC has left over are idle."""
    assert all(size * room <= NUM_SMS for size, room in ROOM.items())
    assert [cluster_room(size, NUM_SMS) for size in (1, 2, 4, 8)] == [132, 66, 28, 14]
    assert cluster_room(8, 64) == 8
    assert CASES["gemm"].kernel.schedule(M=1024, N=576, K=4096).cluster == EIGHT


def test_sums_of_columns_that_do_not_come_out_even_are_not_shared() -> None:
    """Slices are of a multiple of 8 columns."""
    for given, words in [
        (Schedule(tile=dict(n=72), cluster=dict(k=2)), "can not be cut into 2 slices"),
        (Schedule(tile=dict(n=96), cluster=dict(k=8)), "use a multiple of 64 columns"),
        (Schedule(cluster=dict(k=2), mode="pingpong"), 'use mode="cooperative"'),
        (Schedule(cluster=dict(k=2), scheduler="stream_k"), "cuts it, too"),
        (Schedule(cluster=dict(k=2), share="n", consumers=2, tile=dict(n=128)), "leave share out"),
    ]:
        with pytest.raises(ScheduleError, match=words):
            chosen(512, 512, 4096, given)


@pytest.mark.parametrize("name", ["quantised", "two_loops"])
def test_who_can_not_share_a_sum_is_told_why(name: str) -> None:
    with pytest.raises(ScheduleError, match="leave `k` out of the cluster"):
        CASES[name].kernel.schedule(Schedule(cluster=dict(k=2)))


BEYOND = """
@kernel
def k(A: bf16[M, K], B: bf16[N, K], X: f32[M, N], s: f32[M], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += {added}
        C[m, n] = acc
"""


@pytest.mark.parametrize(
    ("added", "shared"),
    [
        ("A[m, k] @ B[n, k]", True),
        ("(A[m, k] @ B[n, k]) * s[m]", True),
        ("sum(exp(cast(A[m, k], f32)), over=k) * s[m] + A[m, k] @ B[n, k]", True),
        ("A[m, k] @ B[n, k] + 1.0", False),
        ("A[m, k] @ B[n, k] + X[m, n]", False),
        ("exp(A[m, k] @ B[n, k])", False),
        ("(A[m, k] @ B[n, k]) / s[m]", False),
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
        with pytest.raises(ScheduleError, match="beyond the end of K adds to `acc") as refused:
            kernel.schedule(given)
        assert "leave `k` out of the cluster" in str(refused.value)
    assert (kernel.schedule(M=64, N=640, K=5120).cluster == dict(k=4)) == shared


ONCE = """
@kernel
def k(A: bf16[M, K], B: bf16[N, K], C: f32[M, N], R: f32[M]):
    for m, n in tiles(M, N):
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
        Schedule(scheduler="split_k", splits=2, reduction="slices"),
    ):
        with pytest.raises(ScheduleError, match="each slice of the columns would add this"):
            kernel.schedule(given)
    assert not kernel.schedule(M=128, N=640, K=5120).cluster


@pytest.mark.parametrize(
    "given",
    [
        Schedule(cluster=dict(k=2), tile=dict(m=64, n=64), consumers=1),
        Schedule(
            scheduler="split_k", splits=2, reduction="slices", tile=dict(m=64, n=64), consumers=1
        ),
    ],
    ids=["cluster", "slices"],
)
def test_a_tile_ends_where_all_of_it_does(given: Schedule) -> None:
    kernel = parse(ONCE.format(more="").replace(", R: f32[M]", "")).k
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (64, 200)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-2, 3, (96, 200)).astype(ml_dtypes.bfloat16)
    c = np.zeros((64, 96), np.float32)
    kernel.simulate(a, b, c, schedule=given)
    exact = a.astype(np.float32) @ b.astype(np.float32).T
    assert np.array_equal(c, exact + np.minimum(np.arange(96) // 64 * 64 + 64, 96))


def test_sums_by_a_cluster_are_explained() -> None:
    text = CASES["gemm"].kernel.explain(M=128, N=1536, K=4096)
    assert "24 tiles, 4 CTAs for the sums of each" in text
    assert "to hand on sums" in text


def test_a_cluster_is_explained() -> None:
    text = CASES["gemm"].kernel.explain(M=1024, N=576, K=4096)
    assert "clusters of 4 along m, 2 along n load tiles for each other" in text
    assert "14 run at the same time" in text
