"""Allocate workspaces: GMEM for the kernel's tensors that no caller passes.

Launches that run one after the other share it: those of one kernel on one stream. Launches that
overlap by an early start (programmatic dependent launch) access it only after
`griddepcontrol.wait`, when the launch before is complete. A graph may be replayed at any time, also
concurrently with launches on the stream that it was captured from: each capture has its own memory.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

from wsdsl.artifact.signature import Signature
from wsdsl.diagnostics import LaunchError
from wsdsl.ir.hardware.gmem_limits import MAX_SIZE
from wsdsl.runtime import driver
from wsdsl.runtime.arguments import Scalar
from wsdsl.runtime.arrays.streams import MAX_STREAMS, Place, place_of
from wsdsl.runtime.arrays.views import ArrayView, contiguous_strides
from wsdsl.runtime.device import Context, EachContext, current, may_allocate, new_stream
from wsdsl.runtime.packed_arguments import PackedArguments


class Need(NamedTuple):
    """Memory for one workspace tensor."""

    name: str
    bytes: int
    zeroed: bool


class LaunchWorkspace(NamedTuple):
    """The workspace of a launch: sizes of the named dimensions, tensors without an address yet, and
    the memory that they need.
    """

    dims: dict[str, int]
    views: dict[str, ArrayView]
    needs: tuple[Need, ...]


def lent_for(signature: Signature, slots: int) -> LaunchWorkspace:
    """The workspace of a launch in which `slots` tiles are split along K."""
    lent = LaunchWorkspace({}, {}, ())
    needs: list[Need] = []
    for tensor in signature.lent:
        first, *rest = tensor.type.dims
        assert isinstance(first, str)
        lines = tensor.each * max(1, slots)
        if lines > MAX_SIZE:
            raise _no_memory(signature.name, f"{lines} rows", tensor.name, slots)
        shape = (lines, *(n for n in rest if isinstance(n, int)))
        assert len(shape) == len(tensor.type.dims)
        strides = contiguous_strides(shape)
        lent.dims[first] = lines
        lent.views[tensor.name] = ArrayView(0, tensor.type.dtype, shape, strides, "cuda:0")
        bytes = math.prod(shape) * tensor.type.dtype.bytes
        needs.append(Need(tensor.name, bytes, tensor.zeroed))
    return lent._replace(needs=tuple(needs))


def _no_memory(kernel: str, amount: str, tensor: str, slots: int | None = None) -> LaunchError:
    why = "" if slots is None else f", for {slots} tiles of split contractions"
    hint = 'use fewer splits, larger tiles, scheduler="persistent", or a smaller problem'
    return LaunchError(f"WS0767 {kernel} needs {amount} for workspace {tensor}{why}", hint=hint)


class Buffer:
    """GMEM that is freed when nothing refers to it; cuMemFree waits for kernels that still run."""

    __slots__ = ("__weakref__", "_free", "address", "bytes")

    def __init__(self, context: Context, bytes: int, *, zeroed: bool) -> None:
        self.bytes = bytes
        with current(context), may_allocate():
            self.address = int(driver.call("cuMemAlloc", bytes))
            self._free = weakref.finalize(self, _free, context, self.address)
            # When the process ends all is freed anyway, and the driver may be gone by then.
            self._free.atexit = False
            if zeroed:
                _zero(context, self.address, bytes)

    def keep(self) -> None:
        """Never free it."""
        self._free.detach()


def _free(context: Context, address: int) -> None:
    # The context may have been destroyed, and its memory with it.
    with suppress(LaunchError), current(context), may_allocate():
        driver.call("cuMemFree", address)


@EachContext
def _private_stream(_: Context) -> Any:
    return new_stream()


def _zero(context: Context, address: int, bytes: int) -> None:
    """Zero the bytes on a private non-blocking stream, so that the memset is not captured into a
    graph; it is complete on return.
    """
    stream = _private_stream(context)
    driver.call("cuMemsetD8Async", address, 0, bytes, stream)
    driver.call("cuStreamSynchronize", stream)


class Workspaces:
    """The memory of one kernel: in each place one buffer a tensor, as large as was ever needed.
    Buffers that are too small go: prepared calls ask again.
    """

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self._held: dict[tuple[int, int], dict[str, Buffer]] = {}
        self._captured: dict[tuple[int, Place], dict[str, Buffer]] = {}
        self._lock = threading.Lock()
        self._lendings: weakref.WeakSet[Lending] = weakref.WeakSet()

    def know(self, lending: Lending) -> None:
        """It will be told to let go of buffers that are replaced."""
        with self._lock:
            self._lendings.add(lending)

    def lend(self, context: Context, place: Place, needs: tuple[Need, ...]) -> tuple[Buffer, ...]:
        """A buffer for each need. LaunchError where memory does not suffice."""
        with self._lock:
            if place.capture is not None:
                held = self._captured.setdefault((context.id, place), {})
            else:
                key = context.id, place.stream
                held = self._held.pop(key, None) or {}
                if len(self._held) >= MAX_STREAMS:
                    oldest = next(iter(self._held))
                    del self._held[oldest]
                    self._forget(Place(oldest[1], None))
                self._held[key] = held
            for need in needs:
                found = held.pop(need.name, None)
                if found is None or found.bytes < need.bytes:
                    # Release first: the old and the new buffer may not both fit.
                    found = None
                    self._forget(place)
                    found = self._allocate(context, need)
                    if place.capture is not None:
                        # The graph, like the kernel's code, may outlive this object.
                        found.keep()
                held[need.name] = found
            return tuple(held[need.name] for need in needs)

    def holds(self, context: Context, place: Place, buffers: tuple[Buffer, ...]) -> bool:
        """Whether these have not been replaced meanwhile."""
        with self._lock:
            held = self._held.get((context.id, place.stream), {})
            return all(any(b is own for own in held.values()) for b in buffers)

    def _forget(self, place: Place) -> None:
        for lending in self._lendings:
            lending.forget(place)

    def _allocate(self, context: Context, need: Need) -> Buffer:
        try:
            return Buffer(context, need.bytes, zeroed=need.zeroed)
        except driver.DriverError as error:
            if error.code != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            amount = f"{need.bytes} bytes of device memory"
            raise _no_memory(self.kernel, amount, need.name) from None


class Lent(NamedTuple):
    """Arguments on one stream, until `is_valid` has the value 0."""

    packed: PackedArguments
    stream_id: int
    is_valid: ctypes.c_int64


class Lending:
    """A prepared call's arguments, for every place where it is launched. Threads may share it."""

    __slots__ = "__weakref__", "_context", "_lent", "_lock", "_needs", "_owner", "_packed", "_ready"

    def __init__(
        self,
        workspaces: Workspaces,
        context: Context,
        needs: tuple[Need, ...],
        packed: PackedArguments,
    ) -> None:
        self._owner, self._context, self._needs = workspaces, context, needs
        self._packed = packed
        self._ready: dict[Place, PackedArguments] = {}
        self._lent: dict[Place, Lent] = {}
        self._lock = threading.Lock()
        workspaces.know(self)

    def forget(self, place: Place) -> None:
        """Takes no lock: a thread in `_make`, which has it, may wait for the workspaces' lock."""
        if (lent := self._lent.pop(place, None)) is not None:
            lent.is_valid.value = 0
        self._ready.pop(place, None)

    def lent(self, stream: int) -> Lent | None:
        """A copy of the arguments for native code; None for a stream without a launch before this,
        and during the capture of a CUDA graph.
        """
        place = place_of(stream)
        with self._lock:
            held, made = self._ready.get(place), self._lent.get(place)
            if held is None or made is not None:
                return made
            made = self._lent[place] = Lent(held.copy(), place.stream, ctypes.c_int64(1))
            if self._ready.get(place) is not held:
                self.forget(place)
            return made

    def arguments(self, stream: int) -> PackedArguments:
        """To be held until the launch has been called."""
        try:
            place = place_of(stream)
        except driver.DriverError:
            # This thread may have another context, or none.
            with current(self._context):
                place = place_of(stream)
        found = self._ready.get(place)
        return found if found is not None else self._make(place)

    def _make(self, place: Place) -> PackedArguments:
        with self._lock:
            buffers = self._owner.lend(self._context, place, self._needs)
            pointers = {n.name: b.address for n, b in zip(self._needs, buffers)}
            made = self._packed.with_pointers(pointers, buffers)
            # A capture copies arguments into the graph, and is rare.
            if place.capture is None:
                if len(self._ready) >= MAX_STREAMS:
                    for known in list(self._ready):
                        self.forget(known)
                self._ready[place] = made
                if not self._owner.holds(self._context, place, buffers):
                    self.forget(place)
            return made

    def moved(self, packed: PackedArguments) -> Lending:
        """The same memory for other arguments."""
        return Lending(self._owner, self._context, self._needs, packed)

    def set_scalar(self, name: str, value: Scalar) -> bool:
        with self._lock:
            known = self._packed.set_scalar(name, value)
            native = [lent.packed for lent in list(self._lent.values())]
            for packed in [*self._ready.values(), *native]:
                packed.set_scalar(name, value)
            return known
