"""`wsdsl sweep`: time every combination of some schedule fields, predicted or measured."""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import wsdsl
from wsdsl import config
from wsdsl.cli.commands import require_sizes
from wsdsl.cli.options import UsageError, pairs, schedule_from, sizes_from
from wsdsl.cli.source_argument import load_kernel
from wsdsl.diagnostics import ScheduleError


@dataclass
class Point:
    """A combination: its values by field, its complete schedule, times in µs, or its fault."""

    values: Mapping[str, str]
    schedule: wsdsl.Schedule | None = None
    predicted: float = 0.0
    bottleneck: str = ""
    measured: float = 0.0
    fault: str = ""

    @property
    def time(self) -> float:
        return self.measured or self.predicted


def sweep_command(options: argparse.Namespace) -> int:
    kernel, sizes = load_kernel(options.target), sizes_from(options.size)
    require_sizes(kernel, sizes)
    fields = {
        key: [value] if key == "pdl_independent" else value.split(",")
        for key, value in pairs(options.set, "--set", "--set stages=2,3,4").items()
    }
    if not fields:
        raise UsageError("WS1041 `sweep` has no field to vary", hint="add --set stages=2,3,4")
    every = [dict(zip(fields, values)) for values in product(*fields.values())]
    points = [_predicted(kernel, values, sizes) for values in every]
    _measure(kernel, points, sizes, options)
    timed = [point for point in points if point.time]
    if options.output and timed:
        from wsdsl.report.figure import draw_sweep

        how = "measured" if any(point.measured for point in timed) else "predicted"
        told = ", ".join(f"{dim} = {n}" for dim, n in sizes.items())
        times = [(point.values, point.time) for point in timed]
        draw_sweep(times, fields, options.output, f"{kernel.name}, {told}, {how}")
    if options.json:
        rows = [vars(p) | {"schedule": p.schedule and repr(p.schedule)} for p in points]
        print(json.dumps({"kernel": kernel.name, "sizes": sizes, "points": rows}, indent=2))
        return 0 if timed else 1
    width = 2 + max(len(x) for field, values in fields.items() for x in (field, *values))
    kinds = ["predicted", *(["measured"] if any(point.measured for point in points) else [])]
    head = "".join(f"{kind:>12} µs" for kind in kinds) + "".join(f"{f:>{width}}" for f in fields)
    print(f"{head}  bottleneck")
    for p in points:
        times = [f"{vars(p)[k]:15.1f}" if vars(p)[k] else f"{'–':>15}" for k in kinds]
        own = "".join(f"{value:>{width}}" for value in p.values.values())
        print(f"{''.join(times)}{own}  {p.fault or p.bottleneck}")
    if timed:
        best = min(timed, key=lambda point: point.time)
        print("fastest: " + " ".join(f"--set {f}={value}" for f, value in best.values.items()))
    return 0 if timed else 1


def _predicted(kernel: wsdsl.Kernel, values: Mapping[str, str], sizes: Mapping[str, int]) -> Point:
    schedule = schedule_from(f"{field}={value}" for field, value in values.items())
    try:
        whole, timeline = kernel.schedule(schedule, **sizes), kernel.timeline(schedule, **sizes)
    except ScheduleError as error:
        return Point(values, fault=f"{error.findings[0].code} {error.findings[0].message}")
    return Point(values, whole, timeline.prediction.microseconds, timeline.bottleneck)


def _measure(
    kernel: wsdsl.Kernel,
    points: Sequence[Point],
    sizes: Mapping[str, int],
    options: argparse.Namespace,
) -> None:
    """With a GPU: as `tune` does, without a tuning-cache entry."""
    from wsdsl.runtime.device import gpu_available

    found = {point.schedule: point for point in points if point.schedule}
    if options.predict or not found or not gpu_available():
        return
    how = dict(seconds=options.seconds, progress=not options.json)
    with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder):
        tuned = kernel.tune_for(sizes, None, candidates=[*found], **how)
    for trial in tuned.trials:
        if point := found.get(trial.schedule):
            point.fault = trial.failure.partition("\n")[0]
            point.measured = trial.ratio * tuned.incumbent.bursts if trial.samples else 0.0
