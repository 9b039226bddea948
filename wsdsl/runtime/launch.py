"""Launching: `Launcher.prepare` resolves everything once, `Prepared()` is only the launch."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

from wsdsl.codegen.signature import MapArgument, Signature
from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.runtime import driver
from wsdsl.runtime.access import Access
from wsdsl.runtime.arguments import Scalar
from wsdsl.runtime.device import (
    Context,
    context_for,
    current,
    is_capturing,
    may_allocate,
    require_arch,
)
from wsdsl.runtime.module import Function, Module
from wsdsl.runtime.packing import PackedArguments
from wsdsl.runtime.streams import StreamOf, current_stream, given_stream, legacy_stream
from wsdsl.runtime.tensor_map import encode, tiled_map
from wsdsl.runtime.views import ArrayView

MAX_CTAS = 2**31 - 2**16
"""Of a work item each, or of a cluster each: a grid has no more, and kernels count items in i32 and
step past the last one."""

MAX_STREAMS = 64
ZEROS_BYTES = 256
RETRIED = {"CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_HANDLE"}
"""What a launch says when the kernel's context is not the current one."""


def num_ctas(
    signature: Signature, dims: Mapping[str, int], num_sms: int, max_clusters: int | None = None
) -> int:
    """The grid: a cluster each work item, "persistent" at most one CTA an SM; 0 where nothing is to
    do.

    `max_clusters`: how many can be resident. A cluster lies in one GPC, where SMs may be left over.
    """
    items = math.prod(-(-dims[dim] // size) for dim, size in signature.tiles)
    if items * signature.cluster > MAX_CTAS:
        sizes = ", ".join(f"{dim} = {dims[dim]} by {size}" for dim, size in signature.tiles)
        ctas = "a CTA" if signature.cluster == 1 else f"a cluster of {signature.cluster} CTAs"
        message = f"{signature.name} has {items} work items ({sizes}) for {ctas} each, expected "
        message += f"at most {MAX_CTAS} CTAs"
        raise LaunchError(Finding(message, hint="use larger tiles, or split the call"))
    clusters = items
    if signature.scheduler == "persistent":
        room = num_sms // signature.cluster
        room = room if max_clusters is None else min(room, max_clusters)
        clusters = min(clusters, max(1, room))
    return clusters * signature.cluster


def _early_start() -> Any:
    """The launch attribute of a kernel that waits for the one in front of it by itself."""
    cuda = driver.api()
    made = cuda.CUlaunchAttribute()
    made.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    made.value.programmaticStreamSerializationAllowed = 1
    return made


class Prepared:
    """A call of which only the launch is left. Calling it is safe from several threads, and inside
    the capture of a CUDA graph.

    It runs on the stream it was prepared with, else on what is the current stream at each call.
    """

    __slots__ = (
        "_configs",
        "_grid",
        "_handle",
        "_kernel",
        "_launch",
        "_packed",
        "_signature",
        "_stream_of",
        "_success",
        "_sync",
        "_table",
        "keepalive",
    )

    def __init__(
        self,
        signature: Signature,
        kernel: Function,
        grid: int,
        packed: PackedArguments,
        stream_of: StreamOf,
        *,
        sync: bool,
        keepalive: Any,
    ) -> None:
        cuda = driver.api()
        self._signature, self._kernel, self._grid = signature, kernel, grid
        self._handle, self._packed, self._table = kernel.handle, packed, packed.address
        self._stream_of, self._sync = stream_of, sync
        self._launch, self._success = cuda.cuLaunchKernelEx, cuda.CUresult.CUDA_SUCCESS
        self._configs: dict[int, Any] = {}
        self.keepalive = keepalive

    @property
    def notes(self) -> tuple[str, ...]:
        return self._kernel.notes

    @property
    def grid(self) -> int:
        return self._grid

    def __call__(self) -> None:
        if not self._grid:
            return
        stream = self._stream_of()
        config = self._configs.get(stream)
        if config is None:
            config = self._config(stream)
        status = self._launch(config, self._handle, self._table, 0)[0]
        if status != self._success:
            self._retry(config, status)
        if self._sync and not is_capturing(stream):
            driver.call("cuStreamSynchronize", stream)

    def set_scalar(self, name: str, value: Scalar) -> None:
        """Exchange a scalar argument for the next calls."""
        if not self._packed.set_scalar(name, value):
            raise LaunchError(f"{self._signature.name} takes no scalar {name!r}")

    def _config(self, stream: int) -> Any:
        config = driver.api().CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self._grid, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self._signature.threads, 1, 1
        config.sharedMemBytes = self._signature.smem_bytes
        config.hStream = stream
        attributes = [_early_start()] if self._signature.waits else []
        config.attrs, config.numAttrs = attributes, len(attributes)
        if len(self._configs) >= MAX_STREAMS:
            self._configs.clear()
        self._configs[stream] = config
        return config

    def _retry(self, config: Any, status: Any) -> None:
        """Launch once more with the kernel's own context current; this thread may have another."""
        if driver.name_of(status) in RETRIED:
            with current(self._kernel.context):
                status = self._launch(config, self._handle, self._table, 0)[0]
        if status != self._success:
            name, detail = driver.name_of(status), driver.describe(status)
            if name in RETRIED:
                where = self._kernel.context.device
                hint = f"the stream must belong to the arrays' device, {where}"
                message = f"the launch of {self._signature.name} failed: {name} ({detail})"
                raise LaunchError(Finding(message, hint=hint))
            raise driver.DriverError(f"the launch of {self._signature.name}", name, detail)


class Launcher:
    """One compiled kernel: its image (cubin bytes or PTX text), what it takes and what it does."""

    def __init__(
        self, image: bytes | str, signature: Signature, access: Access, arch: str = "sm_90a"
    ) -> None:
        self.signature, self.access, self.arch = signature, access, arch
        self.module = Module(image, signature.name, signature.smem_bytes)
        self._resident: dict[int, int] = {}

    def max_clusters(self, kernel: Function) -> int | None:
        """How many clusters the GPU holds at once; None where each is one CTA."""
        size, context = self.signature.cluster, kernel.context
        if size == 1:
            return None
        found = self._resident.get(context.id)
        if found is None:
            config = driver.api().CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = size, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = self.signature.threads, 1, 1
            config.sharedMemBytes = self.signature.smem_bytes
            config.numAttrs = 0
            with current(context):
                found = int(driver.call("cuOccupancyMaxActiveClusters", kernel.handle, config))
            self._resident[context.id] = found
        return found

    def prepare(
        self,
        views: Mapping[str, ArrayView],
        scalars: Mapping[str, Scalar],
        dims: Mapping[str, int],
        stream: Any = None,
        *,
        keepalive: bool = True,
    ) -> Prepared:
        """Load, encode and pack for arrays that `resolve` has checked and that are on a GPU.

        With `keepalive` the result holds the arrays; without, whoever keeps it sees to that.
        """
        first = next(iter(views.values()), None)
        context = context_for(first.device_index if first else 0)
        require_arch(context.device, self.arch)
        if stream is not None:
            handle = given_stream(stream)
            stream_of: StreamOf = lambda: handle  # noqa: E731
        else:
            stream_of = current_stream(first) if first else legacy_stream
        now = stream_of()
        kernel = self.module.function(context, now)
        room = self.max_clusters(kernel)
        grid = num_ctas(self.signature, dims, context.device.num_sms, room)
        zeros = _zeros(context, now) if grid and _needs_zeros(self.signature, views) else 0

        def map_bytes(argument: MapArgument, /) -> bytes:
            if not grid:
                return bytes(128)
            written = argument.tensor in self.access.writes
            return encode(tiled_map(views[argument.tensor], argument, written=written, zeros=zeros))

        packed = PackedArguments(self.signature.arguments, views, scalars, dims, map_bytes)
        # JAX knows of no stream but its own, so its outputs must be done when the call returns.
        sync = any(views[name].framework == "jax" for name in self.access.writes if name in views)
        held = tuple(v.keepalive for v in views.values()) if keepalive else ()
        return Prepared(self.signature, kernel, grid, packed, stream_of, sync=sync, keepalive=held)


_zero_buffers: dict[int, int] = {}
_zero_lock = threading.Lock()


def _needs_zeros(signature: Signature, views: Mapping[str, ArrayView]) -> bool:
    return any(isinstance(a, MapArgument) and views[a.tensor].is_empty for a in signature.arguments)


def _zeros(context: Context, stream: int) -> int:
    """Address of a few zero bytes, one buffer a context, for the maps of empty tensors."""
    with _zero_lock:
        found = _zero_buffers.get(context.id)
        if found is not None:
            return found
        if is_capturing(stream):
            message = "a tensor is empty for the first time, and a CUDA graph is being captured"
            hint = "call the kernel once with these arrays before the capture"
            raise LaunchError(Finding(message, hint=hint))
        with current(context), may_allocate():
            address = int(driver.call("cuMemAlloc", ZEROS_BYTES))
            driver.call("cuMemsetD8", address, 0, ZEROS_BYTES)
        _zero_buffers[context.id] = address
        return address
