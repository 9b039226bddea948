"""Traversal of graphs that may have cycles."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def reached(start: Iterable[T], after: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Yield `start` and all nodes that `after` leads to, each once, depth first."""
    ahead, seen = [*start], set[T]()
    while ahead:
        if (x := ahead.pop()) not in seen:
            seen.add(x)
            yield x
            ahead += after(x)
