"""The dynamic scheduler (CLC): when it is chosen, and schedules that are rejected."""

import re
from typing import Any

import pytest

import wsdsl
from tests.kernels import CASES
from tests.range_kernels import TEXTS
from wsdsl import Schedule, ScheduleError
from wsdsl.ir.tile_scheduler import DataParallel, tile_scheduler
from wsdsl.lowering.wave_quantization import claimed_tiles, claimed_unevenness, unevenness
from wsdsl.schedule import Arch, Scheduler

BLACKWELL: tuple[Arch, ...] = ("sm_100a", "sm_103a")


def kernel_of(name: str) -> wsdsl.Kernel:
    return vars(wsdsl.parse(TEXTS[name]))[name]


def test_the_grid_has_all_clusters() -> None:
    assert isinstance(tile_scheduler("dynamic"), DataParallel)
    assert tile_scheduler("dynamic").num_workers(tiles=1000, depth=1, room=148) == 1000


@pytest.mark.parametrize(
    ("name", "asked", "told"),
    [
        ("gemm", dict(), 'sm_90a (H200) has no cluster launch.*scheduler="grid"'),
        ("scale", dict(arch="sm_100a"), 'needs a matmul.*scheduler="grid"'),
        ("gemm", dict(arch="sm_100a", splits=2), "Schedule.splits=2 needs scheduler"),
    ],
)
def test_refused_by_name(name: str, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ScheduleError) as error:
        CASES[name].kernel.compile(schedule=Schedule(scheduler="dynamic", **asked))
    shown = " ".join(str(error.value).split())
    assert re.search(told.replace("(", r"\(").replace(")", r"\)"), shown), shown


@pytest.mark.parametrize("arch", BLACKWELL)
def test_chosen_where_tiles_differ(arch: Arch) -> None:
    asked = Schedule(arch=arch)
    causal = kernel_of("causal").schedule(H=64, S=2048, D=128, schedule=asked)
    packed = kernel_of("packed").schedule(G=64, S=2048, T=4096, D=128, schedule=asked)
    assert causal.scheduler == packed.scheduler == "dynamic"
    alike = CASES["gemm"].kernel.schedule(M=8192, N=8192, K=4096, schedule=asked)
    few = kernel_of("causal").schedule(H=1, S=2048, D=128, schedule=asked)
    assert alike.scheduler == few.scheduler == "persistent"


def test_not_chosen_where_the_card_can_not() -> None:
    chosen = kernel_of("causal").schedule(H=64, S=2048, D=128)
    assert chosen.scheduler == "persistent"


@pytest.mark.parametrize(
    ("tiles", "workers", "places"), [(2048, 148, 16), (1000, 74, 8), (5, 9, 5)]
)
def test_who_claims_what(tiles: int, workers: int, places: int) -> None:
    rows = claimed_tiles(tiles, workers, places)
    assert sorted(tile for row in rows for tile in row) == [*range(tiles)]
    assert len(rows) == min(tiles, workers)
    assert all(list(row) == sorted(row) for row in rows)
    of_grid = unevenness(tiles, min(tiles, workers), places)
    assert claimed_unevenness(tiles, workers, places) <= of_grid


def test_tiles_without_number_are_not_dealt_out() -> None:
    """Of sizes that are not known there may be billions."""
    assert claimed_unevenness(1 << 32, 148, 64) == 1.0
    asked = Schedule(arch="sm_100a", scheduler="dynamic")
    assert kernel_of("causal").schedule(D=128, schedule=asked).scheduler == "dynamic"


def test_uneven_tiles_end_sooner_step_by_step() -> None:
    """A persistent CTA has every 148th tile: of 8 in each head some have the longest, or nearly."""
    kernel = kernel_of("causal")
    cycles = dict[str, float]()
    both: tuple[Scheduler, ...] = ("persistent", "dynamic")
    for scheduler in both:
        asked = Schedule(arch="sm_100a", scheduler=scheduler, tile=dict(q=128, t=128))
        worker = kernel.timeline(H=128, S=1024, D=64, schedule=asked).worker
        cycles[scheduler] = worker.cycles
        waited = {edge for lane in worker.lanes for edge in lane.waiting}
        assert ("pipeline of the next tile (full)" in waited) == (scheduler == "dynamic")
    assert cycles["dynamic"] < 0.9 * cycles["persistent"]
