"""tests/gpu under the watchdog: a test whose kernel deadlocks is killed, the others still run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.watchdog import Report, watched

FOLDER = Path(__file__).parents[1] / "tests" / "gpu"


class Progress:
    """A pytest plugin that reports each test as it begins and ends, and keeps every nth of them."""

    def __init__(self, report: Report, part: int = 0, parts: int = 1) -> None:
        self.report = report
        self.part, self.parts = part, parts

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = items[self.part :: self.parts]

    def pytest_collection_finish(self, session: Any) -> None:
        self.report("collected")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.report(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            row = {"test": report.nodeid, "outcome": report.outcome}
            if report.failed:
                row["detail"] = report.longreprtext[-4000:]
            self.report(report.nodeid, row)


def session(report: Report, arguments: list[str], part: int = 0, parts: int = 1) -> int:
    options = ["-q", "--no-header", "-p", "no:cacheprovider", *arguments]
    return int(pytest.main(options, [Progress(report, part, parts)]))


def run(
    arguments: list[str] | None = None,
    say: Callable[[str], None] = print,
    limit: float = 20.0,
    part: int = 0,
    parts: int = 1,
) -> dict[str, Any]:
    """Every test's outcome; "hung" for those that the watchdog ended.

    `part` of `parts` takes each test whose place in the list is `part` modulo `parts`.
    """
    chosen = arguments or [str(FOLDER)]
    rows: dict[str, dict[str, Any]] = {}
    while True:
        skip = [f"--deselect={name}" for name in rows]
        outcome = watched(session, [*chosen, *skip], part, parts, limit=limit)
        rows |= {row["test"]: row for row in outcome.results}
        if outcome.ok:
            break
        if "::" not in outcome.doing or rows.get(outcome.doing, {}).get("outcome") == "hung":
            rows["session"] = {"test": "session", "outcome": "failed", "detail": str(outcome)}
            break
        say(f"{outcome}")
        rows[outcome.doing] = {"test": outcome.doing, "outcome": "hung", "detail": str(outcome)}
    counted = dict.fromkeys(("passed", "failed", "hung", "skipped"), 0)
    for row in rows.values():
        counted[row["outcome"]] += 1
    say(", ".join(f"{n} {kind}" for kind, n in counted.items()))
    return {"counts": counted, "tests": list(rows.values())}


def passed(result: dict[str, Any]) -> bool:
    counts = result["counts"]
    return counts["failed"] == counts["hung"] == 0 and counts["passed"] > 0
