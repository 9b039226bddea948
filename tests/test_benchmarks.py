"""What the benchmarks rest on and needs no GPU: the watchdog, the options, the result files."""

import argparse
import json
import os
import time

import pytest

from benchmarks import device, gpu_tests, machine
from benchmarks.contest import SMOKE, Contestant, Entrant, Variant
from benchmarks.measure import enter
from benchmarks.watchdog import watched


def deadlocked(report):
    report("first", 1)
    report("waiting for ever")
    time.sleep(60)


def raising(report):
    report("dividing")
    return 1 / 0


def dying(report):
    report("dying")
    os._exit(3)


def test_a_child_that_stalls_is_killed_and_what_it_reported_is_kept():
    began = time.monotonic()
    outcome = watched(deadlocked, limit=0.5)
    assert time.monotonic() - began < 10
    assert (outcome.state, outcome.doing, outcome.results) == ("stalled", "waiting for ever", [1])


@pytest.mark.parametrize(
    ("work", "state", "detail"),
    [(raising, "raised", "ZeroDivisionError"), (dying, "died", "exit code 3")],
)
def test_a_child_that_fails_says_where(work, state, detail):
    outcome = watched(work)
    assert outcome.state == state
    assert detail in outcome.detail
    assert outcome.doing in str(outcome)


def test_gpu_tests_go_on_after_one_that_hangs(tmp_path):
    path = tmp_path / "test_some.py"
    path.write_text(
        "import time\n"
        "def test_a(): pass\n"
        "def test_b(): time.sleep(60)\n"
        "def test_c(): assert False\n"
    )
    result = gpu_tests.run([str(path), f"--rootdir={tmp_path}"], say=lambda _: None, limit=5)
    by_name = {row["test"].rpartition("::")[2]: row["outcome"] for row in result["tests"]}
    assert by_name == {"test_a": "passed", "test_b": "hung", "test_c": "failed"}
    assert not gpu_tests.passed(result)


def test_parts_of_the_gpu_tests_are_all_of_them_once(tmp_path):
    path = tmp_path / "test_some.py"
    path.write_text("".join(f"def test_{name}(): pass\n" for name in "abcde"))
    ran = [
        row["test"].rpartition("::")[2]
        for part in range(2)
        for row in gpu_tests.run(
            [str(path), f"--rootdir={tmp_path}"], say=lambda _: None, part=part, parts=2
        )["tests"]
    ]
    assert ran == ["test_a", "test_c", "test_e", "test_b", "test_d"]


def test_operands_that_can_not_be_laid_out_are_that_contestants_failure():
    def laid_out(*operands):
        raise ValueError("no compiler")

    contestant = Contestant("peer", lambda _: [], lay_out=laid_out)
    entrant = Entrant(contestant, [Variant("only", lambda: print)])
    row, burst = enter(lambda *_: None, None, entrant, [(1, 2)], None, SMOKE)
    assert row == {"correct": False, "failure": "laying out: ValueError: no compiler"}
    assert burst is None


@pytest.mark.parametrize("text", ["4", "4/4", "-1/2", "a/b", "1/"])
def test_a_part_that_is_none(text):
    assert device.part_from("3/4") == (3, 4)
    with pytest.raises(argparse.ArgumentTypeError, match="expected I/N"):
        device.part_from(text)


def test_a_result_file_says_how_it_came_about(tmp_path):
    path = machine.write("something", {"seconds": 1.5}, tmp_path)
    told = json.loads(path.read_text())
    assert told["result"] == {"seconds": 1.5}
    assert {"gpu", "cpu", "versions", "date", "command"} <= set(told)
    assert {"python", "ptxas", "llvmlite"} <= set(told["versions"])


def test_a_result_file_does_not_say_where_things_lie(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["gemm.py", "--quick", "--out", "/somewhere", "--out=/there"])
    said = f"CompileError: {machine.ROOT}benchmarks/kernels.py:33:20: no"
    text = machine.write("something", {"failure": said}, tmp_path).read_text()
    assert json.loads(text)["command"] == "python -m benchmarks.gemm --quick"
    assert json.loads(text)["result"]["failure"] == "CompileError: benchmarks/kernels.py:33:20: no"
