"""Cache results in the process, and on disk for later processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wsdsl import config
from wsdsl.artifact.versions import emitter
from wsdsl.lazy import after_fork

if TYPE_CHECKING:
    from wsdsl.artifact.disk import Disk

T = TypeVar("T")
MAX_VALUES = 512


class _ProcessCache:
    """Values cached in this process, and locks of the keys that its threads are computing."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.forked()

    def forked(self) -> None:
        """Drop the locks: threads that hold them are not in the child."""
        self.computing: dict[str, threading.RLock] = {}
        self.lock = threading.Lock()


_process = _ProcessCache()
after_fork(_process.forked)


def get_or_compute(key: str | None, kind: type[T], make: Callable[[], T]) -> T:
    """Return the value cached under `key`, or computed by `make`, in one thread and process at a
    time. Without a key, or while passes are dumped, `make` runs each time.
    """
    if key is None or config.DUMP.get() is not None:
        return make()
    found = lookup(key, kind)
    if found is not None:
        return found
    with _one_at_a_time(key):
        found = lookup(key, kind)
        if found is None:
            found = make()
            _store(key, found)
        return found


def lookup(key: str | None, kind: type[T]) -> T | None:
    """Return the value cached under `key`, or None."""
    if key is None or config.DUMP.get() is not None:
        return None
    found = _process.values.get(key)
    if found is None:
        place = disk()
        data = None if place is None else place.read(key)
        if data is None:
            return None
        from wsdsl.artifact.serialization import CorruptError, from_bytes

        try:
            found = from_bytes(key, data).value
        except CorruptError:
            return None
        _remember(key, found)
    return found if isinstance(found, kind) else None


def forget() -> None:
    """Clear the cache of this process; entries on disk stay."""
    with _process.lock:
        _process.values.clear()


def disk() -> Disk | None:
    """Return the cache on disk; None if it is off."""
    folder = config.CACHE_DIR.get()
    return None if folder is None else _disk_at(folder, config.CACHE_MIB.get() << 20)


@cache
def _disk_at(folder: Path, limit: int) -> Disk:
    from wsdsl.artifact.disk import Disk

    return Disk(folder, limit)


def _store(key: str, value: Any) -> None:
    _remember(key, value)
    if (place := disk()) is not None:
        from wsdsl.artifact.serialization import Entry, to_bytes

        place.write(key, to_bytes(Entry(key, emitter() or "", value)))


def _remember(key: str, value: Any) -> None:
    with _process.lock:
        if len(_process.values) >= MAX_VALUES:
            del _process.values[next(iter(_process.values))]
        _process.values[key] = value


@contextmanager
def _one_at_a_time(key: str) -> Generator[None]:
    with _process.lock:
        lock_of_key = _process.computing.setdefault(key, threading.RLock())
    try:
        with lock_of_key:
            place = disk()
            if place is None:
                yield
                return
            with place.lock(key):
                yield
    finally:
        with _process.lock:
            _process.computing.pop(key, None)
