"""Clusters, deep rings and the order of tiles, where loading operands is the limit."""

import dataclasses
from typing import Any

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.ir.hardware.target import H200, TARGETS
from wsdsl.ir.op import Kernel
from wsdsl.lowering.cost_model.predict import predict
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.heuristics.cluster_options import cluster_options, fits_sharing, sharing_options
from wsdsl.lowering.heuristics.ranked import ranked
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.rates import rates_of

EIGHT = dict(m=4, n=2)


def chosen(m: int, n: int, k: int, schedule: Schedule | None = None) -> Schedule:
    return CASES["gemm"].kernel.schedule(schedule, M=m, N=n, K=k)


@pytest.mark.parametrize(
    ("sizes", "clustered"),
    [
        # Few and narrow tiles, which all run at the same time, wait for their operands.
        ((1024, 384, 4096), True),
        ((768, 768, 8192), True),
        ((512, 1024, 4096), True),
        # Idle SMs: CTAs of a cluster share a sum.
        ((128, 768, 4096), True),
        # Products take longer than loading, or memory is the limit.
        ((1024, 3840, 4096), False),
        ((4096, 4096, 4096), False),
        ((64, 28672, 8192), False),
    ],
)
def test_choice(sizes: tuple[int, int, int], clustered: bool) -> None:
    assert bool(chosen(*sizes).cluster) == clustered


def test_who_asks_for_something_gets_it() -> None:
    assert chosen(1024, 576, 4096, Schedule(cluster=dict(m=1))).cluster == dict(m=1)
    assert chosen(1024, 576, 4096, Schedule(scheduler="grid")).cluster is None
    given = chosen(1024, 576, 4096, Schedule(cluster=dict(m=4, n=2)))
    assert (given.cluster, given.multicast) == (EIGHT, None)


def test_tiles_of_a_given_cluster_may_be_cut() -> None:
    given = Schedule(tile=dict(m=64, n=96), consumers=1, cluster=dict(n=2))
    sizes = dict(M=1024, N=768, K=16384)
    kernel = scheduled_tile(CASES["gemm"].kernel.tile_ir, sizes)
    assert any(p.work.cut for _, p in ranked(kernel, given, sizes))


def options(kernel: Kernel, rows: int = 64, n: int = 96, **sizes: int) -> list[dict[str, Any]]:
    """Clusters, and `multicast` where CTAs load for each other."""
    tile, consumers = dict(m=rows, n=n, k=64), rows // 64
    schedule = Schedule(tile=tile, consumers=consumers, mode="cooperative")
    work = Work(kernel, sizes)
    sizes_of = axis_sizes(kernel, schedule)
    option = schedule, predict(work, schedule, sizes_of)
    asked, workload = (kernel, Schedule(), work, option), option[1].tile
    made = [o for o in sharing_options(*asked) if fits_sharing(kernel, o, workload)]
    made += cluster_options(*asked)
    found: list[dict[str, Any]] = []
    for each in made:
        cluster = dict(each.cluster or {})
        together = each.multicast is None and "k" not in cluster
        found.append(cluster | (dict(multicast=True) if together else {}))
    return found


def test_options() -> None:
    kernel = scheduled_tile(CASES["gemm"].kernel.tile_ir)
    few = options(kernel, M=1024, N=576, K=4096)
    # All of them divide the 16 x 6 tiles evenly, and run at the same time; fours load for each
    # other where what they have in common is cut into groups of 8 lines.
    assert few == [dict(m=2), dict(n=2), dict(m=4), dict(m=4, multicast=True), EIGHT]
    # An odd number of tiles is in no pair; sizes that are not known.
    assert options(kernel, M=960, N=672, K=4096) == []
    assert options(kernel, M=1024, N=576) == []
    # Several waves: pairs that load for each other.
    assert options(kernel, M=2048, N=768, K=4096) == [
        dict(m=2, multicast=True), dict(n=2, multicast=True)
    ]  # fmt: skip
    # Idle SMs: as many share a sum as there are SMs for, and steps.
    assert options(kernel, M=512, N=384, K=4096) == [dict(k=2)]
    assert options(kernel, M=256, N=192, K=4096) == [dict(k=2), dict(k=4)]
    assert options(kernel, M=256, N=192, K=256) == [dict(k=2)]


def gain(schedule: Schedule, m: int, n: int, k: int) -> float:
    """By how much quicker operands come than to CTAs of their own."""
    sizes = dict(M=m, N=n, K=k)
    kernel = scheduled_tile(CASES["gemm"].with_schedule(schedule))
    assert kernel.schedule is not None
    return predict(Work(kernel, sizes), kernel.schedule, axis_sizes(kernel, kernel.schedule)).gain


def test_gains() -> None:
    rates = rates_of(H200)
    narrow = Schedule(tile=dict(m=64, n=96, k=64), consumers=1)
    alone = dataclasses.replace(narrow, cluster=dict(n=2), multicast=False)
    assert gain(narrow, 1024, 768, 4096) == 1.0
    assert gain(alone, 1024, 768, 4096) == rates.l2_cluster_2_bytes / rates.l2_bytes
    # In two waves those of a cluster are not in step, unless they load for each other.
    assert gain(alone, 2048, 1536, 4096) == 1.0
    together = dataclasses.replace(narrow, cluster=dict(m=4))
    assert gain(together, 2048, 1536, 4096) == rates.l2_multicast_4_bytes / rates.l2_bytes


def test_room() -> None:
    """What is said to run at the same time has to fit: SMs that a GPC has left over are idle."""
    for card in TARGETS:
        assert all(size * room <= card.num_sms for size, room in card.clusters)
    assert [H200.cluster_room(size) for size in (1, 2, 4, 8)] == [132, 66, 30, 15]
    assert dataclasses.replace(H200, num_sms=64).cluster_room(8) == 8
