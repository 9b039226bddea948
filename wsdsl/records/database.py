"""The user's measurements: one SQLite file, which many processes write.

A file that cannot be read is reported once and counts as empty: no compile fails by it. A
connection lives for one query, so forks and threads share none, and a killed process leaves no
lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wsdsl import config
from wsdsl.diagnostics import warn_once
from wsdsl.records.entry import COLUMNS, Key, Row, row_from

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
VERSION = 1
"""Of the table. A file of another version is left as it is, and not used."""
FILE = "records.db"
BUSY_SECONDS = 10.0
"""How long a write waits for others'."""
LOOK_SECONDS = 0.5
"""How long a compile does."""
IDENTITY = (*Key._fields, "emitter", "schedule")
SQL_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL", bool: "INTEGER"}


class RecordsError(Exception):
    """A file of the tuning cache cannot be read or written."""


def user_file() -> Path | None:
    """Where measurements are kept; None where nothing is."""
    folder = config.CACHE_DIR.get()
    return None if folder is None else folder / FILE


class Database:
    """The user's tuning cache. RecordsError if its file cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, rows: Iterable[Row]) -> None:
        """In place of older measurements of the same."""
        names = ", ".join(COLUMNS)
        holes = ", ".join("?" * len(COLUMNS))
        sql = f"INSERT OR REPLACE INTO measurements ({names}) VALUES ({holes})"
        with self._writing() as connection:
            connection.executemany(
                sql, [tuple(getattr(row, name) for name in COLUMNS) for row in rows]
            )

    def merge(self, rows: Iterable[Row]) -> int:
        """Those that are newer than what is here of the same; how many."""
        known = {_identity(row): row.date for row in self.rows()}
        newer = [row for row in rows if row.date > known.get(_identity(row), "")]
        self.add(newer)
        return len(newer)

    def choose(self, row: Row) -> None:
        """Choose by this measurement, and by no other of the same key."""
        where = " AND ".join(f"{name} = ?" for name in Key._fields)
        with self._writing() as connection:
            connection.execute(f"UPDATE measurements SET chosen = 0 WHERE {where}", row.key)
        self.add([row])

    def rows(self, key: Key | None = None) -> list[Row]:
        """Of one key, or all."""
        where, given = "", ()
        if key is not None:
            where, given = " AND ".join(f"{name} = ?" for name in Key._fields), tuple(key)
        return self._read(where, given, BUSY_SECONDS)

    def chosen(self, kernel: str) -> list[Row]:
        """By which calls of a kernel are chosen, the newest first."""
        return self._read("kernel = ? AND chosen ORDER BY date DESC", (kernel,), LOOK_SECONDS)

    def clear(self) -> int:
        """Remove all; how many there were."""
        try:
            num = len(self.rows())
        except RecordsError:
            num = 0
        for path in (self.path, self.path.with_name(f"{self.path.name}-journal")):
            _guarded(self.path, lambda path=path: path.unlink(missing_ok=True))
        return num

    def _read(self, where: str, given: Sequence[Any], seconds: float) -> list[Row]:
        names = ", ".join(COLUMNS)
        sql = f"SELECT {names} FROM measurements" + (f" WHERE {where}" if where else "")

        def read() -> list[Row]:
            if not self.path.exists():
                return []
            with closing(_opened(self.path, "ro", seconds)) as connection:
                if not _version(connection):
                    return []  # somebody is about to make the table
                held = connection.execute(sql, given).fetchall()
            return [row_from(dict(zip(COLUMNS, values, strict=True))) for values in held]

        return _guarded(self.path, read)

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        def connected() -> sqlite3.Connection:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            made = _opened(self.path, "rwc", BUSY_SECONDS)
            if not _version(made):
                _make_table(made)
            return made

        connection = _guarded(self.path, connected)
        with closing(connection):
            import sqlite3

            try:
                with connection:
                    yield connection
            except (sqlite3.Error, OSError, OverflowError) as error:
                raise RecordsError(f"{self.path}: {error}") from None


def _opened(path: Path, mode: str, seconds: float) -> sqlite3.Connection:
    import sqlite3

    for each in (path, *(path.with_name(f"{path.name}-{end}") for end in ("journal", "wal"))):
        if each.exists() and not each.is_file():
            raise OSError(f"{each.name} is not a regular file")
    given = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(given, uri=True, timeout=seconds)


def _version(connection: sqlite3.Connection) -> int:
    """0 of an empty file. ValueError for another than ours."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise ValueError(f"its version is {version}, expected {VERSION}")
    return version


def _make_table(connection: sqlite3.Connection) -> None:
    columns = ", ".join(f"{n} {SQL_TYPES[kind]} NOT NULL" for n, kind in COLUMNS.items())
    key = f"PRIMARY KEY ({', '.join(IDENTITY)})"
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"CREATE TABLE IF NOT EXISTS measurements ({columns}, {key})")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _guarded(path: Path, work: Callable[[], T]) -> T:
    import sqlite3

    try:
        return work()
    except (sqlite3.Error, OSError, ValueError, KeyError) as error:
        raise RecordsError(f"{path}: {error}") from None


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in IDENTITY)


def tell_once(error: RecordsError) -> None:
    warn_once(f"the tuning cache is not used: {error}; `wsdsl tuning-cache clear` empties it")


def signature(path: Path) -> tuple[int, ...]:
    """Changes when the file does."""
    try:
        held = os.stat(path)
    except OSError:
        return ()
    return held.st_mtime_ns, held.st_size, held.st_ino
