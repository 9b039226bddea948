"""A CUDA graph of some milliseconds of calls over all sets of operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from benchmarks.contest import Call
    from benchmarks.watchdog import Report


class Burst:
    """`said` names it in reports; `at_least` seconds, about; times are of one call."""

    def __init__(
        self,
        said: str,
        call: Call,
        sets: list[tuple[Any, ...]],
        report: Report,
        at_least: float,
    ) -> None:
        import torch

        # The graph refers to them: contestants lay operands out for themselves.
        self.said, self.sets = said, sets
        report(said + "first run")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for operands in sets:
                call(*operands)
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for operands in sets:
                call(*operands)
            stop.record()
            stream.synchronize()
            estimate = start.elapsed_time(stop) / 1e3 / len(sets)
        laps = max(1, round(at_least / (estimate * len(sets))))
        self.num_calls = max(2, laps * len(sets))
        report(said + f"capture {self.num_calls} calls")
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for i in range(self.num_calls):
                call(*sets[i % len(sets)])
        torch.cuda.synchronize()
        # The longest of these is the first estimate of a burst: it is never too short.
        self.estimate = self.seconds(self._timed(1)) * self.num_calls

    def replay(self, times: int = 1) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        import torch

        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            self.graph.replay()
        stop.record()
        return start, stop

    def seconds(self, events: tuple[Any, Any], times: int = 1) -> float:
        return events[0].elapsed_time(events[1]) / 1e3 / (times * self.num_calls)

    def run(self, at_least: float) -> float:
        """Replay for this long, and wait; seconds a call."""
        times = max(1, math.ceil(at_least / max(1e-6, self.estimate)))
        self.graph.replay()  # so that the card is busy while the others are asked for
        events = self._timed(times)
        found = self.seconds(events, times)
        self.estimate = min(self.estimate, found * self.num_calls)
        return found

    def _timed(self, times: int) -> tuple[Any, Any]:
        events = self.replay(times)
        events[1].synchronize()
        return events
