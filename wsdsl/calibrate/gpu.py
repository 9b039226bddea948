"""Allocate GPU memory for microbenchmarks, launch their kernels, and time them."""

import statistics
import struct
from collections.abc import Sequence
from typing import Any

from wsdsl.artifact.signature import MapArgument, PointerArgument, SizeArgument
from wsdsl.calibrate.asm import PATIENCE, SAMPLE_BYTES, Kernel
from wsdsl.codegen.ptxas import assemble
from wsdsl.diagnostics import LaunchError
from wsdsl.lazy import cached_property
from wsdsl.record import record
from wsdsl.runtime import driver
from wsdsl.runtime.device import (
    Context,
    context_for,
    device_attribute,
    memory_bytes,
    new_stream,
)
from wsdsl.runtime.loaded_module import Function, Module
from wsdsl.runtime.packed_arguments import PackedArguments
from wsdsl.runtime.tensor_map_encoding import TiledMap, encode

Argument = int | bytes
SIGNATURES = {
    "u64": PointerArgument(""),
    "u32": SizeArgument(""),
    "map": MapArgument("", (), ""),
}
"""Arguments of each size."""
MAX_CTAS = 1024
RUNS = 3
"""Launches per kernel, after a warm-up; the median counts."""


@record
class Run:
    """Time of a launch's CTAs, in the median launch: mean cycles, and nanoseconds of the slowest
    CTA.
    """

    cycles: float
    nanoseconds: float
    clock: float = 0.0
    """Cycles a nanosecond."""


class Gpu:
    """A GPU that runs microbenchmarks."""

    def __init__(self, index: int = 0) -> None:
        self.context: Context = context_for(index)
        self.num_sms = self.context.device.num_sms
        self.l2_bytes = device_attribute(index, "L2_CACHE_SIZE")
        self.memory_bytes = memory_bytes(index)
        self._functions: dict[str, Function] = {}
        self._buffers: list[int] = []
        self._stream = new_stream()
        self._out = int(driver.call("cuMemAlloc", MAX_CTAS * SAMPLE_BYTES))

    @cached_property
    def _events(self) -> tuple[Any, Any]:
        return driver.call("cuEventCreate", 0), driver.call("cuEventCreate", 0)

    def buffer(self, size: int) -> int:
        """Allocate `size` bytes; return their address, a multiple of 256."""
        self._buffers.append(int(driver.call("cuMemAlloc", size)))
        return self._buffers[-1]

    def free(self) -> None:
        """All buffers."""
        driver.call("cuStreamSynchronize", self._stream)
        while self._buffers:
            driver.call("cuMemFree", self._buffers.pop())

    def clear(self, address: int, size: int) -> None:
        driver.call("cuMemsetD8Async", address, 0, size, self._stream)

    def upload(self, address: int, data: bytes) -> None:
        driver.call("cuMemcpyHtoDAsync", address, data, len(data), self._stream)
        driver.call("cuStreamSynchronize", self._stream)

    def rows(self, address: int, rows: int, pitch: int, box_rows: int) -> bytes:
        """A tensor map of `rows` rows of bf16, as long as the pitch, in boxes of 128 bytes."""
        dims, box = (pitch // 2, rows), (64, box_rows)
        return encode(TiledMap("BFLOAT16", address, dims, (pitch,), box, "128B", "L2_128B"))

    def room(self, kernel: Kernel) -> int:
        """Return the number of its clusters that run at the same time."""
        query = "cuOccupancyMaxActiveClusters"
        config = self._config(kernel, kernel.cluster, False)
        return int(driver.call(query, self._function(kernel).handle, config))

    def run(self, kernel: Kernel, grid: int, count: int, *arguments: Argument) -> Run:
        self.once(kernel, grid, count, *arguments)
        runs = [self.once(kernel, grid, count, *arguments) for _ in range(RUNS)]
        return sorted(runs, key=lambda run: run.cycles)[RUNS // 2]

    def once(self, kernel: Kernel, grid: int, count: int, *arguments: Argument) -> Run:
        """Time one launch, without a warm-up."""
        held = _packed(kernel, (self._out, count, *arguments))
        function, config = self._function(kernel), self._config(kernel, grid, False)
        driver.call("cuLaunchKernelEx", config, function.handle, held.address, 0)
        driver.call("cuStreamSynchronize", self._stream)
        samples = self._samples(grid)
        if any(looks >= PATIENCE for _, _, looks in samples):
            raise LaunchError(f"WS1037 {kernel.name}: a thread's wait timed out")
        cycles = statistics.fmean(cycles for cycles, _, _ in samples)
        elapsed = statistics.fmean(ns for _, ns, _ in samples)
        longest = max(ns for _, ns, _ in samples)
        return Run(cycles, longest, cycles / elapsed if elapsed else 0.0)

    def _samples(self, grid: int) -> list[tuple[int, int, int]]:
        data = bytearray(grid * SAMPLE_BYTES)
        driver.call("cuMemcpyDtoH", data, self._out, len(data))
        return [(a, b, c) for a, b, c, _ in struct.iter_unpack("<4Q", data)]

    def chain(self, kernel: Kernel, grid: int, length: int, *, early: bool) -> float:
        """Return nanoseconds between launches in a graph."""
        cuda = driver.api()
        held = _packed(kernel, (self._out, 0))
        function, config = self._function(kernel), self._config(kernel, grid, early)
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        driver.call("cuStreamBeginCapture", self._stream, mode)
        for _ in range(length):
            driver.call("cuLaunchKernelEx", config, function.handle, held.address, 0)
        graph = driver.call(
            "cuGraphInstantiate", driver.call("cuStreamEndCapture", self._stream), 0
        )
        start, stop = self._events
        times: list[float] = []
        for _ in range(RUNS):
            # The first graph keeps the GPU busy until all work is submitted.
            driver.call("cuGraphLaunch", graph, self._stream)
            driver.call("cuEventRecord", start, self._stream)
            driver.call("cuGraphLaunch", graph, self._stream)
            driver.call("cuEventRecord", stop, self._stream)
            driver.call("cuStreamSynchronize", self._stream)
            times.append(float(driver.call("cuEventElapsedTime", start, stop)))
        return statistics.median(times) * 1e6 / length

    def _function(self, kernel: Kernel) -> Function:
        found = self._functions.get(kernel.name)
        if found is None:
            assembled = assemble(kernel.ptx)
            image = kernel.ptx if assembled is None else assembled.cubin
            module = Module(image, kernel.name, kernel.smem_bytes)
            found = self._functions[kernel.name] = module.function(self.context, 0)
        return found

    def _config(self, kernel: Kernel, grid: int, early: bool) -> Any:
        attributes = [driver.launch_attribute(together=False)] if early else []
        size = grid, kernel.threads, kernel.smem_bytes
        return driver.launch_config(*size, self._stream, attributes)


def _packed(kernel: Kernel, arguments: Sequence[Argument]) -> PackedArguments:
    kinds = [kind for kind, _ in kernel.all_params]
    if len(kinds) != len(arguments):
        raise ValueError(f"{kernel.name} takes {len(kinds)} arguments, not {len(arguments)}")
    values = (_bytes(kind, value) for kind, value in zip(kinds, arguments, strict=True))
    return PackedArguments([SIGNATURES[kind] for kind in kinds], values)


def _bytes(kind: str, value: Argument) -> bytes:
    if isinstance(value, bytes):
        return value
    return struct.pack("<Q" if kind == "u64" else "<I", value)
