"""A folder of cache entries, shared by processes, whose bytes are limited.

Errors of the disk (full, read-only, missing) only mean that entries are not cached. An entry
appears whole, by renaming, and is not synced: after a machine crash its checksum detects damage.
"""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wsdsl.regular_file import read_regular

SUFFIX, LOCK, PART = ".entry", ".lock", ".part"
LEFT_OVER_SECONDS = 3600.0
"""After which what a crashed process was writing, or had locked, is removed."""
LOCK_SECONDS = 120.0
"""After this wait a process computes the entry too: the lock's owner may be stopped, or remote."""
POLL_SECONDS = 0.02
BLOCK = 4096
"""Bytes that a file takes at least."""
LOOKS = 64
"""The folder is looked through when a process has written this part of what may be there."""


class File(NamedTuple):
    path: Path
    bytes: int
    used: float
    """When it was last read or written, in seconds since 1970."""

    @property
    def key(self) -> str:
        return self.path.stem


@dataclass
class Disk:
    """Entries by key. `limit`: bytes."""

    folder: Path
    limit: int
    written: int | None = None
    """Bytes since the folder was last looked through."""

    def read(self, key: str) -> bytes | None:
        """An entry's bytes, and it counts as used now."""
        path = self._path(key)
        try:
            data = read_regular(path)
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)
        return data

    def write(self, key: str, data: bytes) -> None:
        part = self.folder / f"{key}.{os.getpid()}.{time.monotonic_ns()}{PART}"
        try:
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            try:
                with open(part, "xb") as file:
                    file.write(data)
                os.replace(part, self._path(key))
            except OSError:
                with suppress(OSError):
                    part.unlink()
                return
        except OSError:
            return
        self.written = None if self.written is None else self.written + max(BLOCK, len(data))
        if self.written is None or self.written > self.limit // LOOKS:
            self.prune()

    def remove(self, key: str) -> None:
        with suppress(OSError):
            self._path(key).unlink()

    @contextmanager
    def lock(self, key: str) -> Generator[None]:
        """Allow one process (and thread) at a time, where files can be locked; a crash unlocks."""
        path = self.folder / f"{key}{LOCK}"
        held = self._locked(path)
        try:
            yield
        finally:
            if held is not None:
                with suppress(OSError):
                    path.unlink()
                _unlock(held)

    def _locked(self, path: Path) -> int | None:
        try:
            import fcntl
        except ImportError:  # Windows
            return None
        until = time.monotonic() + LOCK_SECONDS
        while time.monotonic() < until:
            try:
                self.folder.mkdir(0o700, parents=True, exist_ok=True)
                file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError:
                return None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The previous owner has removed this file; the next one creates another.
                if os.fstat(file).st_nlink:
                    return file
            except BlockingIOError:
                time.sleep(POLL_SECONDS)
            except OSError:
                os.close(file)
                return None
            os.close(file)
        return None

    def files(self) -> list[File]:
        """The entries, those used last first."""
        return sorted((f for f in self._all() if f.path.suffix == SUFFIX), key=lambda f: -f.used)

    def prune(self) -> None:
        """Remove what was not used for longest, if there is too much, and what crashes left."""
        self.written = 0
        now, kept = time.time(), 0
        for file in self._all():
            if file.path.suffix != SUFFIX and now - file.used > LEFT_OVER_SECONDS:
                _remove(file)
        files = self.files()
        if sum(file.bytes for file in files) <= self.limit:
            return
        # With some room, so that not every entry removes one.
        room = self.limit - self.limit // LOOKS
        for file in files:
            if kept + file.bytes > room:
                _remove(file)
            else:
                kept += file.bytes

    def clear(self) -> list[File]:
        """Remove all files; return the entries among them."""
        gone = self.files()
        for file in self._all():
            _remove(file)
        return gone

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def _all(self) -> list[File]:
        """All that is the cache's; nothing else of the folder is ever touched."""
        found: list[File] = []
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if not entry.name.endswith((SUFFIX, LOCK, PART)):
                    continue
                with suppress(OSError):  # another process may have removed it
                    held = entry.stat(follow_symlinks=False)
                    size = -(-held.st_size // BLOCK) * BLOCK
                    found.append(File(Path(entry.path), size, held.st_mtime))
        return found


def _unlock(file: int) -> None:
    """Closing it is not enough: a process that was forked meanwhile has it open, too."""
    import fcntl

    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def _remove(file: File) -> None:
    with suppress(OSError):
        file.path.unlink()
