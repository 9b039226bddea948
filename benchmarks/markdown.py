"""Tables, and figures with their targets."""

from __future__ import annotations

from collections.abc import Sequence

MISSED = " ✗"


def figure(value: float | None, target: float) -> str:
    if value is None:
        return "–"
    return f"**{value:.3f}**{MISSED}" if value < target else f"{value:.3f}"


def table(head: Sequence[str], first: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head)]
    lines += [[label, *cells] for label, cells in zip(first, rows, strict=True)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
