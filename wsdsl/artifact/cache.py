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
MAX_HELD = 512


class _Process:
    """Values cached in this process, and locks of the keys that its threads are computing."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.forked()

    def forked(self) -> None:
        """Threads that were making something are not in the child."""
        self.making: dict[str, threading.RLock] = {}
        self.lock = threading.Lock()


_own = _Process()
after_fork(_own.forked)


def kept(key: str | None, kind: type[T], make: Callable[[], T]) -> T:
    """The value cached under `key`, or computed by `make`, in one thread and process at a time.
    Without a key, or while passes are dumped, `make` runs each time.
    """
    if key is None or config.DUMP.get() is not None:
        return make()
    found = look(key, kind)
    if found is not None:
        return found
    with _one_at_a_time(key):
        found = look(key, kind)
        if found is None:
            found = make()
            _keep(key, found)
        return found


def look(key: str | None, kind: type[T]) -> T | None:
    """The value cached under `key`, or None."""
    if key is None or config.DUMP.get() is not None:
        return None
    found = _own.held.get(key)
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
        _hold(key, found)
    return found if isinstance(found, kind) else None


def forget() -> None:
    """Clear the cache of this process; entries on disk stay."""
    with _own.lock:
        _own.held.clear()


def disk() -> Disk | None:
    """Where entries are kept; None for nowhere."""
    folder = config.CACHE_DIR.get()
    return None if folder is None else _disk_at(folder, config.CACHE_MIB.get() << 20)


@cache
def _disk_at(folder: Path, limit: int) -> Disk:
    from wsdsl.artifact.disk import Disk

    return Disk(folder, limit)


def _keep(key: str, made: Any) -> None:
    _hold(key, made)
    if (place := disk()) is not None:
        from wsdsl.artifact.serialization import Entry, to_bytes

        place.write(key, to_bytes(Entry(key, emitter() or "", made)))


def _hold(key: str, value: Any) -> None:
    with _own.lock:
        if len(_own.held) >= MAX_HELD:
            del _own.held[next(iter(_own.held))]
        _own.held[key] = value


@contextmanager
def _one_at_a_time(key: str) -> Generator[None]:
    with _own.lock:
        own = _own.making.setdefault(key, threading.RLock())
    try:
        with own:
            place = disk()
            if place is None:
                yield
                return
            with place.lock(key):
                yield
    finally:
        with _own.lock:
            _own.making.pop(key, None)
