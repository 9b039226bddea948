"""What is raced against a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """`inputs` makes operands, of which the last is the result's array; `bytes` are read and
    written.
    """

    name: str
    kernel: str | Callable[..., Any]
    """Of `TEXT`, or what is called with the operands."""
    inputs: Callable[[], tuple[Any, ...]]
    wanted: Callable[..., Any]
    """In f32."""
    peer: Callable[..., Any]
    bytes: int
    allowed: float = 2.0**-7
    """The largest error beside the largest value."""
