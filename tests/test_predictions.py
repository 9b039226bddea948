"""The model of schedules against what was measured: the results that are kept with the project."""

import math
import statistics
from collections import defaultdict
from pathlib import Path

from benchmarks import predictions

RESULTS = Path(predictions.__file__).parent / "results" / "predictions_h100.json"
EACH = 5


def figures() -> list[tuple[float, float, float, float]]:
    """Of each fifth kernel, of all families that were measured."""
    held = predictions.read(RESULTS)
    rows = defaultdict(list)
    for row in held["rows"]:
        rows[row["case"]].append(row)
    found = []
    measured = [case for case in predictions.posed(**held["cases"]) if rows[case.name]]
    for case in measured[::EACH]:
        own = rows[case.name]
        us = [one.microseconds for one in predictions.predicted(case, own, held["gpu"])]
        found.append(predictions.figures([row["us"] for row in own], us))
    return found


def test_predictions_are_near_what_was_measured() -> None:
    found = figures()
    assert statistics.mean(error < math.log(1.15) for error, *_ in found) > 0.7
    ranks = [rank for *_, rank, _ in found if not math.isnan(rank)]
    assert statistics.mean(ranks) > 0.7
    slower = [math.log(loss) for *_, loss in found]
    assert statistics.mean(slower) < 0.06


def test_figures() -> None:
    """Of four schedules: the first is off by half, two are near, the second is said to be best."""
    error, near, rank, loss = predictions.figures([10.0, 8.0, 20.0, 40.0], [15.0, 8.5, 19.0, 90.0])
    assert (error, near, rank, loss) == (math.log(1.5), 0.5, 1.0, 1.0)
    assert predictions.ranks([3.0, 1.0, 1.0]) == [2.0, 0.5, 0.5]
