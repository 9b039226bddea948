"""`cached_property` for several threads and for forks.

Before Python 3.12, functools.cached_property computes under one lock for all instances: threads
block each other, and a fork meanwhile leaves the lock taken in the child for ever. Since 3.12 two
threads may get different values. Here two threads may both compute, but all get the value that was
stored first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
V = TypeVar("V")
if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801
        def __init__(self, compute: Any) -> None:
            self.compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.name, self.compute(instance))


def of_each(make: Callable[[K], V]) -> Callable[[K], V]:
    """`make`, once for each object as long as there is one."""
    known = WeakKeyDictionary[K, V]()

    @wraps(make)
    def found(one: K) -> V:
        if one not in known:
            known[one] = make(one)
        return known[one]

    return found


def remember(known: dict[K, V], key: K, value: V, most: int) -> V:
    """Add to a cache, which is emptied before it has more than `most` entries."""
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value


def after_fork(call: Callable[[], object]) -> None:
    """Have a fork of this process call it, where a system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
