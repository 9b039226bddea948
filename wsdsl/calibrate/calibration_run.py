"""Run all microbenchmarks in a child process under a watchdog. One that hangs, or leaves the CUDA
context unusable, is skipped, and a new process continues with the next.
"""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wsdsl.calibrate.benches import benches
from wsdsl.diagnostics import LaunchError
from wsdsl.ir.hardware.target import target_of_device
from wsdsl.rates.files import Card, RatesFile
from wsdsl.rates.of_target import rates_of
from wsdsl.rates.rates import DESCRIBED, FITTED, NAMES, OUTSIDE, ZERO, Rates

CHILD = [sys.executable, "-m", "wsdsl.calibrate.calibration_child"]
SILENCE_SECONDS = 25.0
"""A process without output for this time, plus the time that keeps the GPU busy, is ended."""
POWER_SHARE = 0.25
"""Share of the given time that the GPU is kept busy for its clock to settle."""
Heard = Callable[[str], None]


@dataclass
class Measured:
    """`card`: the child's report on its GPU; `failed`: benches that measured nothing, and why."""

    card: dict[str, Any] = field(default_factory=dict[str, Any])
    values: dict[str, float] = field(default_factory=dict[str, float])
    failed: dict[str, str] = field(default_factory=dict[str, str])


def measure(seconds: float, heard: Heard, names: Sequence[str] = ()) -> Measured:
    """Run the benches. LaunchError without a GPU, or if all of them fail."""
    found = Measured()
    left = list(names) or [bench.name for bench in benches(0.0)]
    while left:
        now = ""
        for line in _lines(seconds * POWER_SHARE, left):
            if "failed" in line:
                raise LaunchError(f"WS1038 microbenchmarks cannot run: {line['failed']}")
            now = line.get("begins", now)
            found.card = line.get("card", found.card)
            if "begins" in line:
                heard(now)
            elif line.get("bench") == now:
                left.remove(now)
                found.values |= line.get("values", {})
                if "error" in line:
                    found.failed[now] = line["error"]
        if now in left:
            found.failed[now] = "it hung, or crashed its process"
            left.remove(now)
        elif left and not now:
            raise LaunchError("WS1039 the measuring process ended before the first microbenchmark")
    for name, value in list(found.values.items()):
        if not 0 <= value < float("inf") or (value == 0 and name not in ZERO):
            found.failed[name] = f"measured as {value}"
            del found.values[name]
    if not found.values:
        reasons = "; ".join(f"{name}: {why}" for name, why in found.failed.items())
        raise LaunchError(f"WS1040 no microbenchmark succeeded ({reasons})")
    return found


def _lines(power_seconds: float, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a child's reports until it ends, or is ended for lack of output."""
    command = [*CHILD, str(power_seconds), *names]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    told: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            told.put(line)
        told.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        while True:
            try:
                line = told.get(timeout=SILENCE_SECONDS + power_seconds)
            except queue.Empty:
                return
            if line is None:
                return
            if line.startswith("{"):
                yield json.loads(line)
    finally:
        child.kill()
        child.wait()


def in_cycles_of_products(values: Mapping[str, float], before: Rates) -> dict[str, float]:
    """Convert rates outside of an SM, measured in cycles of a lightly loaded SM."""
    clock = values.get("clock", before.clock)
    faster = clock / values.get("tensor_smem_clock", before.tensor_smem_clock)
    found = dict(values)
    for name in OUTSIDE.keys() & values.keys():
        found[name] = values[name] / faster if OUTSIDE[name] else values[name] * faster
    return found


def fitted(taken: Mapping[str, float], before: Rates) -> dict[str, float]:
    """L2 rates that were fitted to matmuls, scaled by the ratio of L2's measured bandwidth here."""
    faster = taken["l2_own_bytes"] / before.l2_own_bytes if "l2_own_bytes" in taken else 1.0
    return {n: float(getattr(before, n)) * (faster if n in OUTSIDE else 1.0) for n in FITTED}


def rates_file(measured: Measured) -> RatesFile:
    """Parameters that were not measured keep their previous values, and their sources say so."""
    card = measured.card
    target = target_of_device(card["device"], card["arch"], card["num_sms"])
    before = rates_of(target)
    taken = in_cycles_of_products(measured.values, before)
    by_products = fitted(taken, before)
    date = time.strftime("%Y-%m-%d")
    values: dict[str, float] = {}
    sources: dict[str, str] = {}
    for name in NAMES:
        if name in taken:
            values[name], sources[name] = taken[name], f"measured by wsdsl calibrate, {date}"
        elif name in by_products:
            values[name], sources[name] = by_products[name], "fitted to measured matmuls"
        else:
            values[name] = float(getattr(before, name))
            sources[name] = f"not measured: {before.origin}"
    about = {"date": time.strftime("%Y-%m-%d %H:%M:%S"), "driver": card["driver"]}
    about["by"] = "wsdsl calibrate"
    own = Card(card["device"], target.name, card["num_sms"], card["memory_bytes"])
    return RatesFile(own, values, sources, about)


def table(file: RatesFile, before: RatesFile | None, failed: dict[str, str]) -> Iterator[str]:
    """Lines for a person. `before`: the values that are shipped."""
    yield f"{'parameter':26} {'value':>12} {'shipped':>12} {'ratio':>6}  unit"
    for d in DESCRIBED:
        value, known = file.values[d.name], before.values[d.name] if before else 0.0
        ratio = f"{value / known:6.2f}" if known else " " * 6
        shipped = f"{known:12.5g}" if before else " " * 12
        source = file.sources[d.name]
        note = "" if source.startswith("measured") else f"  ({source.split(':')[0]})"
        yield f"{d.name:26} {value:12.5g} {shipped} {ratio}  {d.unit}{note}"
    for name, why in failed.items():
        yield f"{name}: {why}"
