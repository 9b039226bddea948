"""What registers hold in the threads that are followed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Value = int | tuple[int | None, ...] | None
"""The same in all members, or one for each."""
Held = list[Value]


class ApartError(Exception):
    """Members go different ways after all."""


@dataclass(frozen=True)
class Operand:
    """A slot, or without one a value; and what is added to it."""

    slot: int | None
    value: Value
    plus: int = 0

    def of(self, held: Held) -> Value:
        if self.slot is None:
            return self.value
        value = held[self.slot]
        if isinstance(value, tuple):
            return tuple([None if x is None else x + self.plus for x in value])
        return None if value is None else value + self.plus


def joined(values: Sequence[int | None]) -> Value:
    return values[0] if len({*values}) == 1 else tuple(values)


def scalar(value: Value) -> int | None:
    if isinstance(value, tuple):
        raise ApartError
    return value
