"""What an entry is, and all of them by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wsdsl import Schedule

Threads = Literal["none", "all"] | tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A kernel to compile.

    text: of the kernel, and of the functions that it calls
    schedule: words of the Schedule by name; none for what the compiler chooses
    threads: tensors that TMA can not take, so that threads copy them
    padded: operands that are copied to longer rows in front of the launch
    """

    name: str
    text: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    schedule: Mapping[str, Any] = field(default_factory=dict)
    threads: Threads = "none"
    padded: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[Any, ...]:
        """What is compiled, without its name."""
        return (
            self.text, *(repr(sorted(held.items())) for held in (self.sizes, self.schedule)),
            self.threads, self.padded,
        )  # fmt: skip


def words(schedule: Schedule | None) -> dict[str, Any]:
    """The words that a schedule gives, as JSON can hold them."""
    given = schedule or Schedule()
    held = {f.name: (getattr(given, f.name), f.default) for f in dataclasses.fields(given)}
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, (value, default) in held.items()
        if value != default
    }


def corpus() -> list[Entry]:
    """Every entry once, always in the same order."""
    from tests.corpus import forms, generated, products, schedules

    found: dict[tuple[Any, ...], Entry] = {}
    for family in (forms, schedules, products, generated):
        for entry in family.entries():
            found.setdefault(entry.content, entry)
    return [*found.values()]
