"""The user's database: shared by processes, and of no harm where it can not be had."""

import dataclasses
import math
import os
import sqlite3
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from tests.records.recorded import SIZES, make_gemm, row
from wsdsl import config
from wsdsl.cli import main
from wsdsl.records import database, text
from wsdsl.records.database import Database, RecordsError
from wsdsl.records.entry import row_from

GEMM = make_gemm()
ROW = row(GEMM)


def changed(**changes: object):
    return dataclasses.replace(ROW, **changes)


def test_what_is_measured_again_replaces_what_was(tmp_path: Path) -> None:
    held = Database(tmp_path / "new" / "records.db")
    assert held.rows() == []
    held.add([ROW, changed(schedule="Schedule()", chosen=False)])
    held.add([changed(bursts=30.0)])
    assert sorted(r.bursts for r in held.rows(ROW.key)) == [30.0, 31.25]
    assert held.rows(ROW.key._replace(card="another")) == []


def test_one_is_chosen_by(tmp_path: Path) -> None:
    held = Database(tmp_path / "records.db")
    held.add([ROW, other := changed(sizes="M = 1")])
    held.choose(better := changed(schedule="Schedule(stages=3)", bursts=30.0))
    assert held.chosen(ROW.kernel) == [other, better] or held.chosen(ROW.kernel) == [better, other]


def test_merging_keeps_the_newer(tmp_path: Path) -> None:
    held = Database(tmp_path / "records.db")
    held.add([ROW])
    older = changed(date="2026-11-24 12:00:00", bursts=9.0)
    assert held.merge([older, changed(schedule="Schedule()")]) == 1
    assert held.merge([changed(date="2026-11-26 12:00:00", bursts=8.0)]) == 1
    assert sorted(r.bursts for r in held.rows()) == [8.0, 31.25]


def test_text_reads_back_in_one_order() -> None:
    rows = [changed(schedule="Schedule(stages=2)", failure="hung, it seems"), ROW]
    assert text.from_text(text.to_text(rows)) == rows
    assert text.to_text(rows) == text.to_text(rows[::-1])


def test_threads_and_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "records.db"

    def add(first: int) -> None:
        for i in range(first, first + 10):
            Database(path).add([changed(schedule=f"Schedule(splits={i})")])

    code = (
        "import sys, dataclasses; from pathlib import Path\n"
        "from wsdsl.records.text import from_text; from wsdsl.records.database import Database\n"
        "(row,) = from_text(sys.stdin.read())\n"
        "for i in range(900, 910):\n"
        "    made = dataclasses.replace(row, schedule=f'Schedule(splits={i})')\n"
        "    Database(Path(sys.argv[1])).add([made])"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE)
    threads = [threading.Thread(target=add, args=(10 * i + 1,)) for i in range(4)]
    for thread in threads:
        thread.start()
    child.communicate(text.to_text([ROW]).encode())
    for thread in threads:
        thread.join()
    assert child.returncode == 0
    assert len(Database(path).rows()) == 50


def spoil(path: Path, how: str) -> None:
    if how == "corrupt":
        path.write_bytes(b"no database at all" * 100)
    elif how == "a folder":
        path.mkdir()
    elif how == "another version":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
    elif how == "truncated":
        Database(path).add([changed(schedule=f"Schedule(splits={i})") for i in range(1, 200)])
        path.write_bytes(path.read_bytes()[:5000])
    elif how == "locked":
        Database(path).add([ROW])
    elif how == "a FIFO":
        os.mkfifo(path)
    elif how == "a journal that is a FIFO":
        Database(path).add([ROW])
        os.mkfifo(f"{path}-journal")


@pytest.mark.parametrize("column", ["bursts", "num_sms", "chosen", "date"])
@pytest.mark.parametrize("value", [None, math.inf, math.nan, b"1"])
def test_a_row_has_a_value_of_its_type_in_each_column(column: str, value: object) -> None:
    with pytest.raises(ValueError, match=column):
        row_from(dataclasses.asdict(ROW) | {column: value})


SPOILT = ["corrupt", "a folder", "another version", "truncated", "locked", "a FIFO"]
SPOILT += ["a journal that is a FIFO"]


def test_numbers_that_sqlite_does_not_hold(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="too large"):
        Database(tmp_path / "records.db").add([changed(samples=1 << 64)])


@pytest.mark.parametrize("how", SPOILT)
def test_no_compile_fails_by_it(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.db"
    spoil(path, how)
    monkeypatch.setattr(database, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.01)
    by_model = GEMM.schedule(**SIZES)
    lock = sqlite3.connect(path) if how == "locked" else None
    if lock is not None:
        lock.execute("BEGIN EXCLUSIVE")
    with config.override(cache_dir=tmp_path, tuning_cache=True):
        with pytest.warns(RuntimeWarning, match="tuning cache is not used"):
            assert make_gemm().schedule(**SIZES) == by_model
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert make_gemm().schedule(**SIZES) == by_model
        with pytest.raises(RecordsError, match="records"):
            Database(path).add([ROW])
        assert main(["tuning-cache", "list"]) == 2
        if how in ("corrupt", "truncated", "another version"):
            assert main(["tuning-cache", "clear"]) == 0
            Database(path).add([ROW])
    if lock is not None:
        lock.close()
