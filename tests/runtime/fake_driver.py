"""A CUDA driver without a GPU: it keeps book of memory, streams and captures, and refuses what the
real one refuses while a graph is captured.
"""

import ctypes
import itertools
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from wsdsl.runtime import driver, launcher
from wsdsl.runtime.device import Context, Device
from wsdsl.runtime.driver import DriverError

MAIN, SIDE, PRIVATE = 0x100, 0x200, 0x900
OK = SimpleNamespace(name="CUDA_SUCCESS")


class FakeDriver:
    """`captures` has the id of what is captured on a stream. `memory` is by address; `log` has the
    calls; `launched` what each launch was given, by argument; `copied` the stream of each copy of
    rows, what it was given, and the number of launches before it; `filled` the stream, address and
    bytes of each fill of a caller's memory, and that number.
    """

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.capacity, self.resident, self.clusters = capacity, 1, 66
        self.memory: dict[int, int] = {}
        self.zeroed: set[int] = set()
        self.filled: list[tuple[int, int, int, int]] = []
        self.captures: dict[int, int] = {}
        self.log: list[str] = []
        self.launched: list[tuple[int, bytes]] = []
        self.copied: list[tuple[int, Any, int]] = []
        self.modes = threading.local()
        self.addresses: Iterator[int] = itertools.count(0x10_0000_0000, 1 << 33)
        self.lock = threading.Lock()
        self.args_bytes = 0
        self.context = 1

    # What takes the place of the functions in `wsdsl.runtime.driver` ------------------------------

    def install(self, patch: Callable[[Any, str, Any], None] = setattr) -> None:
        """As an H200's driver; a map is the address of what it describes."""
        gpu = Device(0, "H200", 132, (9, 0), (12, 9))
        patch(driver, "call", self.call)
        patch(driver, "api", self.api)
        patch(launcher, "context_for", lambda _: Context(object(), self.context, gpu))
        patch(launcher, "encode", lambda m: struct.pack("<Q", m.address) + bytes(120))

    def call(self, function: str, *args: Any) -> Any:
        with self.lock:
            self.log.append(function)
        return getattr(self, function, lambda *_: 1)(*args)

    def api(self) -> Any:
        modes = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
        limit = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
        early = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
        return SimpleNamespace(
            CUlaunchConfig=SimpleNamespace,
            CUlaunchAttribute=lambda: SimpleNamespace(value=SimpleNamespace()),
            CUlaunchAttributeID=SimpleNamespace(**{early: 6}),
            CUtensorMap=lambda _ptr: _ptr,
            CUDA_MEMCPY2D=SimpleNamespace,
            CUmemorytype=SimpleNamespace(CU_MEMORYTYPE_DEVICE=2),
            CUmemPoolProps=lambda: SimpleNamespace(location=SimpleNamespace()),
            CUmemAllocationType=SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED=1),
            CUmemLocationType=SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE=1),
            CUmemPool_attribute=SimpleNamespace(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD=4),
            cuuint64_t=int,
            CUresult=SimpleNamespace(CUDA_SUCCESS=OK),
            CUstreamCaptureMode=modes,
            CUfunction_attribute=limit,
            CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=1),
            cuLaunchKernelEx=self.launch,
        )

    # The driver -----------------------------------------------------------------------------------

    def launch(self, config: Any, handle: Any, table: int, extra: int) -> tuple[Any]:
        first = ctypes.c_void_p.from_address(table).value
        assert first
        with self.lock:
            self.launched.append((config.hStream, ctypes.string_at(first, self.args_bytes)))
        return (OK,)

    def forbidden_in_capture(self, function: str) -> None:
        if self.captures and getattr(self.modes, "mode", "global") != "relaxed":
            raise DriverError(function, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")

    def cuTensorMapReplaceAddress(self, encoded: int, address: int) -> None:
        """Maps begin with the address of what they describe."""
        assert encoded % 64 == 0
        ctypes.memmove(encoded, struct.pack("<Q", address), 8)

    def cuCtxGetCurrent(self) -> int:
        return self.context

    def cuCtxGetId(self, context: int) -> int:
        return context

    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> str:
        before = getattr(self.modes, "mode", "global")
        self.modes.mode = mode
        return before

    def cuMemAlloc(self, size: int) -> int:
        self.forbidden_in_capture("cuMemAlloc")
        with self.lock:
            if sum(self.memory.values()) + size > self.capacity:
                raise DriverError("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY")
            address = next(self.addresses)
            self.memory[address] = size
        return address

    def cuMemFree(self, address: int) -> None:
        self.forbidden_in_capture("cuMemFree")
        with self.lock:
            del self.memory[address]

    def cuStreamCreate(self, flags: int) -> int:
        assert flags == 1
        return PRIVATE

    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> None:
        assert value == 0
        if address not in self.memory:  # a caller's array
            self.filled.append((stream, address, size, len(self.launched)))
            return
        assert stream not in self.captures
        assert size == self.memory[address]
        self.zeroed.add(address)

    def cuMemAllocFromPoolAsync(self, size: int, pool: Any, stream: int) -> int:
        """What is captured belongs to the graph."""
        with self.lock:
            if sum(self.memory.values()) + size > self.capacity:
                raise DriverError("cuMemAllocFromPoolAsync", "CUDA_ERROR_OUT_OF_MEMORY")
            address = next(self.addresses)
            self.memory[address] = size
        return address

    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        with self.lock:
            del self.memory[address]

    def cuMemcpy2DAsync(self, given: Any, stream: int) -> None:
        with self.lock:
            assert given.dstPitch * given.Height == self.memory[given.dstDevice]
            self.copied.append((stream, given, len(self.launched)))

    def cuStreamSynchronize(self, stream: int) -> None:
        self.forbidden_in_capture("cuStreamSynchronize")
        assert stream not in self.captures

    def cuStreamIsCapturing(self, stream: int) -> int:
        return int(stream in self.captures)

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:
        return 1, self.captures[stream], None, [], 0

    def cuStreamGetId(self, stream: int) -> int:
        # The H200's driver says CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
        assert stream not in self.captures
        return stream + 7

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *_: Any) -> int:
        return self.resident

    def cuOccupancyMaxActiveClusters(self, *_: Any) -> int:
        return self.clusters
