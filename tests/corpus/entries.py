"""What an entry is, and all of them by name."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from wsdsl import Schedule, parse
from wsdsl.runtime.arrays.alignment import contiguous

Threads = Literal["none", "all"] | tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A kernel to compile.

    text: of the kernel, and of the functions that it calls
    schedule: words of the Schedule by name; none for what the compiler chooses
    threads: tensors that TMA can not take, so that threads copy them
    padded: operands that are copied to longer rows in front of the launch
    packed: tensors in fragment order (`Kernel.packed`)
    rejected: a part of the message by which the compiler rejects the entry
    """

    name: str
    text: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    schedule: Mapping[str, Any] = field(default_factory=dict)
    threads: Threads = "none"
    padded: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    rejected: str = ""

    @property
    def content(self) -> tuple[Any, ...]:
        """What is compiled, without its name."""
        return (
            self.text, *(repr(sorted(held.items())) for held in (self.sizes, self.schedule)),
            self.threads, self.padded, self.packed,
        )  # fmt: skip


def launched(name: str, text: str, sizes: Mapping[str, int], **fields: Any) -> Entry:
    """Return the entry of contiguous arrays: threads copy the tensors that TMA cannot."""
    kernel = [*vars(parse(text)).values()][-1]
    blocked = contiguous(kernel.params, kernel.access, sizes).tma_blocked()
    return Entry(name, text, sizes, threads=tuple(sorted(blocked)) or "none", **fields)


def words(schedule: Schedule | None) -> dict[str, Any]:
    """The words that a schedule gives, as JSON can hold them."""
    given = schedule or Schedule()
    held = {f.name: (getattr(given, f.name), f.default) for f in dataclasses.fields(given)}
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, (value, default) in held.items()
        if value != default
    }


def outcome_families() -> tuple[Any, ...]:
    """Return the families whose entries compile, or have an expected rejection."""
    from tests.corpus import library, memory_bound, texts

    return library, memory_bound, texts


@cache
def corpus() -> list[Entry]:
    """Every entry once, always in the same order."""
    from tests.corpus import forms, generated, products, schedules

    found: dict[tuple[Any, ...], Entry] = {}
    for family in (forms, schedules, products, generated, *outcome_families()):
        for entry in family.entries():
            found.setdefault(entry.content, entry)
    return [*found.values()]
