"""`benchmarks.exhaustive` with a card whose times are known: what there is to measure, what is
kept, and what is told.
"""

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import exhaustive, kernels
from benchmarks.exhaustive import Search, near, table, whole
from benchmarks.schedule_space import legal, neighbours, orientations, points
from tests.tune.fakes import InThisProcess
from wsdsl import Schedule, config
from wsdsl.artifact.artifact import Choice
from wsdsl.artifact.serialization import Entry, to_bytes
from wsdsl.tune.candidates import candidates
from wsdsl.tune.tuning import TuningSetup

SIZES = dict(M=512, N=768, K=512)
GEMM = kernels.gemm
FOUND = points(GEMM.tile_ir, SIZES, within=1.1)


def main_choices(schedule: Schedule) -> tuple[Any, ...]:
    """What is not filled in."""
    s = schedule
    return s.mma_m, s.mode, s.consumers, s.tile, s.cluster, s.multicast, s.splits, s.reduction


def test_the_space_has_what_tuning_tries_and_more() -> None:
    space = list(whole(FOUND, SIZES))
    assert len(space) == len({*space}) > 120
    assert {s.mma_m for s in space} == {None, "n"}
    slow = {main_choices(s) for s in space}
    tried = candidates(GEMM.tile_ir, None, SIZES, 48)
    assert sum(main_choices(s) in slow for s in tried[:6]) >= 5
    assert FOUND[0].cycles == min(point.cycles for point in FOUND)
    assert FOUND[-1].cycles <= 1.1 * FOUND[0].cycles


def test_what_is_legal_is_taken_as_it_is() -> None:
    for point in FOUND[::150]:
        if (schedule := legal(point, SIZES)) is not None:
            assert GEMM.schedule(schedule, **SIZES) == schedule


def test_neighbours_differ_in_what_was_filled_in() -> None:
    schedule = next(whole(FOUND, SIZES))
    around = [*neighbours(schedule)]
    assert len({*around, schedule}) == len(around) + 1 > 12
    assert {main_choices(s) for s in around} == {main_choices(schedule)}
    with pytest.raises(ValueError, match="has 2 products"):
        orientations(dataclasses.replace(kernels.attention.tile_ir, sizes=(("D", 128),)))


@pytest.fixture(name="search")
def make_search(tmp_path: Path) -> Iterator[Any]:
    """Searches that go on with one file."""
    setup = TuningSetup("tests.tune.fakes:FakeDevice", 1.0, InThisProcess, 0.5)  # pyright: ignore[reportArgumentType]
    made: list[Search] = []
    with config.override(cache_dir=None, tuning_cache=False, ptxas="off"):
        compiled = GEMM.compile(**SIZES)
        held = Choice(compiled.schedule), compiled.artifact
        InThisProcess.today = to_bytes(Entry(str(GEMM.tile_ir), "", held))

        def make(**sizes: int) -> Search:
            made.append(Search(GEMM, SIZES | sizes, tmp_path / "kept.jsonl", setup, 2))
            return made[-1]

        yield make
    for own in made:
        own.process.close()


def like(n: int, stages: int = 4) -> Schedule:
    return Schedule(tile=dict(m=128, n=n, k=64), stages=stages, consumers=2, mode="cooperative")


def test_a_run_goes_on_where_it_was(search: Any) -> None:
    first, until = search(), time.monotonic() + 60
    assert first.measure([like(256), like(240), like(192, 12), like(192, 14)], until) == 4
    assert "2 measured, 2 refused or failed" in first.so_far()
    with first.path.open("a") as file:
        file.write('{"schedule": "Sched')  # killed
    second = search()
    assert second.kept.trials.keys() == first.kept.trials.keys()
    assert second.measure([like(256), like(208), like(192, 14), like(192)], until) == 2
    assert second.kept.best(1)[0].schedule == like(192)
    assert search().kept.trials.keys() == second.kept.trials.keys()
    told = second.against(like(208))
    assert told.splitlines()[1].split("  ")[-1] == repr(like(192))
    assert f"{like(208)!r}  (tuned)" in told and "  (today)" in told
    assert 1.02 < float(told.splitlines()[-1].split()[5]) < 1.05
    assert search(M=500).kept.trials == {} and first.path.with_suffix(".old").exists()


def test_all_of_it(search: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(exhaustive, "LAST", 1)
    own = search()
    own.kept.add_tuned({"schedule": repr(like(256)), "seconds": 51.0})
    exhaustive.search(own, time.monotonic() + exhaustive.LAST_SECONDS + 2.5, FOUND[:6])
    measured = {main_choices(s) for s in own.kept.trials}
    tried = {main_choices(s) for s in whole(FOUND[:6], SIZES)}
    assert tried <= measured and len(own.kept.trials) > len(tried)
    *_, quotient, seconds = capsys.readouterr().out.splitlines()
    assert quotient.startswith("tuned ÷ best of all: ")
    assert seconds == "tuned in 51.0 s, with an empty cache"


def test_nothing_is_begun_when_time_is_over(search: Any) -> None:
    own = search()
    assert own.measure([like(256)], time.monotonic()) == 0 and not own.kept.trials
    own.kept.add_tuned({"schedule": "Schedule()", "seconds": 50.0})
    assert search().kept.tuned["seconds"] == 50.0


def test_the_quotient_is_of_rounds_that_ran_together() -> None:
    bursts = {"a": [10.0, 20.0, 30.0], "b": [11.0, 22.0, 33.0]}
    told = table(bursts, {"a": 10.0, "b": 10.5}, "b", "b")
    assert told.splitlines()[-1] == "tuned ÷ best of all: 1.075 (1.100 · 1.050)"
    assert "tuned" not in table(bursts, {"a": 10.0, "b": 10.5}, "b", None)


def test_neighbours_that_the_compiler_takes(search: Any) -> None:
    own = search()
    best = dataclasses.replace(own.today, samples=3)
    found = [*near(GEMM, [best], SIZES)]
    assert found and all(dict(s.tile or {}) == dict(best.schedule.tile or {}) for s in found)


def test_counting_needs_no_gpu(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.argv", ["exhaustive", "512x768x512", "--count"])
    monkeypatch.setattr(exhaustive, "points", lambda tile, sizes, within: FOUND)
    assert exhaustive.main() == 0
    assert f"gemm 512x768x512: {len(FOUND)} schedules" in capsys.readouterr().out
