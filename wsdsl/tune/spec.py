"""What a process that measures is told of a call. Everything here is plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Doing = Callable[[str], None]
"""Tells what is measured now: a sign of life, and who is at fault if there is none."""


@dataclass(frozen=True)
class Argument:
    """A tensor of the call: fresh memory is laid out like its own. `offset`: its address modulo
    256. What the kernel reads holds random numbers, or `data`: numbers that say where work is.
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
        """Run what was compiled; what is wrong with its result, or ""."""
        ...

    def check(self, name: str, doing: Doing) -> str:
        """The same, of all that it writes."""
        ...

    def drop(self, names: Sequence[str]) -> None: ...

    def bursts(self, names: Sequence[str], rounds: int, doing: Doing) -> dict[str, list[float]]:
        """In shuffled order, one burst of each in a round."""
        ...

    def sustained(self, names: Sequence[str], seconds: float, doing: Doing) -> dict[str, float]:
        """Of `seconds`, in turn."""
        ...
