"""A card without a GPU: what a schedule takes is known, and how some of them fail."""

import os
import random
import time
from dataclasses import replace
from typing import Any, ClassVar

from wsdsl.ahead.jobs import Built, Failed, Job
from wsdsl.artifact.artifact import Choice
from wsdsl.artifact.serialization import Entry, from_bytes, to_bytes
from wsdsl.diagnostics import Finding
from wsdsl.schedule import Schedule
from wsdsl.tune.call_description import CallDescription

WIDTHS = {256: 100.0, 240: 98.0, 224: 97.0, 208: 93.0, 192: 90.0, 176: 95.0, 160: 97.0}


def cost(schedule: Schedule) -> float:
    tile = dict(schedule.tile or {})
    return WIDTHS.get(tile["n"], 120.0) + abs((schedule.stages or 0) - 4)


def fault_of(schedule: Schedule) -> int | None:
    return schedule.stages if (schedule.tile or {})["n"] == 192 else None


class FakeDevice:
    """Depths of 9 and more are at fault beside 192 columns, each in its way."""

    def __init__(self, spec: CallDescription) -> None:
        self.spec, self.held = spec, dict[str, Schedule]()
        self.random = random.Random(5)

    def about(self) -> dict[str, Any]:
        return dict(device="NVIDIA H200", arch="sm_90a", num_sms=132, memory_bytes=141 << 30)

    def add(self, name: str, kept: bytes, doing: Any) -> str:
        doing(name)
        schedule = self.held[name] = from_bytes(self.spec.text, kept).value[0].schedule
        fault = fault_of(schedule)
        if fault == 9:
            time.sleep(60)
        if fault == 10:
            os._exit(3)
        if fault == 12:
            raise ValueError("an error of CUDA")
        return "wrong: `C` has a relative error of 0.5" if fault == 11 else ""

    def check(self, name: str, doing: Any) -> str:
        return "wrong: `C` differs" if self.held[name].swizzle == 32 else ""

    def drop(self, names: list[str]) -> None:
        for name in names:
            del self.held[name]

    def bursts(self, names: list[str], rounds: int, doing: Any) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds):
            clock = self.random.uniform(0.95, 1.05)
            for name in names:
                doing(name)
                if fault_of(self.held[name]) == 13:
                    os._exit(4)
                own = cost(self.held[name]) * self.random.gauss(1.0, 0.002)
                times[name].append(own * clock)
        return times

    def sustained(self, names: list[str], seconds: float, doing: Any) -> dict[str, float]:
        """Swizzles of 16 draw so much power that they lose."""
        held = {name: self.held[name] for name in names}
        return {n: cost(s) * (1.2 if s.swizzle == 16 else 1.1) for n, s in held.items()}


class NoDevice(FakeDevice):
    def __init__(self, spec: CallDescription) -> None:
        raise OSError("there is no GPU here")


class Broken(FakeDevice):
    def add(self, name: str, kept: bytes, doing: Any) -> str:
        os._exit(5)


class Equal(FakeDevice):
    """All are as quick as one another, but for noise."""

    def bursts(self, names: list[str], rounds: int, doing: Any) -> dict[str, list[float]]:
        return {n: [self.random.gauss(100.0, 1.5) for _ in range(rounds)] for n in names}


class InThisProcess:
    """Compiles nothing: the code is that of what is chosen today, with another schedule. What all
    of them were `asked` for is kept together.
    """

    today: bytes = b""
    asked: ClassVar[list[Schedule]] = []
    ended = False

    def run(self, job: Job) -> Built | Failed:
        assert job.schedule is not None
        InThisProcess.asked.append(job.schedule)
        if job.schedule.stages == 14:
            return Failed((Finding("ptxas spills 100 bytes"),))
        if job.schedule.stages == 15:
            while not self.ended:
                time.sleep(0.01)
            return Failed((Finding("the compiling process has ended"),))
        artifact = from_bytes(job.text, InThisProcess.today).value[1]
        held = Choice(job.schedule), replace(artifact, schedule=job.schedule)
        return Built(job.sizes, to_bytes(Entry(job.text, "", held)))

    def close(self) -> None:
        self.ended = True
