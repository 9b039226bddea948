"""Pause Python's cyclic garbage collector while a kernel is compiled.

Objects of a compile are freed at once, or live as long as the kernel: a search for cycles among
them, and all that was imported, takes a twentieth of the compile time and finds nothing.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from wsdsl.lazy import after_fork


class _Held:
    """By how many threads, and whether it was on before."""

    lock, threads, was_on = Lock(), 0, False


def _forked() -> None:
    """In a child, which has none of the threads that would end it."""
    if _Held.threads and _Held.was_on:
        gc.enable()
    _Held.lock, _Held.threads = Lock(), 0


after_fork(_forked)


@contextmanager
def held_back() -> Generator[None]:
    """Until the last of the threads that ask for it is through."""
    with _Held.lock:
        if not _Held.threads:
            _Held.was_on = gc.isenabled()
            gc.disable()
        _Held.threads += 1
    try:
        yield
    finally:
        with _Held.lock:
            _Held.threads -= 1
            if not _Held.threads and _Held.was_on:
                gc.enable()
