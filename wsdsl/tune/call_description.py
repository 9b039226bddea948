"""The description of a call for the process that measures it, as plain data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
