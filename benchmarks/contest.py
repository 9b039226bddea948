"""The protocol: who is correct, and who is quicker, in two contests.

A large product is limited by power: after a pause a card runs faster than it can keep up. So there
are two contests, and a kernel can win one and lose the other. Both are always measured.

- *interleaved*: bursts of a few milliseconds of each contestant in shuffled order, at least 20
  rounds; the figure is the median of the per-round ratios to the first contestant.
- *sustained*: 0.2 s of warm-up, then at least 0.3 s timed, contestants in turn, median of 4.

Every contestant runs as a CUDA graph of several calls, so that host cost stays out, over as many
sets of operands as exceed the L2 cache; the data is random normal (zeros draw less power). Before,
each one's output is poisoned with NaN between guard bytes and compared with float64. Each step runs
in a child process under a watchdog: a kernel that deadlocks is reported, and costs 20 s.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.watchdog import Report, watched

if TYPE_CHECKING:
    import torch

GUARD_ELEMENTS = 1 << 16
ROTATION_BYTES = 160_000_000
"""Operands and outputs of all sets together: well over the 60 MB of L2."""
BURST_SECONDS = 3e-3

Call = Callable[..., Any]
"""`call(*operands, out)` starts one run on torch's current stream."""


@dataclass(frozen=True)
class Problem:
    """What everybody solves: operands by seed, shape of the output, the exact result."""

    name: str
    operands: Callable[[int], tuple[torch.Tensor, ...]]
    shape: tuple[int, ...]
    dtype: torch.dtype
    reference: Callable[..., torch.Tensor]
    flop: float
    bytes: int
    tolerance: float

    @property
    def num_sets(self) -> int:
        return min(64, math.ceil(ROTATION_BYTES / self.bytes)) if self.bytes < ROTATION_BYTES else 1


@dataclass(frozen=True)
class Contestant:
    """`make(problem)` compiles or tunes for a problem and returns what is then measured."""

    name: str
    make: Callable[[Problem], Call]


@dataclass(frozen=True)
class Length:
    """How long the contests are."""

    rounds: int = 24
    warm_up: float = 0.2
    timed: float = 0.35
    blocks: int = 5
    repeats: int = 12


QUICK = Length(rounds=20, warm_up=0.2, timed=0.3, blocks=4, repeats=4)


def hold(
    problems: Sequence[Problem],
    contestants: Sequence[Contestant],
    length: Length,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """All problems, one after the other; the first contestant is the one to compare with."""
    return {p.name: hold_one(p, contestants, length, say) for p in problems}


def hold_one(
    problem: Problem,
    contestants: Sequence[Contestant],
    length: Length,
    say: Callable[[str], None],
) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    fit: list[Contestant] = []
    for c in contestants:
        outcome = watched(check, problem, c, length.repeats)
        if outcome.ok:
            rows[c.name] = outcome.value
            if outcome.value["correct"]:
                fit.append(c)
        else:
            rows[c.name] = {"correct": False, "failure": str(outcome), "detail": outcome.detail}
        if not rows[c.name]["correct"]:
            say(f"{problem.name}  {c.name}: {rows[c.name]}")
    while fit:
        outcome = watched(race, problem, fit, length)
        if outcome.ok:
            for name, figures in outcome.value.items():
                rows[name] |= figures
            break
        # The one at fault is out, the others run again.
        culprit = next((c for c in fit if outcome.doing.startswith(f"{c.name}:")), fit[0])
        say(f"{problem.name}  {culprit.name}: {outcome}")
        rows[culprit.name] |= {"failure": str(outcome), "detail": outcome.detail}
        fit.remove(culprit)
    for name, row in rows.items():
        say(f"{problem.name:>20}  {name:<24} {line(row)}")
    return rows


def line(row: dict[str, Any]) -> str:
    if "interleaved" not in row:
        return row.get("failure") or f"wrong: {row}"
    shown = [
        f"{contest} {row[contest]['ratio']:.3f} ({row[contest]['tflops']:.0f} TFLOP/s)"
        for contest in ("interleaved", "sustained")
    ]
    return f"{'  '.join(shown)}  error {row['error']:.2g}"


# ---- in the child


def guarded(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """A poisoned buffer, and the output that lies in its middle."""
    import torch

    n = math.prod(problem.shape)
    whole = torch.full((n + 2 * GUARD_ELEMENTS,), float("nan"), dtype=problem.dtype, device="cuda")
    return whole, whole[GUARD_ELEMENTS : GUARD_ELEMENTS + n].view(problem.shape)


def check(report: Report, problem: Problem, contestant: Contestant, repeats: int) -> dict[str, Any]:
    """Right, everywhere written, nothing else touched, and the same each time."""
    import torch

    report(f"{contestant.name}: set up")
    operands = problem.operands(1)
    exact = problem.reference(*operands)
    torch.cuda.synchronize()
    report(f"{contestant.name}: compile")
    call = contestant.make(problem)
    whole, out = guarded(problem)
    report(f"{contestant.name}: first run")
    call(*operands, out)
    torch.cuda.synchronize()
    first = out.clone()
    norm = exact.norm().item()
    error = (out.double() - exact).norm().item() / norm if norm else out.double().norm().item()
    differing = 0
    for repeat in range(repeats):
        report(f"{contestant.name}: repeat {repeat}")
        out.fill_(float("nan"))
        call(*operands, out)
        differing += not torch.equal(out, first)
    guards = torch.cat([whole[:GUARD_ELEMENTS], whole[-GUARD_ELEMENTS:]])
    untouched = bool(guards.isnan().all().item())
    return {
        "correct": error <= problem.tolerance and untouched and not differing,
        "error": error,
        "guards_untouched": untouched,
        "repeats_differing": differing,
    }


def race(
    report: Report, problem: Problem, contestants: Sequence[Contestant], length: Length
) -> dict[str, dict[str, Any]]:
    import torch

    report(f"{contestants[0].name}: set up")
    sets = []
    for seed in range(problem.num_sets):
        out = torch.empty(problem.shape, dtype=problem.dtype, device="cuda")
        sets.append((*problem.operands(seed), out))
    torch.cuda.synchronize()
    graphs: dict[str, Burst] = {}
    for c in contestants:
        report(f"{c.name}: compile")
        graphs[c.name] = Burst(c.name, c.make(problem), sets, report)
    names = list(graphs)
    together = interleaved(names, graphs, length, report)
    alone = sustained(names, graphs, length, report)
    base = names[0]
    return {
        name: {
            "against": base,
            "interleaved": figures(
                problem, together[name], [b / t for b, t in zip(together[base], together[name])]
            ),
            "sustained": figures(
                problem,
                alone[name],
                [statistics.median(alone[base]) / statistics.median(alone[name])],
            ),
        }
        for name in names
    }


class Burst:
    """A CUDA graph of some milliseconds of calls over all sets; `seconds` is one call's time."""

    def __init__(self, name: str, call: Call, sets: list[Any], report: Report) -> None:
        import torch

        self.name = name
        report(f"{name}: warm up")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for operands in sets:
                call(*operands)
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for operands in sets:
                call(*operands)
            stop.record()
            stream.synchronize()
            estimate = start.elapsed_time(stop) / 1e3 / len(sets)
        laps = max(1, round(BURST_SECONDS / (estimate * len(sets))))
        self.num_calls = max(2, laps * len(sets))
        report(f"{name}: capture {self.num_calls} calls")
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for i in range(self.num_calls):
                call(*sets[i % len(sets)])
        torch.cuda.synchronize()
        self.graph.replay()
        torch.cuda.synchronize()

    def replay(self, times: int = 1) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        import torch

        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            self.graph.replay()
        stop.record()
        return start, stop

    def seconds(self, events: tuple[Any, Any], times: int = 1) -> float:
        return events[0].elapsed_time(events[1]) / 1e3 / (times * self.num_calls)


def interleaved(
    names: list[str], graphs: dict[str, Burst], length: Length, report: Report
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-3, length.rounds):  # three rounds to warm up
        order = names[:]
        random.Random(turn).shuffle(order)
        events = {name: graphs[name].replay() for name in order}
        for name in order:
            report(f"{name}: interleaved round {turn}")
            events[name][1].synchronize()
        if turn >= 0:
            for name in names:
                found[name].append(graphs[name].seconds(events[name]))
    return found


def sustained(
    names: list[str], graphs: dict[str, Burst], length: Length, report: Report
) -> dict[str, list[float]]:
    import torch

    found: dict[str, list[float]] = {name: [] for name in names}
    for block in range(length.blocks):
        order = names[:]
        random.Random(block).shuffle(order)
        for name in order:
            report(f"{name}: sustained block {block}")
            burst = graphs[name]
            one = burst.replay()
            torch.cuda.synchronize()
            each = max(1e-6, burst.seconds(one) * burst.num_calls)
            burst.replay(math.ceil(length.warm_up / each))
            # Bursts run faster than the sustained clock, so this is never too short.
            times = math.ceil(length.timed / each)
            events = burst.replay(times)
            torch.cuda.synchronize()
            found[name].append(burst.seconds(events, times))
    return found


def figures(problem: Problem, seconds: list[float], ratios: list[float]) -> dict[str, float]:
    middle = statistics.median(seconds)
    return {
        "ratio": statistics.median(ratios),
        "tflops": problem.flop / middle / 1e12,
        "microseconds": middle * 1e6,
        "fastest_microseconds": min(seconds) * 1e6,
        "slowest_microseconds": max(seconds) * 1e6,
    }
