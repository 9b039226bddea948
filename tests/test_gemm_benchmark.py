"""The contests without a GPU: what takes part, what is chosen, what is reported."""

import argparse
import json
from types import SimpleNamespace

import pytest

from benchmarks import contest, gemm, measure, ours, plot, report, results
from benchmarks.contest import SMOKE, Contestant, Entrant, Length, UnfitError, Variant
from benchmarks.field import names
from benchmarks.suites import GROUPS, KINDS, SUITES, Contest, contests, shape_from
from benchmarks.watchdog import Outcome, watched_all


def posed(shape=(4096, 4096, 4096), kind="bf16"):
    return SimpleNamespace(name="x".join(map(str, shape)), size=shape, kind=KINDS[kind])


def row(interleaved, sustained, run=0, **more):
    figures = {
        "interleaved": {"ratio": interleaved, "tflops": 700 * interleaved},
        "sustained": {"ratio": sustained, "tflops": 600 * sustained},
    }
    return {"correct": True, "error": 0.0017, "run": run, **figures, **more}


def held(suite, shape, **rows):
    found = {"torch": row(1.0, 1.0), **{n.replace("_", " "): r for n, r in rows.items()}}
    return {"suite": suite, "kind": "bf16", "shape": shape, "rows": found}


def result():
    refused = {"correct": False, "failure": "UnfitError: no", "run": 0}
    run = {"gpu": {"name": "H200"}, "versions": {"torch": "2.11"}, "date": "now", "command": "go"}
    return {
        "runs": [run],
        "contests": [
            held("square", "4096x4096x4096", wsdsl=row(1.04, 0.96), wsdsl_best=row(1.08, 1.05)),
            held("square", "8192x8192x8192", wsdsl=row(1.05, 1.05), quack=row(1.07, 1.02)),
            held("deep", "256x256x65536", wsdsl=row(0.5, 0.5), triton=refused),
        ],
    }


# Suites and options


def test_shapes():
    assert shape_from("4096x1280x8192") == (4096, 1280, 8192)
    with pytest.raises(argparse.ArgumentTypeError, match="no shape"):
        shape_from("4096x1280")


def test_every_suite_of_a_group_is_there_and_all_problems_can_be_blocked():
    assert {name for group in GROUPS.values() for name in group} <= set(SUITES)
    assert sum(len(SUITES[name]) for name in GROUPS["bf16"]) == 23
    for c in contests(["fp8"], []):
        assert c.shape[1] % 128 == c.shape[2] % 128 == 0


def test_suites_come_once_and_single_shapes_last():
    found = contests(["waves", "bf16", "waves"], [(64, 64, 64)], "fp8-row")
    assert len(found) == len({str(c) for c in found})
    assert (found[-1].suite, found[-1].kind.scaling) == ("shapes", "row")
    assert contests([], []) == SUITES["default"]


def test_torch_always_takes_part():
    assert names(["quack,wsdsl", "triton"]) == ["torch", "quack", "wsdsl", "triton"]
    with pytest.raises(ValueError, match="no contestant 'cublas'"):
        names(["cublas"])


def test_options_pass_through():
    parser = argparse.ArgumentParser()
    gemm.add_options(parser)
    options = parser.parse_args(
        ["--suite", "bf16", "--shape", "64x64x64", "--contestant", "quack", "--minutes", "2"]
    )
    assert (options.suite, options.shape, options.minutes) == (["bf16"], [(64, 64, 64)], 2.0)


# Our schedules


def test_the_widths_that_fill_the_last_wave_are_tried():
    assert ours.widths((1024, 7296, 4096), 1) == [224]  # 33 x 8 tiles: two waves
    assert ours.DEFAULT in ours.candidates(posed(), [])
    assert ours.candidates(posed(), ["tile.n=64"]) == [ours.DEFAULT, "tile.n=64"]


def test_every_listed_schedule_is_one():
    for shape in [(4096, 4096, 4096), (1024, 2112, 4096), (16, 28672, 8192), (256, 256, 65536)]:
        for kind in ("bf16", "fp8-tensor-fast"):
            problem = posed(shape, kind)
            for text in ours.candidates(problem, []):
                ours.schedule_of(problem, text)


def test_a_refused_schedule_is_reported_and_the_others_are_made():
    problem = posed((512, 512, 512))
    asked, made = ours.warm([problem], ["tile.q=3", "tile.m=128 tile.n=128 tile.k=64"])
    assert (asked, made) == (3, 2)
    with pytest.raises(UnfitError, match="names `q`"):
        ours.make(problem, "tile.q=3")
    assert callable(ours.make(problem, ours.DEFAULT))


# What goes into the contests


def entered(monkeypatch, times, errors, same_as=""):
    """The row and the burst of a contestant whose variants take these times, with these errors."""

    class Burst:
        def __init__(self, said, call, sets, report):
            self.said, self.name, self.ran = said, call, 0
            if times[call] is None:
                raise ValueError("no such tile\nand more")

        def run(self, at_least):
            self.ran += 1
            return times[self.name]

    def check(report, problem, said, call, operands, exact, repeats):
        return {"correct": True, "error": errors.get(call, 0.0)}

    monkeypatch.setattr(measure, "Burst", Burst)
    monkeypatch.setattr(measure, "check", check)
    monkeypatch.setattr(measure, "settle", lambda: None)
    variants = [Variant(n, lambda n=n: n, same_as if n == "a" else "") for n in times]
    problem = SimpleNamespace(tolerance=0.01)
    entrant = Entrant(Contestant("x", lambda _: []), variants)
    return measure.enter(lambda *_: None, problem, entrant, [("A", "B", "out")], None, SMOKE)


def test_the_quickest_variant_that_is_correct_goes_in(monkeypatch):
    times = {"a": 3e-6, "b": 1e-6, "c": 2e-6, "d": None}
    row, burst = entered(monkeypatch, times, {"b": 0.5})
    assert (row["chosen"], row["correct"], burst.name) == ("c", True, "c")
    assert row["variants"]["a"] == {"microseconds": pytest.approx(3.0)}
    assert row["variants"]["b"]["failure"].startswith("wrong")
    assert row["variants"]["d"]["failure"] == "ValueError: no such tile"


def test_a_contestant_without_a_correct_variant_says_why(monkeypatch):
    row, burst = entered(monkeypatch, {"a": None}, {})
    assert (row["failure"], burst) == ("ValueError: no such tile", None)
    row, burst = entered(monkeypatch, {"a": 1e-6}, {"a": 0.5})
    assert row["failure"].startswith("wrong")
    assert (row["correct"], burst) == (False, None)


def test_a_single_variant_needs_no_trial(monkeypatch):
    row, burst = entered(monkeypatch, {"a": 1e-6}, {}, same_as="wsdsl")
    assert (row["same_as"], burst.ran) == ("wsdsl", 0)
    assert "variants" not in row


# The field, and its failures


def test_all_ahead_in_parallel():
    works = [lambda report, i=i: report("at work") or i for i in range(5)]
    works.append(lambda report: 1 / 0)
    outcomes = watched_all(works, workers=3)
    assert [o.value for o in outcomes[:5]] == list(range(5))
    assert "ZeroDivisionError" in str(outcomes[5])


def test_the_variant_at_fault_is_left_out():
    c = Contestant("quack", lambda _: [])
    entrant = Entrant(c, [Variant("128x256", lambda: None), Variant("64x64", lambda: None)])
    outcome = Outcome("stalled", "quack | 64x64 | first run")
    assert contest.exclude([entrant], outcome) == ("quack", "64x64")
    assert [v.name for v in entrant.fit] == ["128x256"]
    assert contest.exclude([entrant], outcome) is None
    assert contest.exclude([entrant], Outcome("died", "operands")) is None


def test_a_run_goes_on_without_those_that_end_it(monkeypatch):
    attempts = []

    def in_child(work, problem, entrants, length):
        attempts.append([v.name for e in entrants for v in e.fit])
        if "bad" in attempts[-1]:
            return Outcome("stalled", "ours | bad | check")
        return Outcome("done", value={e.name: {"correct": True} for e in entrants})

    def unfit(_):
        raise UnfitError("not this shape")

    monkeypatch.setattr(contest, "watched", in_child)
    field = [
        Contestant("torch", lambda _: [Variant("only", lambda: None)]),
        Contestant("other", unfit),
        Contestant("ours", lambda _: [Variant(n, lambda: None) for n in ("good", "bad")]),
    ]
    ends = {}
    for _ in range(3):
        rows = contest.hold(posed(), field, Length(), ends, say=lambda _: None)
    assert attempts == [["only", "good", "bad"], ["only", "good"]] * 2 + [["only", "good"]]
    assert len(ends["ours", "bad"]) == contest.MAX_ENDS
    assert list(rows) == ["torch", "other", "ours"]
    assert rows["other"] == {"correct": False, "failure": "not this shape"}


def test_a_default_that_fails_fails_the_run_but_not_one_that_is_not_lowered_yet():
    def of(**wsdsl):
        return {"contests": [{"rows": {"wsdsl": wsdsl}}]}

    assert gemm.passed({"contests": [held("a", "1x1x1", wsdsl=row(0.5, 0.5))]})
    assert gemm.passed(of(correct=False, failure="CompileError: f8e4m3 is not lowered yet"))
    assert not gemm.passed(of(correct=False, failure="stalled at: wsdsl"))


# Results


def test_a_run_is_read_and_two_are_merged(tmp_path):
    for i, rows in enumerate(({"wsdsl": row(1.0, 1.0)}, {"pallas": row(0.9, 0.9)})):
        told = {"gpu": {}, "versions": {}, "date": str(i), "command": "go"}
        (tmp_path / f"{i}.json").write_text(
            json.dumps(told | {"result": {"contests": [held("square", "1x1x1", **rows)]}})
        )
    merged = results.merge([results.load(tmp_path / f"{i}.json") for i in range(2)])
    assert [run["date"] for run in merged["runs"]] == ["0", "1"]
    rows = merged["contests"][0]["rows"]
    assert {name: r["run"] for name, r in rows.items()} == {"torch": 1, "wsdsl": 0, "pallas": 1}
    assert results.ratio_between(rows, "wsdsl", "pallas", "sustained") is None
    assert results.ratio_between(rows, "pallas", "torch", "sustained") == pytest.approx(0.9)


def test_the_report_marks_what_misses_its_target():
    text = report.report(result())
    assert "1.040 · **0.960** ✗" in text
    assert "1.080 · 1.050" in text
    assert "| wsdsl ÷ cuBLAS |" in text
    assert "mean ≥ 1.03, least ≥ 0.97" in text
    assert "triton: UnfitError: no (deep 256x256x65536)" in text
    assert text.count("### ") == 4  # two suites, all shapes, not measured


def test_the_plot_has_every_shape(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "gemm.svg"
    plot.draw(result(), path)
    text = path.read_text()
    assert "8192×8192×8192" in text
    assert "wsdsl best" in text


def test_a_contest_says_what_it_is():
    assert str(Contest("square", KINDS["bf16"], (1, 2, 3))) == "square 1x2x3"
