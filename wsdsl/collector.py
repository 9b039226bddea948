"""Pause Python's cyclic garbage collector while a kernel is compiled.

Objects of a compile are freed at once, or live as long as the kernel: a search for cycles among
them, and all that was imported, takes a twentieth of the compile time and finds nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from wsdsl.lazy import after_fork


class _Held:
    """By how many threads, and whether it was on before."""

    def __init__(self) -> None:
        self.lock, self.threads, self.was_on = Lock(), 0, False

    def begin(self) -> None:
        with self.lock:
            if not self.threads:
                self.was_on = gc.isenabled()
                gc.disable()
            self.threads += 1

    def end(self) -> None:
        with self.lock:
            self.threads -= 1
            if not self.threads and self.was_on:
                gc.enable()

    def forked(self) -> None:
        """In a child, which has none of the threads that would end it."""
        if self.threads and self.was_on:
            gc.enable()
        self.__init__()


_held = _Held()
after_fork(_held.forked)


@contextmanager
def held_back() -> Generator[None]:
    """Until the last of the threads that ask for it is through."""
    _held.begin()
    try:
        yield
    finally:
        _held.end()
