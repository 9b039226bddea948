"""The contests without a GPU: what takes part, what is chosen, what is reported."""

import argparse
import os
import time
from types import SimpleNamespace

import pytest

from benchmarks import candidates, contest, gemm, measure, ours, race
from benchmarks.contest import QUICK, SMOKE, SWEPT, Bout, Contestant, Entrant, UnfitError, Variant
from benchmarks.field import names
from benchmarks.suites import GROUPS, KINDS, SUITES, contests, shape_from
from benchmarks.watchdog import Outcome, watched_all


def posed(shape=(4096, 4096, 4096), kind="bf16", swept=False):
    name = "x".join(map(str, shape))
    return SimpleNamespace(name=name, size=shape, kind=KINDS[kind], swept=swept)


# Suites and options


def test_every_suite_of_a_group_is_there_and_all_problems_can_be_blocked():
    assert {name for group in GROUPS.values() for name in group} <= set(SUITES)
    assert sum(len(SUITES[name]) for name in GROUPS["bf16"]) == 25
    for c in contests(["fp8"], []):
        assert c.shape[1] % 128 == c.shape[2] % 128 == 0


def test_sweeps_are_of_many_short_contests():
    found = contests(["sweep"], [])
    assert [c.shape[1] for c in found] == [192 * i for i in range(2, 42)] * 3
    assert {gemm.length_of(c, QUICK) for c in found} == {SWEPT}
    assert gemm.length_of(found[0], SMOKE) == SMOKE
    assert gemm.length_of(SUITES["square"][0], QUICK) == QUICK


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
    with pytest.raises(argparse.ArgumentTypeError, match="no shape"):
        shape_from("4096x1280")


# Our schedules


def test_the_widths_that_fill_the_last_wave_are_tried():
    assert candidates.widths((1024, 7296, 4096), 8, 1) == [224]  # 33 x 8 tiles: two waves
    assert candidates.widths((1024, 3648, 4096), 8, 1) == [232]  # 16 x 8 tiles: one wave
    assert candidates.widths((1024, 3648, 4096), 16, 1) == [240]
    assert ours.DEFAULT in candidates.candidates(posed(), [])
    assert candidates.candidates(posed(), ["tile.n=64"]) == [ours.DEFAULT, "tile.n=64"]


def test_every_listed_schedule_is_one():
    for shape in [(4096, 4096, 4096), (1024, 2112, 4096), (16, 28672, 8192), (256, 256, 65536)]:
        for kind in ("bf16", "fp8-tensor-fast"):
            problem = posed(shape, kind)
            for text in candidates.candidates(problem, []):
                candidates.schedule_of(problem, text)


def test_what_the_model_ranks_first_in_each_way_is_tried():
    from benchmarks.kernels import gemm as kernel

    problem = posed((1024, 2112, 16384), swept=True)
    found = candidates.candidates(problem, [])
    ways = {w: sum(w in text for text in found) for w in ("mode=p", "stream_k", "split_k")}
    # Nothing twice: one of them is the default.
    assert ways["mode=p"] in (3, 4) and ways["stream_k"] == 2 and len(found) >= 10
    sizes = candidates.sizes_of(problem)
    whole = [kernel.schedule(candidates.schedule_of(problem, t), **sizes) for t in found]
    assert len(set(whole)) == len(found)


def test_deep_shapes_are_cut_into_as_many_pieces_as_there_is_room_for():
    found = candidates.candidates(posed((128, 128, 131072)), [])
    assert any("tile.n=32 tile.k=128" in text and "splits=16" in text for text in found)
    for shape in SUITES["deep"]:
        for text in candidates.candidates(posed(shape.shape), []):
            schedule = candidates.schedule_of(posed(), text)
            if schedule is not None and schedule.splits:
                m, n, _ = shape.shape
                m, n = -(-m // schedule.tile["m"]), -(-n // schedule.tile["n"])
                assert 1 < schedule.splits <= candidates.MOST_SPLITS
                assert 66 < m * n * schedule.splits <= candidates.NUM_SMS


def test_sizes_with_the_same_schedule_share_a_kernel(monkeypatch):
    for name in ("_plans", "_compiled"):
        monkeypatch.setattr(ours, name, {})
    problems = [posed((1024, n, 1024)) for n in (512, 640)]
    text = "tile.m=128 tile.n=128 scheduler=persistent mode=cooperative"
    monkeypatch.setattr(ours, "candidates", lambda *_: [text])
    assert ours.warm(problems, []) == (1, 1)
    assert ours.compiled(problems[0], text) is ours.compiled(problems[1], text)
    assert "n=128" in ours.describe(problems[1], text)["schedule"]


def test_a_refused_schedule_is_reported_and_the_others_are_made():
    problem = posed((512, 512, 512))
    asked, made = ours.warm([problem], ["tile.q=3", "tile.m=128 tile.n=128 tile.k=64"])
    assert (asked, made) == (3, 2)
    with pytest.raises(UnfitError, match="names `q`"):
        ours.make(problem, "tile.q=3")
    assert callable(ours.make(problem, ours.DEFAULT))


# What goes into the contests


def entered(monkeypatch, times, errors, same_as="", sustained=None):
    """The row and the burst of a contestant whose variants take these times, with these errors."""
    sustained = sustained or {}

    class Burst:
        def __init__(self, said, call, sets, report, at_least):
            self.said, self.name, self.ran = said, call, 0
            if times[call] is None:
                raise ValueError("no such tile\nand more")

        def run(self, at_least):
            self.ran += 1
            longer = at_least == pytest.approx(SMOKE.longer_trial * 2 / 3)
            return sustained.get(self.name, times[self.name]) if longer else times[self.name]

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
    both = ("microseconds", "sustained_microseconds")
    assert row["variants"]["a"] == dict.fromkeys(both, pytest.approx(3.0))
    assert row["variants"]["b"]["failure"].startswith("wrong")
    assert row["variants"]["d"]["failure"] == "ValueError: no such tile"


def test_both_contests_count(monkeypatch):
    times = {"a": 3e-6} | {name: (1 + i / 10) * 1e-6 for i, name in enumerate("bcdefg")}
    longer = {"a": 0.1e-6, "b": 2e-6, "c": 1e-6, "g": 1e-9}
    row, _ = entered(monkeypatch, times, {"a": 0.5}, sustained=longer)
    # The first runs for longer too, however slow; the slowest in bursts do not.
    assert row["chosen"] == "c"
    ran = [n for n, held in row["variants"].items() if "sustained_microseconds" in held]
    assert ran == ["b", "c", "d", "e"]  # "a", the quickest in both, is wrong
    assert "sustained_microseconds" not in row["variants"]["g"]
    row, _ = entered(monkeypatch, times, {}, sustained=longer)
    assert row["chosen"] == "a"


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


def test_the_card_is_busy_when_a_round_begins():
    log = []

    def burst(name):
        def replay():
            log.append(name)
            return None, SimpleNamespace(synchronize=lambda: None)

        return SimpleNamespace(said=name, replay=replay, seconds=lambda events: 1.0)

    found = race.interleaved(lambda *_: None, {name: burst(name) for name in "abc"}, SMOKE)
    rounds = [log[i : i + 4] for i in range(0, len(log), 4)]
    assert all(first == last for first, *_, last in rounds)  # what is in front is not timed
    assert {tuple(sorted(timed)) for _, *timed in rounds} == {("a", "b", "c")}
    assert len({tuple(timed) for _, *timed in rounds}) > 1
    assert found == {name: [1.0] * SMOKE.rounds for name in "abc"}


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


def unfit(_):
    raise UnfitError("not this shape")


FIELD = [
    Contestant("torch", lambda _: [Variant("only", lambda: None)]),
    Contestant("other", unfit),
    Contestant("ours", lambda _: [Variant(n, lambda: None) for n in ("good", "bad")]),
]


def held_by(monkeypatch, in_child, count, **more):
    """The rows of so many bouts, by number."""
    found = {}
    monkeypatch.setattr(measure, "contest", in_child)
    bouts = [Bout(posed((i, 1, 1)), FIELD, SMOKE) for i in range(count)]
    contest.hold(bouts, found.__setitem__, say=lambda _: None, **more)
    return found


def test_a_run_goes_on_without_those_that_end_it(monkeypatch, tmp_path):
    log = tmp_path / "log"

    def in_child(report, problem, entrants, length):
        tried = [v.name for e in entrants for v in e.fit]
        with log.open("a") as file:
            file.write(f"{os.getpid()} {problem.name} {' '.join(tried)}\n")
        report("ours | bad | check")
        if "bad" in tried and not problem.name.startswith("0"):
            os._exit(1)
        return {e.name: {"correct": True} for e in entrants}

    found = held_by(monkeypatch, in_child, 5)
    assert list(found) == list(range(5))
    assert all(list(rows) == ["torch", "other", "ours"] for rows in found.values())
    assert all(rows["ours"] == {"correct": True} for rows in found.values())
    assert found[4]["other"] == {"correct": False, "failure": "not this shape"}
    lines = [line.split(" ", 2) for line in log.read_text().splitlines()]
    both, one = "only good bad", "only good"
    # After two ends it is not tried elsewhere, and the last child does all the rest.
    tried = [(name[0], which) for _, name, which in lines]
    assert tried == [
        ("0", both), ("1", both), ("1", one), ("2", both), ("2", one), ("3", one), ("4", one)
    ]  # fmt: skip
    assert len({pid for pid, *_ in lines}) == 3


def test_a_problem_that_ends_every_child_is_given_up(monkeypatch):
    def in_child(report, problem, entrants, length):
        report("operands")
        if problem.name.startswith("1"):
            raise MemoryError("no room")
        return {}

    found = held_by(monkeypatch, in_child, 3)
    assert list(found) == [0, 1, 2]
    assert "MemoryError: no room" in found[1]["torch"]["failure"]
    assert found[1]["other"]["failure"] == "not this shape"


def test_none_begins_when_there_is_no_time_left(monkeypatch):
    def in_child(report, problem, entrants, length):
        time.sleep(1.0)
        return {}

    assert list(held_by(monkeypatch, in_child, 3, until=time.monotonic() + 0.5)) == [0]


def test_a_default_that_fails_fails_the_run_but_not_one_that_is_not_lowered_yet():
    def of(**wsdsl):
        return {"contests": [{"rows": {"wsdsl": wsdsl}}]}

    assert gemm.passed(of(correct=True, interleaved={"ratio": 0.5}))
    assert gemm.passed(of(correct=False, failure="CompileError: f8e4m3 is not lowered yet"))
    assert not gemm.passed(of(correct=False, failure="stalled at: wsdsl"))
