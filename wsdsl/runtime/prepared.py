"""A prepared call: its arguments are resolved and packed; a call only launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wsdsl.artifact.signature import Signature
from wsdsl.diagnostics import LaunchError
from wsdsl.dynamo import followed, marked, outside
from wsdsl.lazy import remember
from wsdsl.runtime import driver
from wsdsl.runtime.arguments import Scalar
from wsdsl.runtime.arrays.copies import Copies
from wsdsl.runtime.arrays.interop import count_writes
from wsdsl.runtime.arrays.streams import MAX_STREAMS, FixedStream, StreamOf, is_of_torch
from wsdsl.runtime.arrays.views import ArrayView, byte_range
from wsdsl.runtime.device import current, is_capturing
from wsdsl.runtime.loaded_module import Function
from wsdsl.runtime.native.launch_stub import Calls, Repetition, torch_api
from wsdsl.runtime.native.recorded_launches import Repeatable, recorder
from wsdsl.runtime.packed_arguments import PackedArguments
from wsdsl.runtime.workspace import Lending

RETRIED = {"CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_HANDLE"}
"""Errors of a launch if the kernel's context is not the current one."""


Fills = Mapping[str, tuple[int, int]]
"""Address and bytes of memory that is filled with zeros before each launch, by tensor."""


def fills_of(views: Mapping[str, ArrayView]) -> Fills:
    found = {name: byte_range(view) for name, view in views.items() if not view.is_empty}
    return {name: (low, high - low) for name, (low, high) in found.items()}


class Prepared:
    """A call whose arguments are resolved and packed. Calling it is safe from several threads, and
    inside the capture of a CUDA graph.

    It runs on the stream it was prepared with, else on the current stream of each call. With
    `lending` the arguments depend on the stream too. `movable`: arguments depend on the arrays by
    their addresses alone.
    """

    __slots__ = (
        "_configs",
        "_copies",
        "_early",
        "_fills",
        "_handle",
        "_kernel",
        "_launch",
        "_lending",
        "_movable",
        "_packed",
        "_repeat",
        "_signature",
        "_stream_of",
        "_success",
        "_sync",
        "_written",
        "grid",
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
        lending: Lending | None = None,
        copies: Copies | None = None,
        fills: Fills | None = None,
        movable: bool = True,
        written: tuple[Any, ...] = (),
    ) -> None:
        cuda = driver.api()
        self._signature, self._kernel, self.grid = signature, kernel, grid
        self._handle, self._packed = kernel.handle, packed
        self._stream_of, self._sync, self._lending = stream_of, sync, lending
        self._launch, self._success = cuda.cuLaunchKernelEx, cuda.CUresult.CUDA_SUCCESS
        self._configs: dict[int, Any] = {}
        self._copies, self._movable = copies, movable and copies is None
        self._fills: Fills = fills or {}
        # Constant operands are loaded without a wait, but no event shows that copies are complete,
        # and an early start after a fill is not defined.
        self._early = signature.waits and copies is None and not fills
        self.keepalive, self._written = keepalive, written
        self._repeat: Callable[[], Any] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return self._kernel.notes

    @property
    def movable(self) -> bool:
        """Whether `moved` returns a call."""
        return self._movable or self._idle

    def repeatable(self, copied: bool = True, filled: bool = False) -> Repeatable | None:
        """The launch of a call without other parts, or whose outputs are `filled` elsewhere."""
        more = (self._fills and not filled) or self._sync or not self.grid
        if more or not self._movable:
            return None
        config = self._new_config(0)
        if self._lending is not None:
            lent = self._lending.lent(self._stream_of())
            return lent and Repeatable(self._kernel, config, *lent, self._lending)
        packed = self._packed.copy() if copied else self._packed
        return Repeatable(self._kernel, config, packed)

    @property
    def _idle(self) -> bool:
        return not self.grid and not self._fills

    def __call__(self) -> None:
        if recorder.calls is not None:
            return None
        if self._repeat is None:
            self._repeat = self._repeating() or (lambda: NotImplemented)
        if self._repeat() is not NotImplemented:
            return None
        if followed():
            return outside(self.__call__)()
        if self._fills:
            self._fill(self._stream_of())
        if not self.grid:
            return None
        stream = self._stream_of()
        config = self._configs.get(stream)
        if config is None:
            config = remember(self._configs, stream, self._new_config(stream), MAX_STREAMS)
        # The memory stays allocated until the launch has been called, despite other threads.
        packed = self._packed if self._lending is None else self._lending.arguments(stream)
        if self._copies is None:
            self._start(config, packed.address)
        else:
            with self._copies.made(packed, stream) as packed:
                self._start(config, packed.address)
        if self._written:
            count_writes(self._written)
        if self._sync and not is_capturing(stream):
            driver.call("cuStreamSynchronize", stream)
        return None

    marked(__call__, skipped=True)

    def _repeating(self) -> Callable[[], Any] | None:
        """Return the launch by native code, for calls that users keep; None if more is needed."""
        fixed = self._stream_of.handle if isinstance(self._stream_of, FixedStream) else None
        if not self.keepalive or (fixed is None and not is_of_torch(self._stream_of)):
            return None
        api, call = torch_api(), self.repeatable(copied=False)
        if api is None or call is None:
            return None
        calls = Calls(api)
        calls.add((), {}, Repetition(call, written=self._written, stream=fixed))
        return calls.launch

    def _fill(self, stream: int) -> None:
        for address, size in self._fills.values():
            with current(self._kernel.context):
                driver.call("cuMemsetD8Async", address, 0, size, stream)

    def _start(self, config: Any, table: int) -> None:
        status = self._launch(config, self._handle, table, 0)[0]
        if status != self._success:
            self._retry(config, table, status)

    def moved(self, pointers: Mapping[str, int], scalars: Mapping[str, Scalar]) -> Prepared | None:
        """Return the call of arrays with equal geometry at other addresses, and of other numbers;
        None if arguments depend on more than addresses.
        """
        if self._idle:
            return self
        if not self._movable:
            return None
        made = object.__new__(Prepared)
        for name in Prepared.__slots__:
            setattr(made, name, getattr(self, name))
        made.keepalive = made._written = ()
        made._repeat = None
        made._packed = self._packed.moved(pointers, scalars)
        if self._fills:
            made._fills = {n: (pointers.get(n, at), size) for n, (at, size) in self._fills.items()}
        made._lending = self._lending and self._lending.moved(made._packed)
        return made

    def set_scalar(self, name: str, value: Scalar) -> None:
        """Change a scalar argument for the next calls."""
        if not (self._lending or self._packed).set_scalar(name, value):
            raise LaunchError(f"WS0761 {self._signature.name} has no scalar {name!r}")
        if self._copies is not None:
            self._copies.set_scalar(name, value)

    def _new_config(self, stream: int) -> Any:
        # CTAs that run together start when there is room for all, so not early.
        own, together = self._signature, self._signature.together
        attributes = [driver.launch_attribute(together)] if together or self._early else []
        return driver.launch_config(self.grid, own.threads, own.smem_bytes, stream, attributes)

    def _retry(self, config: Any, table: int, status: Any) -> None:
        """Launch once more with the kernel's own context current; this thread may have another."""
        if driver.name_of(status) in RETRIED:
            with current(self._kernel.context):
                status = self._launch(config, self._handle, table, 0)[0]
        if status != self._success:
            name, detail = driver.name_of(status), driver.describe(status)
            if name in RETRIED:
                where = self._kernel.context.device
                hint = f"give a stream of the arrays' device, {where}"
                message = f"WS0762 the launch of {self._signature.name} failed: {name} ({detail})"
                raise LaunchError(message, hint=hint)
            raise driver.DriverError(f"the launch of {self._signature.name}", name, detail)
