"""Launches that native code can repeat, and recording of those of a call."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from wsdsl.artifact.signature import MapArgument, PointerArgument, ScalarArgument
from wsdsl.ir.types import DType
from wsdsl.record import record
from wsdsl.runtime.loaded_module import Function
from wsdsl.runtime.packed_arguments import PackedArguments
from wsdsl.runtime.workspace import Lending


@record
class Repeatable:
    """A launch with its own arguments and CUlaunchConfig, which native code writes in place. With a
    workspace it holds for one stream, by its id, and until `is_valid` has the value 0.
    """

    kernel: Function
    config: Any
    packed: PackedArguments
    stream_id: int = 0
    is_valid: Any = None
    lending: Lending | None = None

    def pointers(self) -> Iterator[tuple[str, int, bool]]:
        """Tensor, address of its pointer or tensor map, and whether it is a map."""
        for argument, at in self.packed.places():
            if isinstance(argument, (MapArgument, PointerArgument)):
                yield argument.tensor, at, isinstance(argument, MapArgument)

    def scalars(self) -> Iterator[tuple[str, int]]:
        """Scalar, and its address."""
        for argument, at in self.packed.places():
            if isinstance(argument, ScalarArgument):
                yield argument.name, at


class Used(NamedTuple):
    """A tensor of the kernel: which argument it is, and the bytes from its address that it is."""

    param: str
    argument: int
    low: int
    high: int
    written: bool


class Launched(NamedTuple):
    """A launch: its tensors, and by name their addresses, types of scalars and their values.
    `repeatable` returns it for native code, or None.
    """

    tensors: tuple[Used, ...]
    pointers: Mapping[str, int]
    dtypes: Mapping[str, DType]
    scalars: Mapping[str, Any]
    repeatable: Callable[[], Repeatable | None]


class Recorder(threading.local):
    """The launches of a call that is recorded in this thread, else None."""

    launches: list[Launched] | None = None
    calls: dict[Any, Any] | None = None
    """Compile jobs of this thread's `wsdsl.precompiling` block, in which nothing is launched."""


recorder = Recorder()
recordings: list[None] = []
"""An item per block of any thread that records. A look at it is faster than one at `recorder`."""


@contextmanager
def recorded() -> Generator[list[Launched]]:
    """Record the launches of this thread in the block."""
    before, found = recorder.launches, list[Launched]()
    recorder.launches = found
    recordings.append(None)
    try:
        yield found
    finally:
        recordings.pop()
        recorder.launches = before
        if before is not None:
            before += found
