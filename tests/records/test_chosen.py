"""A tuning-cache entry fills in the fields that a given schedule leaves open."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.records.recorded import ASKED, SIZES, USUAL, make_gemm, make_other, row
from wsdsl import Schedule, config
from wsdsl.cli import main
from wsdsl.records import card, find, text
from wsdsl.records.database import Database

INSTALLED = card._installed
MODEL = make_gemm().schedule(**SIZES)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(card, "_installed", lambda folder: ())
    monkeypatch.setattr(card, "queried", tuple)
    with config.override(cache_dir=tmp_path, tuning_cache=True, ptxas="off"):
        yield Database(tmp_path / "records.db")


def test_a_kernel_is_its_text_and_no_name(kept: Database) -> None:
    kept.add([row(make_gemm())])
    assert USUAL != MODEL
    for made in (make_gemm(), make_other()):
        assert made.schedule(**SIZES) == USUAL
        told = "chosen by a tuning-cache entry: 31.2 µs (33.0 sustained), measured 2026-11-25 on "
        told += "a card (tune)"
        assert told in made.explain(**SIZES).splitlines()
        assert told in str(made.plan(**SIZES)).splitlines()
    assert "entry" not in make_gemm().explain(**(SIZES | {"N": 2048}))
    with config.override(tuning_cache=False):
        assert make_gemm().schedule(**SIZES) == MODEL


def test_calls_of_its_class_run_it(kept: Database) -> None:
    kept.add([row(make_gemm())])
    gemm = make_gemm()
    assert gemm.dispatched_schedule(**(SIZES | {"M": 997})) == USUAL
    assert gemm.dispatched_schedule(**(SIZES | {"M": 977})) != USUAL


@pytest.mark.parametrize(
    ("given", "is_taken"),
    [
        (Schedule(stages=4), True),
        (Schedule(tile=dict(n=128), scheduler="auto"), True),
        (USUAL, True),
        (Schedule(stages=3), False),
        (Schedule(tile=dict(n=256)), False),
        (Schedule(cluster=dict(m=2)), False),
        (Schedule(pdl_independent=("B",)), True),
        (Schedule(pdl_independent=("B",), stages=3), False),
    ],
)
def test_what_is_given_holds(kept: Database, given: Schedule, is_taken: bool) -> None:
    kept.add([row(make_gemm())])
    found = find(make_gemm().declaration, ASKED._replace(schedule=given))
    assert (found is not None) == is_taken


def test_what_was_measured_without_a_promise_serves_those_who_promise(kept: Database) -> None:
    kept.add([row(make_gemm())])
    constant = make_gemm().schedule(Schedule(pdl_independent=("B",)), **SIZES)
    assert dataclasses.replace(constant, registers=USUAL.registers) == dataclasses.replace(
        USUAL, pdl_independent=("B",)
    )


@pytest.mark.parametrize(
    "promise", [Schedule(pdl_independent=("B",)), Schedule(mma_promotion_interval=0)]
)
def test_what_results_depend_on_has_to_be_asked_for(kept: Database, promise: Schedule) -> None:
    gemm = make_gemm()
    whole = dataclasses.replace(
        USUAL,
        pdl_independent=promise.constant,
        mma_promotion_interval=promise.precise_every,
        reduction=promise.reduction,
    )
    kept.add([row(gemm, promise, schedule=repr(whole))])
    assert find(gemm.declaration, ASKED) is None
    assert find(gemm.declaration, ASKED._replace(schedule=promise)) is not None


@pytest.mark.parametrize(
    "unasked", [dict(pdl_independent=("B",)), dict(mma_promotion_interval=0), dict(arch="sm_100a")]
)
def test_what_its_key_does_not_have_is_not_taken(
    kept: Database, tmp_path: Path, unasked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each field that is part of the key, in a database and in a file."""
    forged = row(make_gemm(), schedule=repr(dataclasses.replace(USUAL, **unasked)))
    (tmp_path / "forged.csv").write_text(text.to_text([forged]))
    assert main(["tuning-cache", "merge", str(tmp_path / "forged.csv")]) == 2
    assert f"has {next(iter(unasked))}=" in capsys.readouterr().err and not kept.rows()
    kept.add([forged])
    with pytest.warns(RuntimeWarning, match=next(iter(unasked))):
        assert find(make_gemm().declaration, ASKED) is None
    assert make_gemm().schedule(**SIZES) == MODEL


def test_a_record_is_of_one_card(kept: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = make_gemm()
    kept.add([row(gemm)])
    assert find(gemm.declaration, ASKED._replace(num_sms=114)) is None
    installed = "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"
    monkeypatch.setattr(card, "_installed", lambda folder: installed)
    assert find(gemm.declaration, ASKED) is None
    kept.add([row(gemm, bursts=12.0)])
    found = find(gemm.declaration, ASKED)
    assert found is not None and (found.card, found.bursts) == ("H100 SXM", 12.0)


def test_installed_cards_are_read(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 7\n")
    assert INSTALLED(tmp_path) == ("NVIDIA H200", "NVIDIA H200")


@pytest.mark.parametrize(
    "refused", ["Schedule(tile=dict(m=128, n=128, k=100000))", "Schedule(x=1)"]
)
def test_what_is_refused_today_is_not_taken(kept: Database, refused: str) -> None:
    kept.add([row(make_gemm(), schedule=refused)])
    gemm = make_gemm()
    assert gemm.compile(**SIZES).schedule == MODEL
    assert gemm.schedule(**SIZES) == MODEL


def test_what_is_kept_on_disk_is_chosen_anew(kept: Database) -> None:
    assert make_gemm().compile(**SIZES).schedule == MODEL
    kept.add([row(make_gemm())])
    assert make_gemm().compile(**SIZES).schedule == USUAL
    kept.clear()
    assert make_gemm().compile(**SIZES).schedule == MODEL


def test_shipped_records_stand_behind_the_users(
    kept: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped").mkdir()
    shipped = row(make_gemm(), schedule=repr(dataclasses.replace(USUAL, stages=5)))
    (tmp_path / "shipped" / "h200.csv").write_text(text.to_text([shipped]))
    monkeypatch.setattr(text, "SHIPPED", tmp_path / "shipped")
    module = __import__("wsdsl.records.find_entry", fromlist=["_shipped"])
    module._shipped.cache_clear()
    try:
        assert make_gemm().schedule(**SIZES).stages == 5
        kept.add([row(make_gemm())])
        assert make_gemm().schedule(**SIZES).stages == 4
    finally:
        module._shipped.cache_clear()


def test_the_command(kept: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = row(make_gemm(), schedule="Schedule(stages=2)", bursts=50.0, chosen=False)
    kept.add([row(make_gemm()), slower])

    def run(*words: object, status: int = 0) -> str:
        assert main(["tuning-cache", *map(str, words)]) == status
        return "".join(capsys.readouterr())

    listed, shown, file = run(), run("show", "gemm"), tmp_path / "all.csv"
    assert "gemm  M 993 to 1008" in listed and "31.2 µs" in listed and "50.0" not in listed
    assert shown.index("* 31.2 µs") < shown.index("50.0 µs")
    run("export", "-o", file)
    assert "2 measurements removed" in run("clear")
    assert "2 measurements merged" in run("merge", file)
    assert {r.source for r in kept.rows()} == {"imported"}
    assert make_gemm().schedule(**SIZES) == USUAL
    assert "measured kernels: gemm" in run("show", "gem", status=2)
    run("merge", tmp_path / "none.csv", status=2)
