"""What an agent did from when to when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

What = Literal[
    "products", "arithmetic", "SMEM", "loads", "stores", "issue", "exchange", "wait", "start"
]


@dataclass(frozen=True, slots=True)
class Span:
    """`edge`: what is waited for, or moved. Cycles since the launch."""

    what: What
    edge: str
    start: float
    stop: float
