"""The source text of kernels, and conversion of its positions to `Loc`s of the user's file."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from wsdsl.diagnostics import Finding, Loc
from wsdsl.frontend.entities import POISON, Poison


def in_brackets(text: str) -> str:
    """Return an expression as an operand, in parentheses if it needs them."""
    return text if re.fullmatch(r"[\w.]+(\[[^][]*\])?", text) else f"({text})"


@dataclass(frozen=True)
class Source:
    """A text with the indentation of `file`, so that columns agree; its first line is the line
    `first_line` of the file."""

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
        """Names in the text of renamed axes: `k__1` is the second `k`."""

    def __len__(self) -> int:
        return len(self._found)

    def error(self, message: str, loc: Loc, hint: str = "") -> Poison:
        """Add an error; the result replaces the invalid value."""
        place = loc
        known = {*re.findall(r"\w+", f"{message} {hint}")}
        for axis in known & {*self.written}:
            if self.written[axis] not in known:  # else the suffix distinguishes them
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
