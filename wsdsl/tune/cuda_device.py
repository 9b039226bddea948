"""Measure calls on the GPU in bursts of a few milliseconds, as CUDA graphs."""

import math
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from wsdsl.artifact.artifact import Artifact, Choice
from wsdsl.artifact.serialization import from_bytes
from wsdsl.diagnostics import WsdslError
from wsdsl.runtime import driver
from wsdsl.runtime.device import context_for, device_attribute, memory_bytes, new_stream
from wsdsl.runtime.launcher import launcher_of
from wsdsl.tune.call_description import CallDescription, Progress
from wsdsl.tune.memory import fault, make_sets

BURST_SECONDS = 2.5e-3
WARM_SECONDS = 0.2
"""Duration of a warm-up after a pause, until clock and power are stable."""
PAUSE_SECONDS = 0.1
TURNS = 4
"""Number of sustained runs per kernel."""
TOLERANCE = {"f32": 2.0**-11, "tf32": 2.0**-11, "f16": 2.0**-9, "bf16": 2.0**-7}
"""‖a − b‖ / ‖b‖ of two results, by type: each may be as far from exact as `wsdsl run` allows."""
NARROW_TOLERANCE = 2.0**-3
"""Tolerance of fp8."""


class _BurstGraph:
    """A CUDA graph of calls that alternate between all sets of arguments."""

    def __init__(self, calls: list[Any], stream: Any) -> None:
        cuda = driver.api()
        self._stream = stream
        self._events = [driver.call("cuEventCreate", 0) for _ in range(2)]
        for call in calls:
            call()
        seconds = self._timed(lambda: [call() for call in calls]) / len(calls)
        laps = max(1, round(BURST_SECONDS / max(1e-7, seconds * len(calls))))
        self.num_calls = max(2, laps * len(calls))
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        driver.call("cuStreamBeginCapture", stream, mode)
        for i in range(self.num_calls):
            calls[i % len(calls)]()
        captured = driver.call("cuStreamEndCapture", stream)
        self.graph = driver.call("cuGraphInstantiate", captured, 0)
        driver.call("cuGraphDestroy", captured)
        # References the arguments of the graph's calls.
        self._calls = calls
        self.estimate = self._timed(self._replay)

    def run(self, seconds: float) -> float:
        """Replay for about `seconds`; return microseconds per call."""
        times = max(1, math.ceil(seconds / max(1e-6, self.estimate)))
        self._replay()  # so that the GPU is busy while the others are submitted
        spent = self._timed(lambda: [self._replay() for _ in range(times)]) / times
        self.estimate = min(self.estimate, spent)
        return spent / self.num_calls * 1e6

    def close(self) -> None:
        driver.call("cuGraphExecDestroy", self.graph)

    def _replay(self) -> None:
        driver.call("cuGraphLaunch", self.graph, self._stream)

    def _timed(self, work: Any) -> float:
        start, stop = self._events
        driver.call("cuEventRecord", start, self._stream)
        work()
        driver.call("cuEventRecord", stop, self._stream)
        driver.call("cuStreamSynchronize", self._stream)
        return float(driver.call("cuEventElapsedTime", start, stop)) / 1e3


class CudaDevice:
    """The device, in the process that measures. The first kernel that is added is the incumbent;
    results are compared with its result. Times are microseconds per call.
    """

    def __init__(self, spec: CallDescription) -> None:
        self._spec = spec
        self._context = context_for(spec.index)
        self._memory, self._stream = memory_bytes(spec.index), new_stream()
        l2_bytes = device_attribute(spec.index, "L2_CACHE_SIZE")
        self._sets = make_sets(spec.arguments, spec.index, l2_bytes)
        self._written = [tensor for tensor in self._sets[0] if tensor.argument.is_written]
        updated = (tensor for tensor in self._written if tensor.argument.is_read)
        self._before = {tensor.argument.name: tensor.read(whole=True) for tensor in updated}
        self._exact: dict[bool, dict[str, Any]] = {}
        self._first: list[Any] = []
        self._single: dict[str, Any] = {}
        self._graphs: dict[str, _BurstGraph] = {}
        self._idle_since = 0.0

    def about(self) -> dict[str, Any]:
        own = {"memory_bytes": self._memory, "sets": len(self._sets)}
        return self._context.device.about() | own

    def add(self, name: str, entry: bytes, progress: Progress) -> str:
        """Run a compiled kernel; return the fault of its result, or ""."""
        progress(name)
        value: tuple[Choice, Artifact] = from_bytes(self._spec.text, entry).value
        try:
            return self._added(name, value[1], progress)
        except WsdslError as error:
            driver.call("cuStreamSynchronize", self._stream)  # raises pending errors
            return error.findings[0].message

    def _added(self, name: str, artifact: Artifact, progress: Progress) -> str:
        launcher = launcher_of(artifact)
        calls: list[Any] = []
        for own in self._sets:
            views = {tensor.argument.name: tensor.view for tensor in own}
            given = views, self._spec.scalars, self._spec.dims, int(self._stream)
            calls.append(launcher.prepare(*given))
        self._single[name] = calls[0]
        problem = self.check(name, progress, whole=False)
        if not problem:
            self._graphs[name] = _BurstGraph(calls, self._stream)
        return problem

    def check(self, name: str, progress: Progress, *, whole: bool = True) -> str:
        """Compare complete outputs; return the fault, or ""."""
        progress(name)
        if not self._first:
            self._first.append(self._single[name])
        if whole not in self._exact:
            self._exact[whole] = self._result(self._first[0], whole=whole)
        found, exact = self._result(self._single[name], whole=whole), self._exact[whole]
        for tensor in self._written:
            own = tensor.argument
            bound = TOLERANCE.get(own.dtype, NARROW_TOLERANCE)
            if problem := fault(own.name, found[own.name], exact[own.name], own.dtype, bound):
                return problem
        return ""

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            self._single.pop(name, None)
            if (graph := self._graphs.pop(name, None)) is not None:
                graph.close()

    def bursts(
        self, names: Sequence[str], rounds: int, progress: Progress
    ) -> dict[str, list[float]]:
        """Measure one burst of each kernel per round, in shuffled order."""
        if time.monotonic() - self._idle_since > PAUSE_SECONDS:
            progress(names[0])
            self._graphs[names[0]].run(WARM_SECONDS)
        times: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(rounds):
            order = list(names)
            random.Random(turn).shuffle(order)
            for name in order:
                progress(name)
                times[name].append(self._graphs[name].run(BURST_SECONDS))
        self._idle_since = time.monotonic()
        return times

    def sustained(
        self, names: Sequence[str], seconds: float, progress: Progress
    ) -> dict[str, float]:
        """Alternate the kernels, for `seconds` in total."""
        share = seconds / (len(names) * TURNS)
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(TURNS):
            for name in names:
                progress(name)
                self._graphs[name].run(0.4 * share)
                times[name].append(self._graphs[name].run(0.6 * share))
        self._idle_since = time.monotonic()
        return {name: statistics.median(found) for name, found in times.items()}

    def _result(self, call: Any, *, whole: bool) -> dict[str, Any]:
        """Return the outputs of one run on the initial contents."""
        for tensor in self._written:
            if (before := self._before.get(tensor.argument.name)) is not None:
                driver.call("cuMemcpyHtoD", tensor.low, before.ctypes.data, tensor.bytes)
            else:
                tensor.fill((0, 0), 0)
        driver.call("cuCtxSynchronize")
        call()
        driver.call("cuStreamSynchronize", self._stream)
        return {tensor.argument.name: tensor.read(whole=whole) for tensor in self._written}
