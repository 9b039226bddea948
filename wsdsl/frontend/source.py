"""Where a kernel's text comes from, and how its positions become `Loc`s of the user's file."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from wsdsl.diagnostics import Finding, Loc
from wsdsl.frontend.entities import POISON, Poison


def in_brackets(text: str) -> str:
    """An expression as an operand."""
    return text if re.fullmatch(r"[\w.]+(\[[^][]*\])?", text) else f"({text})"


@dataclass(frozen=True)
class Source:
    """`text` is parsed as it stands in `file`, indentation included, so columns need no repair;
    its first line is the file's line `first_line`."""

    file: str
    text: str
    first_line: int = 1
    lines: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # As in Python, text before a form feed is not indentation.
        object.__setattr__(self, "text", re.sub(r"(?m)^[ \t\f]*\f", "", self.text))
        object.__setattr__(self, "lines", tuple(self.text.split("\n")))

    def loc(self, line: int, column: int, end_line: int, end: int) -> Loc:
        """A span of `text`, 1-based; one of several lines ends with its first."""
        text = self.lines[line - 1].rstrip() if line <= len(self.lines) else ""
        if end_line != line:
            end = len(text) + 1
        return Loc(self.file, line + self.first_line - 1, column, max(end, column + 1), text)

    @property
    def indentation(self) -> int:
        """How far the whole text is indented (a nested function, a triple-quoted string)."""
        for line in self.lines:
            stripped = line.lstrip(" \t")
            if stripped and not stripped.startswith("#"):
                margin = line[: len(line) - len(stripped)]
                return margin.count(" ") + margin.count("\t") * 8
        return 0


class Report:
    def __init__(self) -> None:
        self._found: list[tuple[Loc, Finding]] = []
        self._calls: list[tuple[str, Loc]] = []
        self._said: set[tuple[Loc, str]] = set()
        self.written: dict[str, str] = {}
        """Names of axes that are not as the text has them: `k__1` is the second `k`."""

    def __len__(self) -> int:
        return len(self._found)

    def error(self, message: str, loc: Loc, hint: str = "") -> Poison:
        """Note an error; the result stands for the value that it spoilt."""
        place = loc
        known = {*re.findall(r"\w+", f"{message} {hint}")}
        for axis in known & {*self.written}:
            if self.written[axis] not in known:  # else it tells one from the other
                own = partial(re.sub, rf"\b{axis}\b", self.written[axis])
                message, hint = own(message), own(hint)
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
