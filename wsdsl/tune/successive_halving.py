"""Successive halving: measure all schedules briefly against the incumbent, the better half for
longer, and so on; measure the finalists for long enough that the GPU's power limit counts.
"""

import math
import statistics
from collections.abc import Callable, Sequence

from wsdsl.tune.measuring_process import MeasuringProcess
from wsdsl.tune.result import Trial

FIRST_ROUNDS, LAST_ROUNDS = 3, 24
SECOND = 8
"""Number of schedules in the second round."""
FINALISTS = 4
"""Several, since a schedule may win short bursts and draw too much power."""
NOISE = 0.003
"""Relative difference of two measurements of one kernel in one run."""
SUSTAINED_SECONDS = 6.0

OnTrial = Callable[[Trial], None]
"""Called after each measurement."""


class SuccessiveHalving:
    """A tournament of schedules. `now` returns the time in seconds; measurements end at `until`."""

    def __init__(
        self,
        process: MeasuringProcess,
        incumbent: Trial,
        on_trial: OnTrial,
        now: Callable[[], float],
        until: float,
    ) -> None:
        self._process, self._on_trial, self._now, self.until = process, on_trial, now, until
        self.incumbent = incumbent
        self.begin = now()

    @property
    def reserve(self) -> float:
        """Seconds that the last rounds take."""
        return min(16.0, 0.3 * (self.until - self.begin))

    def has_time(self) -> bool:
        return self._now() < self.until - self.reserve

    def try_out(self, trial: Trial, entry: bytes) -> None:
        """Measure a candidate briefly. The process reports a failure to its `failed`."""
        if self._process.enter(name_of(trial), entry):
            self._measure([trial], FIRST_ROUNDS)

    def finish(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the winner of the candidates, or None."""
        alive = best_of(trials, SECOND)
        self._leave(trials, alive)
        rounds = 2 * FIRST_ROUNDS
        while len(alive) > FINALISTS and self._now() < self.until:
            self._measure(alive, rounds)
            alive = best_of(alive, max(FINALISTS, len(alive) // 2))
            rounds *= 2
        self._measure(alive, LAST_ROUNDS)
        alive = [t for t in best_of(alive, FINALISTS) if beats(t.ratio, t.error)]
        self._run_long(alive)
        for trial in sorted(alive, key=lambda t: t.both):
            good = trial.sustained and trial.sustained_ratio <= 1 + NOISE and not trial.failure
            if good and self._process.check(name_of(trial)):
                return trial
        return None

    def _measure(self, trials: Sequence[Trial], rounds: int) -> None:
        if not trials:
            return
        names = [name_of(self.incumbent), *map(name_of, trials)]
        times = self._process.bursts(names, rounds)
        base = times[names[0]]
        for trial in (self.incumbent, *trials):
            if (own := times.get(name_of(trial))) is not None:
                ratios = [t / b for t, b in zip(own, base, strict=True)]
                trial.bursts, trial.ratio = statistics.median(own), statistics.median(ratios)
                trial.spread, trial.samples = spread_of(own), len(own)
                trial.error = spread_of(ratios) * trial.ratio * 1.86 / math.sqrt(len(ratios))
                self._on_trial(trial)

    def _run_long(self, trials: Sequence[Trial]) -> None:
        if not trials:
            return
        names = [name_of(self.incumbent), *map(name_of, trials)]
        share = min(1.0, max(0.02, self.reserve / 16.0))
        times = self._process.sustained(names, SUSTAINED_SECONDS * share * len(names) / 3)
        for trial in (self.incumbent, *trials):
            if (own := times.get(name_of(trial))) is not None:
                trial.sustained, trial.sustained_ratio = own, own / times[names[0]]
                self._on_trial(trial)

    def _leave(self, trials: Sequence[Trial], alive: Sequence[Trial]) -> None:
        alive_ids = {id(t) for t in alive}
        self._process.leave([name_of(t) for t in trials if id(t) not in alive_ids])


def name_of(trial: Trial) -> str:
    return repr(trial.schedule)


def best_of(trials: Sequence[Trial], most: int) -> list[Trial]:
    measured = [t for t in trials if t.samples and not t.failure]
    return sorted(measured, key=lambda t: t.ratio)[:most]


def beats(ratio: float, error: float) -> bool:
    """Check whether a ratio is faster beyond noise; `error`: standard error of its median."""
    return ratio < 1 - max(NOISE, 2 * error)


def spread_of(times: Sequence[float]) -> float:
    """Return half of the interquartile range, relative to the median."""
    measured = sorted(times)
    low, high = measured[len(measured) // 4], measured[-1 - len(measured) // 4]
    return (high - low) / 2 / statistics.median(measured)
