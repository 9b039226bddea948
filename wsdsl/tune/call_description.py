"""The description of a call for the process that measures it. Everything here is plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Doing = Callable[[str], None]
"""Reports the schedule in measurement: a sign of life, and the culprit if the process stops."""


@dataclass(frozen=True)
class Argument:
    """A tensor of the call: fresh memory has its layout. `offset`: its address modulo 256. Tensors
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
class Spec:
    """`text` is the kernel at the level TILE; `index`, of the GPU."""

    text: str
    arguments: tuple[Argument, ...]
    scalars: Mapping[str, int | float]
    dims: Mapping[str, int]
    index: int = 0


class Card(Protocol):
    """The device, in the process that measures. The first one that is added is the incumbent, whose
    result the others' is compared with. Times are microseconds of a call.
    """

    def about(self) -> dict[str, Any]: ...

    def add(self, name: str, kept: bytes, doing: Doing) -> str:
        """Run the compiled kernel; return the fault of its result, or ""."""
        ...

    def check(self, name: str, doing: Doing) -> str:
        """The same, of all that it writes."""
        ...

    def drop(self, names: Sequence[str]) -> None: ...

    def bursts(self, names: Sequence[str], rounds: int, doing: Doing) -> dict[str, list[float]]:
        """In shuffled order, one burst of each in a round."""
        ...

    def sustained(self, names: Sequence[str], seconds: float, doing: Doing) -> dict[str, float]:
        """Alternate the kernels, for `seconds` in all."""
        ...
