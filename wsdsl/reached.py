"""Walks of graphs that have circles."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def reached(start: Iterable[T], after: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """The start, and all that comes after what is reached; each once, the last found first."""
    ahead, seen = [*start], set[T]()
    while ahead:
        if (x := ahead.pop()) not in seen:
            seen.add(x)
            yield x
            ahead += after(x)
