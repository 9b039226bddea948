"""What has been made is found again, and made once by however many ask for it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from wsdsl.artifact import cache as module
from wsdsl.artifact.artifact import Choice, Names
from wsdsl.artifact.cache import forget, get_or_compute
from wsdsl.schedule import Schedule

ROOT = Path(__file__).parents[2]
MAKER = """
import os, sys, time
from wsdsl.artifact.artifact import Names
from wsdsl.artifact.cache import get_or_compute

def make():
    with open(sys.argv[1], "a") as file:
        file.write("made\\n")
    if len(sys.argv) > 2:
        print("making", flush=True)
        time.sleep(60)
    time.sleep(0.3)
    return Names(("made",))

assert get_or_compute("key", Names, make) == Names(("made",))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WSDSL_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


def never() -> Any:
    pytest.fail("it is made again")


def start(log: Path, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", MAKER, str(log), *more]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_processes_make_it_once(folder: Path, tmp_path: Path) -> None:
    running = [start(tmp_path / "log") for _ in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    assert (tmp_path / "log").read_text() == "made\n"
    assert get_or_compute("key", Names, never) == Names(("made",))
    assert [path.name for path in folder.iterdir()] == ["key.entry"]


def test_a_process_that_dies_holds_nobody_up(folder: Path, tmp_path: Path) -> None:
    process = start(tmp_path / "log", "slowly")
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    started = time.monotonic()
    assert get_or_compute("key", Names, lambda: Names(())) == Names(())
    assert time.monotonic() - started < 10
    forget()
    assert get_or_compute("key", Names, never) == Names(())


@pytest.mark.parametrize("on_disk", [True, False])
def test_threads_make_it_once(folder: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool) -> None:
    if not on_disk:
        monkeypatch.setenv("WSDSL_CACHE_DIR", "off")
    made: list[int] = []

    def make() -> Names:
        made.append(1)
        time.sleep(0.05)
        return Names(())

    threads = [threading.Thread(target=get_or_compute, args=("key", Names, make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and folder.exists() == on_disk


def test_what_fails_is_tried_again(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        get_or_compute("key", Names, lambda: 1 // 0)  # pyright: ignore[reportArgumentType]
    assert get_or_compute("key", Names, lambda: Names(("b",))) == Names(("b",))
    assert [path.name for path in folder.iterdir()] == ["key.entry"]


def test_a_damaged_entry_is_made_anew(folder: Path) -> None:
    get_or_compute("key", Names, lambda: Names(("a",)))
    path = folder / "key.entry"
    whole = path.read_bytes()
    for broken in (b"", whole[:-1], whole[:20], b"\0" * len(whole), b"x" + whole[1:]):
        forget()
        path.write_bytes(broken)
        assert get_or_compute("key", Names, lambda: Names(("a",))) == Names(("a",))
        assert path.read_bytes() == whole


def test_another_kind_under_the_key_is_made_anew(folder: Path) -> None:
    get_or_compute("key", Names, lambda: Names(()))
    assert get_or_compute("key", Choice, lambda: Choice(Schedule())) == Choice(Schedule())


def test_without_a_key_it_is_made_each_time(folder: Path) -> None:
    assert [get_or_compute(None, Names, lambda n=n: Names((n,))).names for n in "ab"] == [
        ("a",),
        ("b",),
    ]
    assert not folder.exists()


def test_dumps_are_made_each_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_or_compute("key", Names, lambda: Names(("a",)))
    monkeypatch.setenv("WSDSL_DUMP", str(tmp_path))
    assert get_or_compute("key", Names, lambda: Names(("b",))) == Names(("b",))


def test_a_process_holds_so_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES", 4)
    for i in range(9):
        get_or_compute(f"key{i}", Names, lambda: Names(()))
    assert len(module._process.values) == 4
    assert get_or_compute("key0", Names, never) == Names(())  # from disk


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def where() -> Any:
        found = module.disk()
        return found and (str(found.folder), found.limit >> 20)

    monkeypatch.delenv("WSDSL_CACHE_DIR")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert where() == ("/somewhere/wsdsl", 1024)
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert where() == ("/home/me/.cache/wsdsl", 1024)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WSDSL_CACHE_DIR", "here")
    monkeypatch.setenv("WSDSL_CACHE_MIB", "7")
    assert where() == (str(tmp_path / "here"), 7)
    monkeypatch.setenv("WSDSL_CACHE_DIR", "off")
    assert where() is None


def test_a_forked_process_waits_for_no_thread_of_its_parent(folder: Path) -> None:
    making, done = threading.Event(), threading.Event()

    def make() -> Names:
        making.set()
        done.wait(60)
        return Names(())

    thread = threading.Thread(target=get_or_compute, args=("key", Names, make))
    thread.start()
    making.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(60)
        with module._one_at_a_time("other"):
            os._exit(0 if not module._process.computing.get("key") else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert get_or_compute("key", Names, never) == Names(())
