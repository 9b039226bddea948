"""An explanation of a schedule: the text, and the predictions in it as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wsdsl.schedule import Schedule


class Explanation(str):
    """The text of `Kernel.explain`.

    schedule: the explained schedule
    microseconds: its predicted time
    units: fraction of that time (0 to 1) per hardware unit, largest first
    alternatives: other schedules with their predicted time in microseconds, fastest first
    """

    schedule: Schedule
    microseconds: float
    units: Mapping[str, float]
    alternatives: tuple[tuple[Schedule, float], ...]

    def __new__(
        cls,
        text: str,
        schedule: Schedule,
        microseconds: float,
        units: Mapping[str, float],
        alternatives: Iterable[tuple[Schedule, float]],
    ) -> Explanation:
        explanation = super().__new__(cls, text)
        explanation.schedule, explanation.microseconds = schedule, microseconds
        explanation.units = dict(sorted(units.items(), key=lambda unit: -unit[1]))
        explanation.alternatives = tuple(sorted(alternatives, key=lambda other: other[1]))
        return explanation

    @property
    def bottleneck(self) -> str:
        """The unit that limits the predicted time."""
        return next(iter(self.units))

    def with_lines(self, *lines: str) -> Explanation:
        """The explanation with more lines of text at its end."""
        values = self.schedule, self.microseconds, self.units, self.alternatives
        return Explanation("\n".join((self, *lines)), *values)

    def as_json(self) -> dict[str, Any]:
        others = [{"schedule": repr(s), "microseconds": time} for s, time in self.alternatives]
        return {
            "explanation": str(self),
            "microseconds": self.microseconds,
            "bottleneck": self.bottleneck,
            "units": self.units,
            "alternatives": others,
        }
