"""What was measured of one kernel and size, a line each, so that a run that was cut short goes on
where it was.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wsdsl.records.entry import parse_schedule
from wsdsl.schedule import Schedule
from wsdsl.tune.result import Trial

KEPT = ("bursts", "ratio", "error", "samples", "failure")


class KeptTrials:
    """`about` says what the file is of: kernel, sizes, card, version of the compiler. A file of
    another is put aside.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.trials = path, dict[Schedule, Trial]()
        self.tuned: dict[str, Any] = {}
        text = path.read_text() if path.exists() else ""
        held = text.splitlines()
        if held and json.loads(held[0]) != about:
            os.replace(path, path.with_suffix(".old"))
            held = []
        if not held:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(about)
        elif not text.endswith("\n"):
            path.write_text(text + "\n")
        for line in held[1:]:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # The last one, of a run that was killed.
            if "tuned" in row:
                self.tuned = row["tuned"]
            else:
                schedule = parse_schedule(row.pop("schedule"))
                self.trials[schedule] = Trial(schedule, **row)

    def add(self, trial: Trial) -> None:
        self.trials[trial.schedule] = trial
        row = {name: value for name, value in asdict(trial).items() if name in KEPT}
        self._write({"schedule": repr(trial.schedule), **row})

    def add_tuned(self, tuned: dict[str, Any]) -> None:
        self.tuned = tuned
        self._write({"tuned": tuned})

    def best(self, most: int) -> list[Trial]:
        held = [t for t in self.trials.values() if t.samples and not t.failure]
        return sorted(held, key=lambda t: t.ratio)[:most]

    def _write(self, row: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
