"""Where a kernel's text comes from, and how its positions become `Loc`s of the user's file."""

from __future__ import annotations

from dataclasses import dataclass, field

from wsdsl.diagnostics import Loc


@dataclass(frozen=True)
class Source:
    """`text` is parsed as it stands in `file`, indentation included, so columns need no repair;
    its first line is the file's line `first_line`."""

    file: str
    text: str
    first_line: int = 1
    lines: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
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
