"""A bar on stderr, drawn over itself where that is a terminal."""

from __future__ import annotations

import sys
import time

WIDTH = 30


class Bar:
    """`named` what is made, `of` how many; a line when it is over, wherever stderr goes."""

    def __init__(self, named: str, of: int) -> None:
        self._named, self._of, self._done = named, of, 0
        self._begin, self.note = time.monotonic(), ""
        self._draw()

    def step(self) -> None:
        self._done += 1
        self._draw()

    def close(self) -> None:
        end = "\n"
        sys.stderr.write(("\r" if sys.stderr.isatty() else "") + self._text() + end)
        sys.stderr.flush()

    def _draw(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r" + self._text())
            sys.stderr.flush()

    def _text(self) -> str:
        full = WIDTH * self._done // max(1, self._of)
        bar = "█" * full + "·" * (WIDTH - full)
        spent = time.monotonic() - self._begin
        return f"{self._named} {bar} {self._done}/{self._of}, {spent:.1f} s{self.note}"
