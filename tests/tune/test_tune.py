"""`tune` with a card whose times are known: what wins, what fails, and what is kept."""

import dataclasses
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.case_data import rejects
from tests.records.recorded import make_gemm
from tests.tune.fakes import InThisProcess
from wsdsl import Kernel, Schedule, config
from wsdsl.artifact.artifact import Choice
from wsdsl.artifact.serialization import Entry, to_bytes
from wsdsl.diagnostics import CompileError, ScheduleError, WsdslError
from wsdsl.dispatch import compile_child
from wsdsl.kernels.gemm import matmul_call
from wsdsl.kernels.gemm.matmul_source import kernel_of
from wsdsl.records import card
from wsdsl.records.database import Database
from wsdsl.tune import Tuned, tuning
from wsdsl.tune.result import axes
from wsdsl.tune.tuning import TuningSetup

SIZES, SMALL = dict(M=1024, N=4096, K=4096), dict(M=64, N=64, K=64)
WHOLE = Schedule(
    tile=dict(m=128, n=256, k=64),
    stages=4,
    consumers=2,
    mode="cooperative",
    scheduler="persistent",
    swizzle=8,
    registers=dict(load=40, compute=232),
)


def like(n: int = 256, stages: int = 4, **changes: Any) -> Schedule:
    return dataclasses.replace(WHOLE, tile=dict(m=128, n=n, k=64), stages=stages, **changes)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with what is chosen today."""
    folder = tmp_path_factory.mktemp("cache")
    with config.override(cache_dir=folder, ptxas="off"):
        for sizes in (SIZES, SMALL):
            make_gemm().compile(**sizes)
    return folder


@pytest.fixture(autouse=True)
def database(tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    shutil.copytree(compiled, tmp_path / "cache")
    monkeypatch.setattr(card, "_installed", lambda folder: ())
    monkeypatch.setattr(card, "queried", tuple)
    monkeypatch.setattr(tuning, "_schedules", lambda task, tried: list(tried))
    InThisProcess.asked.clear()
    with config.override(cache_dir=tmp_path / "cache", tuning_cache=True, ptxas="off"):
        yield Database(tmp_path / "cache" / "records.db")


def tune(
    gemm: Kernel, *tried: Schedule, of: str = "FakeDevice", arrays: tuple[Any, ...] = (), **how: Any
) -> Tuned:
    made = gemm.compile(**(SMALL if arrays else SIZES))
    held = Choice(made.schedule), made.artifact
    InThisProcess.today = to_bytes(Entry(str(gemm.tile_ir), "", held))
    start: Any = InThisProcess
    setup = TuningSetup(f"tests.tune.fakes:{of}", 1.0, start, 0.5)
    how = dict(candidates=tried, setup=setup, progress=False) | how
    if arrays:
        return gemm._tuned(gemm.resolve(arrays), None, **how)
    return gemm.tune_for(SIZES, **how)


def test_the_quickest_wins_and_is_chosen(database: Database) -> None:
    gemm = make_gemm()
    before = gemm.schedule(**SIZES)
    tried = [like(n) for n in (256, 240, 224, 208, 192, 176, 160)]
    tuned = tune(gemm, *tried)
    assert tuned.winner is not None
    assert tuned.schedule == like(192) != before
    assert gemm.schedule(**SIZES) == make_gemm().schedule(**SIZES) == like(192)
    assert "chosen by a tuning-cache entry" in gemm.explain(**SIZES)
    assert len(database.rows()) == 1 + len(tried)
    (chosen,) = database.chosen(gemm.declaration.digest)
    assert chosen.samples == 24 and chosen.sustained and chosen.device == "NVIDIA H200"
    assert str(tuned).splitlines()[-1].startswith("new tuning-cache entry, ")
    assert not tuned.failed and not tuned.untried


def test_executor_compiles_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_child, "compile_job", InThisProcess().run)
    with ThreadPoolExecutor(2) as executor:
        tuned = tune(make_gemm(), like(256), like(192), executor=executor)
    assert tuned.schedule == like(192) and InThisProcess.asked == [like(256), like(192)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("stages", "why"),
    [
        (9, "the GPU hung for 1 s"),
        (10, "the measuring process has ended (exit status 3)"),
        (11, "wrong: `C` has a relative error of 0.5"),
        (12, "ValueError: an error of CUDA"),
        (13, "the measuring process has ended (exit status 4)"),
        (14, "ptxas spills 100 bytes"),
        (15, "compilation exceeded 0 s"),
    ],
)
def test_who_fails_costs_itself(database: Database, stages: int, why: str) -> None:
    tuned = tune(make_gemm(), like(208), like(192, stages), like(224))
    assert tuned.schedule == like(208)
    assert [(t.schedule, t.failure) for t in tuned.failed] == [(like(192, stages), why)]
    assert why in str(tuned)


def test_noise_is_no_gain(database: Database) -> None:
    gemm = make_gemm()
    before = gemm.schedule(**SIZES)
    tuned = tune(gemm, *(like(n) for n in (240, 224, 208, 192)), of="Equal")
    assert tuned.winner is None and gemm.schedule(**SIZES) == before
    assert "the incumbent schedule stays" in str(tuned)
    assert len(database.rows()) == 5 and not database.chosen(gemm.declaration.digest)


def test_what_is_worse_sustained_or_wrong_in_full_does_not_win(database: Database) -> None:
    hot, wrong = like(192, swizzle=16), like(192, swizzle=32)
    assert tune(make_gemm(), hot, like(208)).schedule == like(208)
    assert tune(make_gemm(), wrong, like(176)).schedule != wrong
    assert tune(make_gemm(), hot).winner is None


def test_a_rerun_measures_what_is_not_known(database: Database) -> None:
    tune(make_gemm(), like(160, stages=2), like(96), like(192), like(192, stages=11))
    gemm = make_gemm()
    InThisProcess.asked.clear()
    again = tune(gemm, like(96), like(192), like(192, stages=5), like(192, stages=11))
    assert like(96) not in InThisProcess.asked and like(192, stages=11) not in InThisProcess.asked
    assert like(192, stages=5) in InThisProcess.asked
    assert {t.schedule for t in again.trials if t.is_old} == {like(96), like(192, stages=11)}
    assert again.winner is None and gemm.schedule(**SIZES) == like(192)


def test_it_ends_in_time(database: Database) -> None:
    tuned = tune(make_gemm(), *(like(192, s) for s in range(2, 8)), seconds=0.01)
    assert tuned.untried == 6 and tuned.winner is None
    assert "6 candidates were not measured" in str(tuned)


def test_arrays_are_left_alone(database: Database) -> None:
    a, b = (np.ones((64, 64), ml_dtypes.bfloat16) for _ in range(2))
    c = np.full((64, 64), 7, ml_dtypes.bfloat16)
    tuned = tune(make_gemm(), like(192), arrays=(a, b, c))
    assert tuned.sizes == SMALL
    assert (c == 7).all() and (a == 1).all()


def test_what_can_not_be_done_is_told(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    rejects(r"schedules cannot be measured.*no GPU", tune, make_gemm(), like(192), of="NoDevice")
    rejects("the incumbent schedule cannot be measured", tune, make_gemm(), like(192), of="Broken")
    with pytest.raises(CompileError, match="needs a size for K"):
        make_gemm().tune_for(dict(M=1, N=1))
    with config.override(cache_dir=None):
        assert "not cached: WSDSL_CACHE_DIR is off" in str(tune(make_gemm(), like(192)))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(WsdslError, match="a figure needs matplotlib"):
        tune(make_gemm(), like(192), plot="x.png")


def test_what_the_plot_shows(database: Database, tmp_path: Path, import_optional: Any) -> None:
    """Times by ratio, which leave out the clock of a round: so 1 % is seen."""
    tuned = tune(make_gemm(), *[like(n, s) for n in (240, 224, 208, 192) for s in (3, 4)])
    shown = axes(tuned)
    assert shown.keys() == {"stages", "tile.n"}
    best = {n: min(time for x, time in shown["tile.n"] if x == n) for n in (240, 224, 208, 192)}
    assert best[240] > best[224] > best[208] > best[192]
    assert tuned.winner is not None and tuned.winner.schedule == like(192)
    import_optional("matplotlib")
    assert tuned.plot(tmp_path / "made" / "tune.svg").exists()
    text = (tmp_path / "made" / "tune.svg").read_text()
    assert "new tuning-cache entry" in text and "tile.n, elements" in text


def test_matmul_is_tuned(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of its own text, by which calls of all such products are chosen from then on."""
    a, w = (np.ones((64, 64), ml_dtypes.bfloat16) for _ in range(2))
    # Kernels that no other test meets, since records change what they are compiled to.
    monkeypatch.setattr(matmul_call, "kernel_of", cache(kernel_of.__wrapped__))
    matmul = wsdsl.kernels.Matmul()
    planned, other = matmul.plan(a, w.T), matmul.plan(a, w)
    before, apart = planned.compile(), other.compile()
    held = Choice(before.schedule), before.artifact
    InThisProcess.today = to_bytes(Entry(str(planned.kernel.tile_ir), "", held))
    start: Any = InThisProcess
    setup = TuningSetup("tests.tune.fakes:FakeDevice", 1.0, start, 0.5)
    monkeypatch.setattr(tuning, "tune", partial(tuning.tune, setup=setup))
    tuned = matmul.tune(a, w.T, candidates=[like(192)], progress=False)
    assert tuned.name == "matmul" and tuned.winner is not None
    assert {row.name for row in database.rows()} == {"matmul"}
    assert matmul.plan(a, w.T).compile().schedule == like(192) != before.schedule
    # B has other dimensions there: another text.
    assert matmul.plan(a, w).compile() is apart
    rejects("3", matmul.tune, a, w[:3], candidates=[like(192)])
    rejects("matmul", matmul.tune, a, w.T, second=3)


def test_a_candidate_has_to_be_what_is_given(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with pytest.raises(ScheduleError, match="contradicts the"):
        make_gemm().tune_for(SIZES, candidates=[like(192)], schedule=Schedule(stages=3))
