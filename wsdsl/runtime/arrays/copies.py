"""Copy TMA-incompatible operands before a launch (`padding`); allocate the copies' memory."""

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from wsdsl.diagnostics import LaunchError
from wsdsl.lazy import remember
from wsdsl.runtime import driver
from wsdsl.runtime.arguments import Scalar
from wsdsl.runtime.arrays.padded_copies import Padded
from wsdsl.runtime.device import Context, EachContext, context_for, current, may_allocate
from wsdsl.runtime.packed_arguments import MapAt, PackedArguments

KEPT_BYTES = 1 << 30
"""Release threshold of the pool for copies: unused memory up to it stays reserved."""
MAX_KEPT = 16
"""Launches of a prepared call, by where their copies lie, whose arguments are remembered."""


def fits_in_memory(copies: Sequence[Padded], device: str) -> bool:
    """Whether the GPU has twice the copies' bytes free."""
    with current(context_for(int(device.removeprefix("cuda:")))), may_allocate():
        free, _ = driver.call("cuMemGetInfo")
    return 2 * sum(copy.bytes for copy in copies) <= free


class Copies:
    """The copies of a prepared call, before each launch, in memory that is allocated before and
    released after it in stream order. So launches on other streams, or by other threads, have
    separate memory, and a graph owns the memory of its launches.
    """

    def __init__(self, context: Context, padded: Mapping[str, Padded], map_at: MapAt) -> None:
        self._context, self._padded, self._map_at = context, padded, map_at
        self._pool = _pool(context)
        self._kept: dict[tuple[int, ...], tuple[PackedArguments, tuple[Any, ...]]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def made(self, packed: PackedArguments, stream: int) -> Generator[PackedArguments]:
        """Arguments that lead to the copies, for a launch inside."""
        held: list[int] = []
        with current(self._context):
            try:
                for copy in self._padded.values():
                    # One by one: if memory runs out, earlier allocations are released.
                    held.append(self._allocate(copy.bytes, stream))  # noqa: PERF401
                arguments, copies = self._arguments(packed, held)
                for copy in copies:
                    driver.call("cuMemcpy2DAsync", copy, stream)
                yield arguments
            finally:
                for address in held:
                    driver.call("cuMemFreeAsync", address, stream)

    def set_scalar(self, name: str, value: Scalar) -> None:
        """In what was made of arguments that have changed so already."""
        with self._lock:
            for arguments, _ in self._kept.values():
                arguments.set_scalar(name, value)

    def _allocate(self, bytes: int, stream: int) -> int:
        try:
            return int(driver.call("cuMemAllocFromPoolAsync", bytes, self._pool, stream))
        except driver.DriverError as error:
            if error.code != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            message = f"WS0730 out of memory: a TMA-incompatible operand is copied to {bytes} bytes"
            hint = "free memory, or give operands whose rows begin at multiples of 16 bytes"
            raise LaunchError(message, hint=hint) from None

    def _arguments(
        self, packed: PackedArguments, held: list[int]
    ) -> tuple[PackedArguments, tuple[Any, ...]]:
        key = (packed.address, *held)
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                pointers = dict(zip(self._padded, held, strict=True))
                arguments = packed.with_pointers(pointers, packed, self._map_at)
                copies = (copy.copy_to(pointers[name]) for name, copy in self._padded.items())
                found = remember(self._kept, key, (arguments, tuple(copies)), MAX_KEPT)
            return found


@EachContext
def _pool(context: Context) -> Any:
    """The memory pool of all copies on a GPU."""
    cuda = driver.api()
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = context.device.index
    threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    with current(context), may_allocate():
        found = driver.call("cuMemPoolCreate", wanted)
        driver.call("cuMemPoolSetAttribute", found, threshold, cuda.cuuint64_t(KEPT_BYTES))
    return found
