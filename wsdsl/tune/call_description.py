"""The description of a call for the process that measures it, as plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Progress = Callable[[str], None]
"""Reports the schedule in measurement; a watchdog names it if the process stops."""


@dataclass(frozen=True)
class Argument:
    """A tensor of the call, whose layout new memory gets. `offset`: its address modulo 256. Tensors
    that the kernel reads are random, or `data`: numbers that determine the work.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    is_read: bool
    is_written: bool
    data: bytes | None = None
    packed: bool = False


@dataclass(frozen=True)
class CallDescription:
    """`text` is the kernel at the level TILE; `index`, of the GPU."""

    text: str
    arguments: tuple[Argument, ...]
    scalars: Mapping[str, int | float]
    dims: Mapping[str, int]
    index: int = 0


class MeasuredDevice(Protocol):
    """The device, in the process that measures. The first kernel that is added is the incumbent;
    results are compared with its result. Times are microseconds per call.
    """

    def about(self) -> dict[str, Any]: ...

    def add(self, name: str, kept: bytes, progress: Progress) -> str:
        """Run the compiled kernel; return the fault of its result, or ""."""
        ...

    def check(self, name: str, progress: Progress) -> str:
        """Compare the complete outputs; return the fault, or ""."""
        ...

    def drop(self, names: Sequence[str]) -> None: ...

    def bursts(
        self, names: Sequence[str], rounds: int, progress: Progress
    ) -> dict[str, list[float]]:
        """Measure one burst of each kernel per round, in shuffled order."""
        ...

    def sustained(
        self, names: Sequence[str], seconds: float, progress: Progress
    ) -> dict[str, float]:
        """Alternate the kernels, for `seconds` in total."""
        ...
