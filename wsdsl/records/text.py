"""The tuning cache as CSV text, one sorted line per entry; `shipped/NAME.csv` are such files."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from wsdsl.records.database import Database, RecordsError
from wsdsl.records.entry import COLUMNS, Row, row_from
from wsdsl.regular_file import read_regular

SHIPPED = Path(__file__).parent / "shipped"
SUFFIX = ".csv"


def shipped_files() -> list[Path]:
    return sorted(SHIPPED.glob(f"*{SUFFIX}"))


def to_text(rows: Iterable[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in sorted(rows, key=lambda r: (r.card, r.name, r.key, r.schedule)):
        writer.writerow([_shown(getattr(row, name)) for name in COLUMNS])
    return out.getvalue()


def _shown(held: object) -> object:
    if isinstance(held, float):
        return f"{held:.5g}"
    return int(held) if isinstance(held, bool) else held


def from_text(text: str) -> list[Row]:
    """Parse rows. ValueError or KeyError for another text."""
    return [row_from(held) for held in csv.DictReader(io.StringIO(text), strict=True)]


def read(path: Path) -> list[Row]:
    """Of a file of text, or a database. RecordsError where it is neither."""
    try:
        if path.suffix == SUFFIX:
            return from_text(read_regular(path).decode())
        read_regular(path)
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise RecordsError(f"{path}: {type(error).__name__}: {error}") from None
    return Database(path).rows()
