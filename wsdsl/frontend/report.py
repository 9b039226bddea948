"""Gathers what is wrong with a kernel, so that all of it is reported at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from wsdsl.diagnostics import Finding, Loc
from wsdsl.frontend.entities import POISON, Poison


class Report:
    def __init__(self) -> None:
        self._found: list[tuple[Loc, Finding]] = []
        self._calls: list[tuple[str, Loc]] = []
        self._said: set[tuple[Loc, str]] = set()

    def __len__(self) -> int:
        return len(self._found)

    def error(self, message: str, loc: Loc, hint: str = "") -> Poison:
        """Note an error; the result stands for the value that it spoilt."""
        place = loc
        if (loc, message) in self._said:  # by another call of the same function
            return POISON
        self._said.add((loc, message))
        if self._calls:
            name, called = self._calls[-1]
            message = f"{message} (inside `{name}`, called at {called})"
            place = self._calls[0][1]
        self._found.append((place, Finding(message, loc, hint)))
        return POISON

    @contextmanager
    def inside(self, function: str, called: Loc) -> Generator[None]:
        self._calls.append((function, called))
        yield
        self._calls.pop()

    def in_order(self) -> list[Finding]:
        ordered = sorted(self._found, key=lambda f: (f[0].line, f[0].column))
        return [finding for _, finding in ordered]
