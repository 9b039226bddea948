"""How near tuning comes to the best of all schedules, for one product of one size.

python -m benchmarks.exhaustive 4096x4096x4096 [--kernel gemm] [--limit 330] [--within 1.3]

Tunes in a process of its own with an empty cache (`--tune-seconds`), then compiles every schedule
of schedule_space.py in as many processes as there are CPUs, measures each briefly beside what is
chosen today, under a watchdog, and at last the neighbours of the best. The best of all and what
tuning found run against each other for longer, in bursts and sustained, and the quotient of their
times is printed. `--limit`: seconds of all that; what is left over is measured when the command is
run again (`--keep` names the file). `--count` says how many there are, and needs no GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import kernels
from benchmarks.kept_trials import KeptTrials
from benchmarks.schedule_space import Point, legal, neighbours, points
from benchmarks.suites import shape_from
from wsdsl import Kernel, Schedule, config
from wsdsl.ahead.compiling import compiled
from wsdsl.ahead.jobs import Failed, Job
from wsdsl.artifact.artifact import Choice
from wsdsl.artifact.serialization import Entry, from_bytes, to_bytes
from wsdsl.artifact.versions import emitter
from wsdsl.diagnostics import WsdslError
from wsdsl.dispatch.compile_child import compile_job
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.records.entry import parse_schedule
from wsdsl.runtime.arrays.alignment import contiguous
from wsdsl.tune.measuring_process import MeasuringProcess
from wsdsl.tune.result import Trial
from wsdsl.tune.successive_halving import LAST_ROUNDS, SuccessiveHalving, name_of
from wsdsl.tune.tuning import TuningSetup, spec_of

AT_ONCE = 768
"""Schedules that are completed and compiled before the next are."""
FAR = 1.05
"""Times as long as the best so far: who takes longer is not held ready."""
LAST, NEAR = 6, 0.2
"""How many run for longer, and of the time, what their neighbours have."""
LAST_SECONDS, SUSTAINED_SECONDS = 25.0, 8.0
TELL_SECONDS = 10.0
RESULTS = Path(__file__).parent / "results"


@dataclass
class Search:
    """Of one kernel and size; `setup` as for `tune`."""

    kernel: Kernel
    sizes: dict[str, int]
    path: Path
    setup: TuningSetup
    processes: int

    def __post_init__(self) -> None:
        call = contiguous(self.kernel.params, self.kernel.access, self.sizes)
        made = self.kernel.compile(**self.sizes)
        self.text, held = str(self.kernel.tile_ir), (Choice(made.schedule), made.artifact)
        self.today = Trial(made.schedule, is_incumbent=True)
        spec = spec_of(self.text, call, self.kernel.access)
        self.process = MeasuringProcess(spec, self.failed, self.setup.card, self.setup.limit)
        about = dict(kernel=self.kernel.name, sizes=self.sizes, emitter=emitter())
        self.kept = KeptTrials(self.path, about | {"device": self.process.about["device"]})
        self.process.enter(name_of(self.today), to_bytes(Entry(self.text, "", held)))
        self.tried, self._told = 0, time.monotonic()

    def failed(self, name: str, why: str) -> None:
        self.kept.add(Trial(parse_schedule(name), failure=why))

    def measure(self, schedules: Iterable[Schedule], until: float) -> int:
        """Those that are not known, while there is time; how many that were."""
        fresh, before = (s for s in schedules if s not in self.kept.trials), self.tried
        race = SuccessiveHalving(self.process, self.today, self._heard, time.monotonic, until)
        while time.monotonic() < until and (asked := list(islice(fresh, AT_ONCE))):
            for trial, made in self._compiled(asked, until):
                if made is None:
                    self.kept.add(trial)
                elif time.monotonic() < until:
                    race.try_out(trial, made)
                    self._make_room(trial)
                self.tried += 1
                self._tell()
        return self.tried - before

    def _compiled(
        self, asked: Sequence[Schedule], until: float
    ) -> Iterator[tuple[Trial, bytes | None]]:
        """With the code, or why there is none."""
        sizes, key = tuple(sorted(self.sizes.items())), self.kernel._variants.key
        jobs = [Job(self.text, key, s, sizes, (), (), exact=True) for s in asked]
        goes_on, limit = (lambda: time.monotonic() < until), self.setup.compile_limit
        for job, made in compiled(
            jobs, compile_job, self.processes, goes_on, limit, self.setup.start
        ):
            assert job.schedule is not None
            trial = Trial(job.schedule)
            if isinstance(made, Failed):
                trial.failure = made.findings[0].message
            elif from_bytes(self.text, made.entry).value[0].schedule != job.schedule:
                trial.failure = "it has too few registers"
            yield trial, None if isinstance(made, Failed) or trial.failure else made.entry

    def _heard(self, trial: Trial) -> None:
        if not trial.is_incumbent:
            self.kept.add(trial)

    def _make_room(self, trial: Trial) -> None:
        (best, *_) = self.kept.best(1) or [trial]
        if trial.failure or trial.ratio > FAR * best.ratio:
            self.process.leave([name_of(trial)])

    def _tell(self) -> None:
        if time.monotonic() - self._told > TELL_SECONDS:
            self._told = time.monotonic()
            print(self.so_far(), flush=True)

    def so_far(self) -> str:
        failed = sum(bool(t.failure) for t in self.kept.trials.values())
        told = f"{len(self.kept.trials) - failed} measured, {failed} refused or failed"
        for best in self.kept.best(1):
            told += f"; {best.ratio:.3f} of today's time: {best.schedule!r}"
        return told

    def against(self, tuned: Schedule | None) -> str:
        """The best of all and what tuning found, for longer: a table, and the quotient."""
        wanted = {t.schedule: t for t in [*self.kept.best(LAST), self.today]}
        if tuned is not None:
            wanted.setdefault(tuned, Trial(tuned))
        until = time.monotonic() + LAST_SECONDS
        ready = self.process
        missing = [s for s in wanted if s != self.today.schedule]
        ready.leave([repr(s) for s in missing])
        for trial, made in self._compiled(missing, until):
            if made is not None:
                ready.enter(name_of(trial), made)
        names = [repr(s) for s in wanted]
        bursts = ready.bursts(names, LAST_ROUNDS)
        sustained = ready.sustained(list(bursts), SUSTAINED_SECONDS)
        return table(bursts, sustained, repr(self.today.schedule), tuned and repr(tuned))


def table(
    bursts: dict[str, list[float]], sustained: dict[str, float], today: str, tuned: str | None
) -> str:
    def ratio(name: str, base: str) -> tuple[float, float]:
        rounds = zip(bursts[name], bursts[base], strict=True)
        return statistics.median(a / b for a, b in rounds), sustained[name] / sustained[base]

    held = [name for name in bursts if name in sustained]
    ranked = sorted(held, key=lambda name: math.prod(ratio(name, today)))
    lines = ["     µs  ÷ today (bursts · sustained)"]
    for name in ranked:
        short, long = ratio(name, today)
        note = "  (today)" * (name == today) + "  (tuned)" * (name == tuned)
        lines.append(
            f"{statistics.median(bursts[name]):7.1f}  {short:.3f} · {long:.3f}  {name}{note}"
        )
    if tuned in held:
        short, long = ratio(tuned, ranked[0])
        both = math.sqrt(short * long)
        lines.append(f"tuned ÷ best of all: {both:.3f} ({short:.3f} · {long:.3f})")
    return "\n".join(lines)


def whole(found: Sequence[Point], sizes: dict[str, int]) -> Iterator[Schedule]:
    return (s for s in (legal(point, sizes) for point in found) if s is not None)


def near(kernel: Kernel, best: Sequence[Trial], sizes: dict[str, int]) -> Iterator[Schedule]:
    """The neighbours of the best, as far as the compiler takes them."""
    for trial in best:
        for schedule in neighbours(trial.schedule):
            with suppress(WsdslError):
                made = scheduled_tile(dataclasses.replace(kernel.tile_ir, schedule=schedule), sizes)
                assert made.schedule is not None
                yield made.schedule


def tune_alone(arguments: Sequence[str], seconds: float) -> dict[str, Any]:
    """In a process and with a cache of its own; {} where that fails."""
    command = [sys.executable, "-m", "benchmarks.exhaustive", *arguments, "--only-tune"]
    with tempfile.TemporaryDirectory() as folder, suppress(subprocess.TimeoutExpired):
        named, limit = os.environ | {"WSDSL_CACHE_DIR": folder}, 2 * seconds + 60
        done = subprocess.run(
            command, env=named, stdout=subprocess.PIPE, text=True, timeout=limit, check=False
        )
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
    return {}


def search(search: Search, until: float, found: Sequence[Point]) -> None:
    """All that there is time for, then the neighbours of the best, then the table."""
    until -= LAST_SECONDS
    middle = until - NEAR * max(0.0, until - time.monotonic())
    try:
        search.measure(whole(found, search.sizes), middle)
        search.measure(near(search.kernel, search.kept.best(LAST), search.sizes), until)
        print(search.so_far(), flush=True)
        tuned = search.kept.tuned
        print(search.against(parse_schedule(tuned["schedule"]) if tuned else None))
        if tuned:
            print(f"tuned in {tuned['seconds']:.1f} s, with an empty cache")
    finally:
        search.process.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shape", type=shape_from, help="MxNxK")
    parser.add_argument("--kernel", default="gemm", help="of benchmarks/kernels.py")
    parser.add_argument("--limit", type=float, default=330.0, help="seconds of all, with tuning")
    parser.add_argument("--within", type=float, default=1.3, help="times the best, by the model")
    parser.add_argument("--tune-seconds", type=float, default=60.0, help="0: tuning is left out")
    parser.add_argument("--keep", type=Path, help="the file of what was measured")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--count", action="store_true", help="how many there are, without a GPU")
    parser.add_argument("--only-tune", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.begin = time.monotonic()
    kernel: Kernel = getattr(kernels, options.kernel)
    sizes = dict(zip("MNK", options.shape, strict=True))
    name = f"{options.kernel} {'x'.join(map(str, options.shape))}"
    if options.only_tune:
        tuned = kernel.tune_for(sizes, seconds=options.tune_seconds, progress=False)
        seconds = time.monotonic() - options.begin
        print(json.dumps({"schedule": repr(tuned.schedule), "seconds": seconds}))
        return 0
    path = options.keep or RESULTS / f"exhaustive_{name.replace(' ', '_')}.jsonl"
    with config.override(tuning_cache=False, cache_dir=None):
        own = (
            None if options.count else Search(kernel, sizes, path, TuningSetup(), options.processes)
        )
        if own is not None and options.tune_seconds and not own.kept.tuned:
            shape, seconds = "x".join(map(str, options.shape)), str(options.tune_seconds)
            asked = [shape, "--kernel", options.kernel, "--tune-seconds", seconds]
            if tuned := tune_alone(asked, options.tune_seconds):
                own.kept.add_tuned(tuned)
        found = points(kernel.tile_ir, sizes, options.within)
        spent = time.monotonic() - options.begin
        print(f"{name}: {len(found)} schedules, found by {spent:.0f} s", flush=True)
        if own is not None:
            search(own, options.begin + options.limit, found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
