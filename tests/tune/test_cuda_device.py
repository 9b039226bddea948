"""The process that measures, with a driver whose memory is this machine's and whose kernels are
NumPy: what tensors hold, how results are compared, and what is timed.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.records.recorded import make_gemm
from wsdsl import config
from wsdsl.artifact.artifact import Choice
from wsdsl.artifact.serialization import Entry, to_bytes
from wsdsl.runtime import driver
from wsdsl.runtime.arrays.alignment import contiguous
from wsdsl.runtime.arrays.interop import describe, numpy_dtype
from wsdsl.runtime.arrays.views import ArrayView
from wsdsl.tune import cuda_device, memory
from wsdsl.tune.call_description import Argument
from wsdsl.tune.tuning import _index_data, spec_of

SIZES = dict(M=64, N=64, K=128)
L2_BYTES = 50_000
MICROSECONDS = 3.0
"""Of a call."""


class HostDriver:
    """Time goes on by so much a call, whatever it is."""

    def __init__(self) -> None:
        self.buffers: list[Any] = []
        self.now, self.captured, self.stamps = 0.0, None, dict[int, float]()
        self.graphs: dict[int, int] = {}
        self.made = 0

    def api(self) -> Any:
        capture = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
        l2 = SimpleNamespace(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE=38)
        flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
        return SimpleNamespace(
            CUstreamCaptureMode=capture, CUdevice_attribute=l2, CUstream_flags=flags
        )

    def call(self, function: str, *args: Any) -> Any:
        return getattr(self, function, lambda *_: 0)(*args)

    def ran(self) -> None:
        if self.captured is not None:
            self.captured += 1
        else:
            self.now += MICROSECONDS / 1e3

    def cuMemAlloc(self, size: int) -> int:
        self.buffers.append(made := ctypes.create_string_buffer(size + 256))
        return -(-ctypes.addressof(made) // 256) * 256

    def cuMemGetInfo(self) -> tuple[int, int]:
        return 1 << 30, 1 << 31

    def cuDeviceGetAttribute(self, *_: Any) -> int:
        return L2_BYTES

    def cuDeviceTotalMem(self, _: int) -> int:
        return 141 << 30

    def cuMemcpyHtoD(self, to: int, data: Any, size: int) -> None:
        ctypes.memmove(to, data, size)

    def cuMemcpyDtoH(self, to: Any, data: int, size: int) -> None:
        ctypes.memmove(to, data, size)

    def cuMemcpyDtoD(self, to: int, data: int, size: int) -> None:
        ctypes.memmove(to, data, size)

    def cuMemsetD8(self, to: int, value: int, size: int) -> None:
        ctypes.memset(to, value, size)

    def cuEventCreate(self, _: int) -> int:
        self.made += 1
        return self.made

    def cuEventRecord(self, event: int, _: int) -> None:
        self.stamps[event] = self.now

    def cuEventElapsedTime(self, start: int, stop: int) -> float:
        return self.stamps[stop] - self.stamps[start]

    def cuStreamBeginCapture(self, *_: Any) -> None:
        self.captured = 0

    def cuStreamEndCapture(self, _: int) -> int:
        assert self.captured
        self.made, num, self.captured = self.made + 1, self.captured, None
        self.graphs[self.made] = num
        return self.made

    def cuGraphInstantiate(self, graph: int, _: int) -> int:
        return graph

    def cuGraphLaunch(self, graph: int, _: int) -> None:
        self.now += self.graphs[graph] * MICROSECONDS / 1e3


def array(view: ArrayView) -> Any:
    """The memory of a view."""
    kind = numpy_dtype(view.dtype)
    size = int(sum(s * (n - 1) for s, n in zip(view.strides, view.shape)) + 1)
    raw = (ctypes.c_char * (size * kind.itemsize)).from_address(view.pointer)
    flat = np.frombuffer(raw, kind)
    strides = [s * kind.itemsize for s in view.strides]
    return np.lib.stride_tricks.as_strided(flat, view.shape, strides, writeable=True)


class Launcher:
    """Of an artifact: C = A Bᵀ, but for what its name says is wrong with it."""

    def __init__(self, host: HostDriver, error: float) -> None:
        self.host, self.error = host, error
        self.sets: list[int] = []

    def prepare(self, views: Any, scalars: Any, dims: Any, stream: Any) -> Any:
        self.sets.append(views["A"].pointer)

        def run() -> None:
            self.host.ran()
            if self.host.captured is None:
                a, b, c = (array(views[name]) for name in "ABC")
                c[...] = a.astype(np.float32) @ b.astype(np.float32).T * (1 + self.error)
                if self.error < 0:
                    c[3, 5] = np.nan

        return run


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    host, gemm = HostDriver(), make_gemm()
    device = SimpleNamespace(name="NVIDIA H200", arch="sm_90a", num_sms=132)
    monkeypatch.setattr(driver, "call", host.call)
    monkeypatch.setattr(driver, "api", host.api)
    monkeypatch.setattr(cuda_device, "context_for", lambda _: SimpleNamespace(device=device))
    monkeypatch.setattr(memory, "RANDOM_BYTES", 4096)
    call = contiguous(gemm.params, gemm.access, SIZES)
    spec = spec_of(str(gemm.tile_ir), call, gemm.access)
    with config.override(ptxas="off"):
        made = gemm.compile(**SIZES)
    found = cuda_device.CudaDevice(spec)
    kept = to_bytes(Entry(spec.text, "", (Choice(made.schedule), made.artifact)))
    launchers: list[Launcher] = []

    def add(name: str, error: float = 0.0) -> str:
        launchers.append(Launcher(host, error))
        monkeypatch.setattr(cuda_device, "launcher_of", lambda _: launchers[-1])
        return found.add(name, kept, lambda _: None)

    return SimpleNamespace(card=found, add=add, launchers=launchers, host=host)


def test_times_are_of_one_call(card: Any) -> None:
    assert [card.add(name) for name in "pq"] == ["", ""]
    told: list[str] = []
    times = card.card.bursts(["p", "q"], 4, told.append)
    assert {name: len(held) for name, held in times.items()} == {"p": 4, "q": 4}
    assert all(t == pytest.approx(MICROSECONDS) for held in times.values() for t in held)
    assert sorted(told) == ["p"] * 5 + ["q"] * 4  # with a warm-up
    longer = card.card.sustained(["p", "q"], 0.1, told.append)
    assert longer == {"p": pytest.approx(MICROSECONDS), "q": pytest.approx(MICROSECONDS)}
    card.card.drop(["p"])
    assert list(card.card.bursts(["q"], 1, told.append)) == ["q"]


def test_operands_exceed_the_cache(card: Any) -> None:
    card.add("p")
    bytes_of_a_set = 2 * (64 * 128 * 2 + 64 * 64)
    assert len(set(card.launchers[0].sets)) == -(-2 * L2_BYTES // bytes_of_a_set)


@pytest.mark.parametrize(("error", "fault"), [(0.003, ""), (0.05, "error of 0.05"), (-1, "finite")])
def test_results_are_compared_with_the_first(card: Any, error: float, fault: str) -> None:
    assert card.add("first") == ""
    told = card.add("second", error)
    assert fault in told and bool(told) == bool(fault)
    assert bool(card.card.check("second", lambda _: None)) == bool(fault)


def test_tensors_lie_like_the_callers(card: Any) -> None:
    strided = Argument("X", "bf16", (8, 6), (20, 1), 34, True, False)
    held = memory.DeviceTensor(strided, 0)
    assert held.view.pointer % 256 == 34 and held.bytes == (7 * 20 + 5 + 1) * 2
    held.fill(memory.random_numbers("bf16"), 3)
    values = array(held.view).astype(np.float32)
    assert np.isfinite(values).all() and 0.5 < values.std() < 1.5
    indices = Argument("I", "i32", (4,), (1,), 0, True, False, np.arange(4, dtype="i4").tobytes())
    held = memory.DeviceTensor(indices, 0)
    held.fill((0, 0), 0)
    assert array(held.view).tolist() == [0, 1, 2, 3]


def test_indices_are_copied_and_nothing_else() -> None:
    numbers = np.arange(6, dtype="i4")
    values = np.ones((64, 128), numpy_dtype(make_gemm().params[0].type.dtype))
    gemm = make_gemm()
    call = gemm.resolve((values, values, None))
    spec = spec_of("", call, gemm.access)
    assert [a.data for a in spec.arguments] == [None] * 3
    assert [(a.is_read, a.is_written) for a in spec.arguments] == [(True, False)] * 2 + [
        (False, True)
    ]
    assert _index_data(describe(numbers[1:4])) == numbers[1:4].tobytes()
