"""The hardware parameters of one GPU as a JSON file, which is shipped with the package
(`shipped/`) or written by `wsdsl calibrate` on the user's machine.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wsdsl import config
from wsdsl.rates.rates import DESCRIBED, Rates, with_values
from wsdsl.regular_file import read_regular

SHIPPED = Path(__file__).parent / "shipped"
SUFFIX = ".json"


@dataclass(frozen=True)
class Card:
    """The GPU of a file, by the driver's name and by its size, since some GPUs of a name have less
    memory than others, or are a part of a GPU.
    """

    device: str
    target: str
    """`Target.name`."""
    num_sms: int
    memory_bytes: int
    """How much it has."""

    @property
    def file_name(self) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", self.device.lower()).strip("-")
        return f"{name}-{self.num_sms}-{self.memory_bytes >> 30}{SUFFIX}"


@dataclass(frozen=True)
class RatesFile:
    """`sources`: for each rate where it comes from."""

    card: Card
    values: Mapping[str, float]
    sources: Mapping[str, str]
    about: Mapping[str, str] = field(default_factory=dict[str, str])
    """When, and by what."""

    def rates(self, origin: str, notice: str = "") -> Rates:
        return with_values(self.values, origin, notice)

    def text(self) -> str:
        rows = {
            d.name: {"value": self.values[d.name], "unit": d.unit, "source": self.sources[d.name]}
            for d in DESCRIBED
        }
        head = {"card": asdict(self.card), "about": dict(self.about)}
        lines = [json.dumps(name) + ": " + json.dumps(row) for name, row in rows.items()]
        body = ",\n    ".join(lines)
        return json.dumps(head, indent=2)[:-2] + f',\n  "rates": {{\n    {body}\n  }}\n}}\n'


def read(path: Path) -> RatesFile:
    """OSError where it cannot be read, ValueError for other files, and for other rates than
    there are."""
    try:
        held: Any = json.loads(read_regular(path))
        card = Card(**held["card"])
        values = {name: float(row["value"]) for name, row in held["rates"].items()}
        sources = {name: str(row["source"]) for name, row in held["rates"].items()}
        about = {str(key): str(value) for key, value in held["about"].items()}
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    with_values(values, "")
    return RatesFile(card, values, sources, about)


def write(path: Path, file: RatesFile) -> None:
    """The file appears whole, also with concurrent writers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}.part")
    try:
        part.write_text(file.text(), encoding="utf-8")
        os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink()


def folder() -> Path | None:
    """Return the folder of `wsdsl calibrate`'s files; None without a cache."""
    cache = config.CACHE_DIR.get()
    return None if cache is None else cache / "rates"


def of_folder(place: Path | None) -> list[Path]:
    """The files there; none where it cannot be listed."""
    with suppress(OSError):
        return sorted(place.glob(f"*{SUFFIX}")) if place else []
    return []


def shipped() -> tuple[RatesFile, ...]:
    return tuple(read(path) for path in sorted(SHIPPED.glob(f"*{SUFFIX}")))
