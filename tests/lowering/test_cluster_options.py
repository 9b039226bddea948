"""Clusters, deep rings and the order of tiles, where loading operands is the limit."""

import dataclasses
from typing import Any

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.ir.op import Kernel
from wsdsl.ir.target import H200, TARGETS
from wsdsl.lowering.choice.cluster_options import cluster_options
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.model.clusters import (
    ALONE,
    FLAT,
    FLAT_WIDE,
    GAIN,
    LITTLE,
    MULTICAST_GAIN,
    PAIR,
    cold_share,
)
from wsdsl.lowering.model.predict import predict
from wsdsl.lowering.model.workload import Work
from wsdsl.lowering.passes.choose_schedule import ranked
from wsdsl.lowering.pipeline import scheduled_tile

EIGHT = dict(m=4, n=2)


def chosen(m: int, n: int, k: int, schedule: Schedule | None = None) -> Schedule:
    return CASES["gemm"].kernel.schedule(schedule, M=m, N=n, K=k)


@pytest.mark.parametrize(
    ("sizes", "tile", "cluster", "multicast", "stages", "swizzle"),
    [
        # Few and narrow tiles: 12 to 15 clusters of 8, with rings as deep as SMEM allows.
        ((1024, 384, 4096), (64, 64), EIGHT, False, 12, 1),
        ((1024, 576, 4096), (64, 96), EIGHT, False, 10, 1),
        ((768, 768, 8192), (64, 80), EIGHT, False, 12, 1),
        ((256, 2048, 4096), (64, 80), EIGHT, False, 12, 1),
        ((512, 1024, 4096), (64, 80), dict(m=4), False, 12, 1),
        # 128 tiles: no room for 16 such clusters. Pairs lie along the shorter side, and are walked
        # along the longer one.
        ((1024, 704, 4096), (64, 88), dict(n=2), False, 10, 16),
        ((1024, 1024, 4096), (64, 128), dict(n=2), False, 8, 16),
        ((1024, 1152, 4096), (64, 144), dict(m=2), False, 7, 1),
        ((512, 2048, 4096), (64, 128), dict(m=2), False, 8, 1),
        # 4 or 2 have all rows: nobody else wants what they load.
        ((256, 3072, 4096), (64, 104), EIGHT, False, 10, 1),
        ((256, 5120, 4096), (128, 80), dict(m=2), False, 7, 1),
        # Over long sums multicast keeps CTAs together: where it is of all that they have in common,
        # in pairs along n, or eights with deep rings.
        ((384, 1536, 8192), (64, 80), dict(m=2, n=4), None, 12, 4),
        ((640, 1280, 16384), (64, 112), dict(m=2, n=4), False, 9, 8),
        ((768, 1536, 8192), (64, 144), dict(m=2), False, 7, 1),
        # Fours load for each other, in deep rings, along either side, if little comes from memory.
        ((640, 1536, 8192), (64, 128), dict(n=4), None, 9, 16),
        ((1536, 640, 8192), (64, 128), dict(m=4), None, 9, 1),
        # With columns on wgmma's M other clusters fit, or have all rows.
        ((192, 4096, 4096), (96, 64), dict(m=2), False, 9, 1),
        ((1024, 768, 4096), (104, 64), dict(m=2, n=4), False, 10, 8),
        ((1024, 960, 4096), (128, 64), dict(m=4), None, 9, 1),
        # Short sums do not pay for the start of large clusters.
        ((1024, 384, 1024), (64, 48), dict(n=2), False, 6, 16),
        ((1024, 960, 1024), (64, 128), dict(n=2), False, 8, 16),
        ((512, 512, 1024), (64, 32), dict(n=2), False, 8, 8),
        # Tiles for a part of the SMs alone: CTAs of a cluster share the sum of each.
        ((128, 1536, 4096), (128, 64), dict(k=4), None, 7, 1),
        ((256, 1024, 4096), (64, 64), dict(k=2), None, 12, 4),
        ((64, 896, 7168), (64, 32), dict(k=4), None, 8, 1),
        # Not so where they would drift apart for long: slices.
        ((1024, 768, 16384), (128, 96), None, None, 7, 1),
        ((896, 768, 16384), (128, 128), None, None, 6, 1),
        # Products take as long as loading: pairs at the most; or longer: none.
        ((1024, 1536, 4096), (128, 96), dict(m=2), False, 6, 4),
        ((2048, 768, 8192), (128, 96), dict(n=2), None, 6, 16),
        ((1024, 3840, 4096), (128, 240), None, None, 4, 8),
    ],
)
def test_choice(
    sizes: tuple[int, int, int],
    tile: tuple[int, int],
    cluster: dict[str, int] | None,
    multicast: bool | None,
    stages: int,
    swizzle: int,
) -> None:
    made = chosen(*sizes)
    assert made.tile is not None
    assert ((made.tile["m"], made.tile["n"]), made.cluster) == (tile, cluster)
    assert (made.multicast, made.stages, made.swizzle) == (multicast, stages, swizzle)


def test_who_asks_for_something_gets_it() -> None:
    assert chosen(1024, 576, 4096, Schedule(cluster=dict(m=1))).cluster == dict(m=1)
    assert chosen(1024, 576, 4096, Schedule(scheduler="grid")).cluster is None
    given = chosen(1024, 576, 4096, Schedule(cluster=dict(m=4, n=2)))
    assert (given.cluster, given.multicast) == (EIGHT, None)


def test_tiles_of_a_given_cluster_may_be_cut() -> None:
    given = Schedule(tile=dict(m=64, n=96), consumers=1, cluster=dict(n=2))
    sizes = dict(M=1024, N=768, K=16384)
    kernel = scheduled_tile(CASES["gemm"].kernel.tile, sizes)
    assert any(p.work.cut for _, p in ranked(kernel, given, sizes, every=True))


def options(kernel: Kernel, rows: int = 64, n: int = 96, **sizes: int) -> list[dict[str, Any]]:
    """Clusters, and `multicast` where CTAs load for each other."""
    tile, consumers = dict(m=rows, n=n, k=64), rows // 64
    schedule = Schedule(tile=tile, consumers=consumers, mode="cooperative")
    work = Work(kernel, sizes)
    sizes_of = axis_sizes(kernel, schedule)
    option = schedule, predict(work, schedule, sizes_of)
    made = cluster_options(kernel, Schedule(), work, option, sizes_of)
    found: list[dict[str, Any]] = []
    for each in made:
        cluster = dict(each.cluster or {})
        together = each.multicast is None and "k" not in cluster
        found.append(cluster | (dict(multicast=True) if together else {}))
    return found


def four(**cluster: int) -> dict[str, Any]:
    return dict(cluster, multicast=True)


def test_options() -> None:
    kernel = scheduled_tile(CASES["gemm"].kernel.tile)
    assert options(kernel, M=1024, N=576, K=4096) == [dict(n=2), EIGHT, four(m=4)]
    assert options(kernel, M=512, N=1152, K=4096) == [
        *(dict(m=2), dict(m=4)),
        *(dict(m=4, n=2), dict(m=2, n=4)),
        *(four(m=4), four(n=4)),
    ]
    assert options(kernel, 128, M=1024, N=1536, K=4096) == [dict(m=2)]
    assert options(kernel, 128, M=1024, N=1440, K=4096) == [dict(m=2)]
    # 32 clusters of 4 do not run at the same time; an odd number of tiles is in no pair.
    assert options(kernel, M=1024, N=768, K=4096) == [dict(n=2)]
    assert options(kernel, M=960, N=672, K=4096) == []
    # Two waves, sizes that are not known.
    assert options(kernel, M=2048, N=768, K=4096) == []
    assert options(kernel, M=1024, N=576) == []
    # Idle SMs: as many share a sum as there are SMs for, and steps.
    assert options(kernel, M=512, N=384, K=4096) == [dict(k=2)]
    assert options(kernel, M=256, N=192, K=4096) == [dict(k=2), dict(k=4)]
    assert options(kernel, M=256, N=192, K=256) == [dict(k=2)]


def test_fours_that_load_for_each_other() -> None:
    kernel = scheduled_tile(CASES["gemm"].kernel.tile)
    assert four(n=4) in options(kernel, n=128, M=960, N=1024, K=4096)
    # Slots of more bytes are too few; 88 columns are no four parts of a multiple of 8.
    assert options(kernel, n=144, M=960, N=1152, K=4096) == []
    assert four(m=4) not in options(kernel, n=88, M=1024, N=616, K=4096)
    # What comes from memory is no sooner there.
    assert four(n=4) not in options(kernel, n=128, M=256, N=3584, K=4096)


@pytest.mark.parametrize(("stages", "together"), [(6, False), (7, False), (8, True)])
def test_fours_want_deep_rings(stages: int, together: bool) -> None:
    made = chosen(960, 1024, 8192, Schedule(stages=stages, mma="m", tile=dict(m=64, n=128)))
    assert (made.cluster == dict(n=4) and made.multicast is None) == together


def test_what_a_cluster_of_a_square_covers() -> None:
    """Four of the eight tiles along m, or all four along n."""
    sizes, tile = dict(M=512, N=512, K=4096), dict(m=64, n=128, k=64)
    kernel = scheduled_tile(CASES["gemm"].kernel.tile, sizes)
    sizes_of = axis_sizes(kernel, Schedule(tile=tile))
    shares = [
        cold_share(Work(kernel, sizes), Schedule(cluster=cluster), sizes_of)
        for cluster in (dict(m=4), dict(n=4))
    ]
    assert shares == [0.5, 0.0]


def gain(schedule: Schedule, m: int, n: int, k: int) -> float:
    """By how much quicker operands come than L2 has them."""
    sizes = dict(M=m, N=n, K=k)
    kernel = scheduled_tile(dataclasses.replace(CASES["gemm"].kernel.tile, schedule=schedule))
    assert kernel.schedule is not None
    return predict(Work(kernel, sizes), kernel.schedule, axis_sizes(kernel, kernel.schedule)).gain


def test_gains() -> None:
    narrow = Schedule(tile=dict(m=64, n=96, k=64), consumers=1)
    pair = dataclasses.replace(narrow, cluster=dict(n=2), multicast=False)
    assert gain(narrow, 1024, 768, 4096) == pytest.approx(GAIN[ALONE] / 1.0064)
    assert gain(pair, 1024, 768, 4096) == pytest.approx(GAIN[PAIR] / 1.0064)
    # Either side of a square is the shorter one.
    eights = [dataclasses.replace(narrow, cluster=c) for c in (dict(m=4, n=2), dict(m=2, n=4))]
    for eight in eights:
        eight = dataclasses.replace(eight, multicast=False)
        assert gain(eight, 768, 768, 4096) == pytest.approx(GAIN[4, 2] / 1.0064)
    # Fours along the longer side bring nothing, unless they load for each other.
    wide_four = Schedule(tile=dict(m=64, n=128, k=64), consumers=1, cluster=dict(n=4))
    assert gain(wide_four, 960, 1024, 4096) == pytest.approx(MULTICAST_GAIN / 1.0064)
    alone = dataclasses.replace(wide_four, multicast=False)
    assert gain(alone, 960, 1024, 4096) == pytest.approx(GAIN[ALONE] / 1.0064)
    shallow = Schedule(tile=dict(m=64, n=144, k=64), consumers=1, cluster=dict(n=4))
    assert gain(shallow, 960, 1152, 4096) == pytest.approx(GAIN[ALONE] / 1.0064)
    # Eights whose four lie along wide tiles are no better than fours.
    flat = Schedule(tile=dict(m=64, n=128), consumers=1, cluster=dict(m=2, n=4), multicast=False)
    assert gain(flat, 640, 1536, 4096) == pytest.approx(FLAT_WIDE / 1.0064)
    less = dataclasses.replace(flat, tile=dict(m=64, n=112))
    assert gain(less, 640, 1280, 4096) == pytest.approx(GAIN[FLAT] / 1.0064)
    # Close to the limit pairs bring little; beyond it they bring nothing, and in two waves.
    wide = Schedule(tile=dict(m=128, n=96, k=64), consumers=2)
    near = dataclasses.replace(wide, cluster=dict(m=2), multicast=False)
    assert gain(wide, 1024, 1536, 4096) == pytest.approx(GAIN[ALONE] / 1.0064)
    assert gain(near, 1024, 1536, 4096) == pytest.approx(GAIN[ALONE] * LITTLE / 1.0064)
    assert gain(wide, 2048, 1536, 4096) == 1.0
    # Pieces of a serial reduction drift apart over their sums; parallel ones begin together.
    turns = dataclasses.replace(narrow, scheduler="split_k", splits=2)
    assert gain(turns, 512, 768, 8192) == pytest.approx(GAIN[ALONE] / 1.0064)
    assert gain(dataclasses.replace(turns, reduction="parallel"), 512, 768, 8192) == 1.0
    assert gain(dataclasses.replace(narrow, scheduler="stream_k"), 1024, 768, 8192) == 1.0


def test_room() -> None:
    """What is said to run at the same time has to fit: SMs that a GPC has left over are idle."""
    for card in TARGETS:
        assert all(size * room <= card.num_sms for size, room in card.clusters)
    assert [H200.cluster_room(size) for size in (1, 2, 4, 8)] == [132, 66, 30, 15]
    assert dataclasses.replace(H200, num_sms=64).cluster_room(8) == 8
    assert CASES["gemm"].kernel.schedule(M=1024, N=576, K=4096).cluster == EIGHT


def test_a_cluster_is_explained() -> None:
    text = CASES["gemm"].kernel.explain(M=1024, N=576, K=4096)
    assert "4 along m, 2 along n without multicast: what several of them want comes once" in text
    assert "15 run at the same time" in text
    text = CASES["gemm"].kernel.explain(Schedule(cluster=dict(n=2)), M=1024, N=576, K=4096)
    assert "clusters of 2 along n: what several of them want each loads a part of" in text
