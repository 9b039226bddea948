"""A folder that processes share: bounded, and of no harm where it can not be had."""

import errno
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from wsdsl.artifact import disk as module
from wsdsl.artifact.disk import BLOCK, Disk
from wsdsl.ir.hardware.target import H200
from wsdsl.rates.files import SHIPPED
from wsdsl.rates.of_target import calibrated

KIB = 1024


def used(place: Disk, key: str, seconds_ago: float) -> None:
    at = time.time() - seconds_ago
    os.utime(place.folder / f"{key}.entry", (at, at))


def keys(place: Disk) -> set[str]:
    return {file.key for file in place.files()}


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    place = Disk(tmp_path / "new" / "folder", 8 * BLOCK)
    for i in range(8):
        place.write(f"k{i}", bytes(100))
        used(place, f"k{i}", 1000 - i)
    assert place.read("k0") == bytes(100)  # so it has just been used
    place.write("k8", bytes(100))
    assert keys(place) == {"k0", *(f"k{i}" for i in range(2, 9))} - {"k2"}
    assert sum(file.bytes for file in place.files()) <= place.limit


def test_the_limit_holds_whatever_is_written(tmp_path: Path) -> None:
    place = Disk(tmp_path, 64 * KIB)
    for i in range(60):
        place.write(f"k{i}", bytes(i * 300))
        assert sum(file.bytes for file in place.files()) <= place.limit
    held = keys(place)
    place.write("large", bytes(65 * KIB))
    assert keys(place) <= held and len(keys(place)) > 1


def test_a_process_looks_through_the_folder_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(Disk, "prune", lambda self: (looks.append(1), setattr(self, "written", 0)))
    place = Disk(tmp_path, 1024 * BLOCK)
    for i in range(64):
        place.write(f"k{i}", b"")
    assert len(looks) == 1 + 63 // 17


def test_what_a_crash_left_goes_later(tmp_path: Path) -> None:
    place = Disk(tmp_path, 1 << 20)
    for name, ago in (("old.part", 7200), ("new.part", 60), ("old.lock", 7200), ("own.txt", 7200)):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (time.time() - ago,) * 2)
    place.write("k", b"data")
    assert {path.name for path in tmp_path.iterdir()} == {"new.part", "own.txt", "k.entry"}
    assert len(place.clear()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"own.txt"}


def nothing_is_kept(place: Disk) -> None:
    place.write("k", b"data")
    with place.lock("k"):
        assert place.read("k") is None
    assert place.files() == [] and place.clear() == []


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    nothing_is_kept(Disk(tmp_path / "file", 1 << 20))
    nothing_is_kept(Disk(tmp_path / "file" / "below", 1 << 20))


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Tests may run as root, to whom a folder without permissions is open."""

    def refuses(*_: Any, **__: Any) -> Any:
        raise OSError(code, "refused")

    place = Disk(tmp_path / "new", 1 << 20)
    Disk(tmp_path / "old", 1 << 20).write("k", b"data")
    monkeypatch.setattr("builtins.open", refuses)
    for name in ("open", "utime", "replace", "unlink"):
        monkeypatch.setattr(module.os, name, refuses)
    nothing_is_kept(place)
    assert Disk(tmp_path / "old", 1 << 20).read("k") == b"data"


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the file and not its bytes."""
    place, real = Disk(tmp_path, 1 << 20), open

    def full(path: Path, mode: str) -> Any:
        path.touch()
        return real("/dev/full", "wb")

    monkeypatch.setattr("builtins.open", full)
    place.write("k", bytes(100_000))
    monkeypatch.undo()
    assert place.read("k") is None and list(tmp_path.iterdir()) == []


def test_a_folder_in_the_entrys_place(tmp_path: Path) -> None:
    (tmp_path / "k.entry").mkdir()
    place = Disk(tmp_path, 1 << 20)
    place.write("k", b"data")
    assert place.read("k") is None and not list(tmp_path.glob("*.part"))


def test_without_locks_all_may_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuses(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks on this file system")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with Disk(tmp_path, 1 << 20).lock("k"), Disk(tmp_path, 1 << 20).lock("k"):
        pass


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.05)
    with Disk(tmp_path, 1 << 20).lock("k"), Disk(tmp_path, 1 << 20).lock("k"):
        pass


def test_what_is_no_file_is_a_miss(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.entry")
    assert Disk(tmp_path, 1 << 20).read("a") is None
    assert Disk(tmp_path / ("x" * 300), 1 << 20).read("a") is None


@pytest.mark.parametrize("how", ["deep", "fifo", "long name", "huge"])
def test_rates_that_can_not_be_read_are_not_used(tmp_path: Path, how: str) -> None:
    folder = tmp_path / ("x" * 300 if how == "long name" else "rates")
    if how != "long name":
        folder.mkdir()
    if how == "deep":
        (folder / "a.json").write_text("[" * 100_000)
    elif how == "fifo":
        os.mkfifo(folder / "a.json")
    elif how == "huge":
        text = next(SHIPPED.glob("*.json")).read_text()
        (folder / "a.json").write_text(re.sub(r'"value": [^,]*', f'"value": {10**400}', text))
    found, faults = calibrated(H200, folder)
    assert found is None and len(faults) == (how != "long name")
