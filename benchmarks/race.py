"""The two contests among the chosen: interleaved bursts, and sustained."""

from __future__ import annotations

import random
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.burst import Burst
    from benchmarks.contest import Length
    from benchmarks.problems import Problem
    from benchmarks.watchdog import Report

Row = dict[str, Any]


def race(
    report: Report, problem: Problem, bursts: dict[str, Burst], length: Length
) -> dict[str, Row]:
    if not bursts:
        return {}
    together = interleaved(report, bursts, length)
    alone = sustained(report, bursts, length)
    base = next(iter(bursts))
    middle = {name: statistics.median(found) for name, found in alone.items()}
    return {
        name: {
            "against": base,
            "interleaved": figures(
                problem,
                together[name],
                statistics.median(b / t for b, t in zip(together[base], together[name])),
            ),
            "sustained": figures(problem, alone[name], middle[base] / middle[name]),
        }
        for name in bursts
    }


def interleaved(report: Report, bursts: dict[str, Burst], length: Length) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in bursts}
    for turn in range(-3, length.rounds):  # three rounds to warm up
        order = list(bursts)
        random.Random(turn).shuffle(order)
        # The card is busy when the first is asked for: to start a graph takes as long as it has
        # calls, 0.3 ms, and who comes first would wait for that.
        bursts[order[-1]].replay()
        events = {name: bursts[name].replay() for name in order}
        for name in order:
            report(bursts[name].said + f"interleaved round {turn}")
            events[name][1].synchronize()
        if turn >= 0:
            for name, burst in bursts.items():
                found[name].append(burst.seconds(events[name]))
    return found


def sustained(report: Report, bursts: dict[str, Burst], length: Length) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in bursts}
    for block in range(length.blocks):
        order = list(bursts)
        random.Random(block).shuffle(order)
        for name in order:
            report(bursts[name].said + f"sustained block {block}")
            bursts[name].run(length.warm_up)
            found[name].append(bursts[name].run(length.timed))
    return found


def figures(problem: Problem, seconds: list[float], ratio: float) -> dict[str, float]:
    middle = statistics.median(seconds)
    return {
        "ratio": ratio,
        "tflops": problem.flop / middle / 1e12,
        "microseconds": middle * 1e6,
        "fastest_microseconds": min(seconds) * 1e6,
        "slowest_microseconds": max(seconds) * 1e6,
    }
