"""Find the tuning-cache entry that gives a kernel its schedule."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from wsdsl import config
from wsdsl.artifact.artifact import Declaration
from wsdsl.artifact.shape_bucket import shape_bucket
from wsdsl.diagnostics import ScheduleError
from wsdsl.records import text
from wsdsl.records.card import card_of
from wsdsl.records.database import Database, RecordsError, signature, tell_once, user_file
from wsdsl.records.entry import Key, Request, Row, agrees, promises
from wsdsl.schedule import Schedule


def find(declaration: Declaration, request: Request) -> Row | None:
    """The user's newest entry that agrees with the given fields, else a shipped one. Calls with
    constant tensors use an entry that was measured without, if none was measured with them.
    """
    if not config.TUNING_CACHE.get() or len(request.sizes) < len(declaration.dims):
        return None
    rows = _rows(declaration.digest)
    if not rows:
        return None
    key, given = key_of(declaration, request), request.schedule
    found = next((row for row in rows if row.key == key and _agrees(given, row)), None)
    if found is not None or given is None or given.pdl_independent is None:
        return found
    found = find(declaration, request._replace(schedule=replace(given, pdl_independent=None)))
    if found is None:
        return None
    # To load early takes a warpgroup more: how registers are shared out is decided anew.
    early = replace(found.whole, pdl_independent=given.pdl_independent, registers=given.registers)
    return replace(found, schedule=repr(early))


def key_of(declaration: Declaration, request: Request) -> Key:
    card = card_of((request.schedule or Schedule()).arch, request.num_sms)
    held = {"unaligned": request.unaligned, "copied": request.padded}
    alignment = "; ".join(f"{what} {', '.join(names)}" for what, names in held.items() if names)
    known, promised = (
        str(shape_bucket(declaration, dict(request.sizes))),
        promises(request.schedule),
    )
    return Key(declaration.digest, known, alignment, promised, card.name, card.num_sms)


def _agrees(given: Schedule | None, row: Row) -> bool:
    try:
        if fault := row.fault():
            tell_once(RecordsError(f"{row.name}: {fault}"))
        return not fault and agrees(given, row.whole)
    except (ValueError, ScheduleError):
        return False  # of a version with other fields


def _rows(kernel: str) -> list[Row]:
    own: list[Row] = []
    if (path := user_file()) is not None and (held := signature(path)):
        own = _users(path, held, kernel)
    return [*own, *_shipped().get(kernel, ())]


@lru_cache(maxsize=256)
def _users(path: Path, held: tuple[int, ...], kernel: str) -> list[Row]:
    """As the file is now."""
    try:
        return Database(path).chosen(kernel)
    except RecordsError as error:
        tell_once(error)
        return []


@lru_cache(maxsize=1)
def _shipped() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for path in text.shipped_files():
        try:
            for row in (row for row in text.read(path) if row.chosen):
                found.setdefault(row.kernel, []).append(row)
        except RecordsError as error:
            tell_once(error)
    return found
