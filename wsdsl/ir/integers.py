"""Functions of `map` on Python's integers."""

import operator
from collections.abc import Callable
from typing import Any

OWN_NAMES = ("add", "sub", "mul", "floordiv", "mod", "lt", "le", "eq", "ne", "ge", "gt")
ON_INTEGERS: dict[str, Callable[..., Any]] = {
    **{fn: getattr(operator, fn) for fn in OWN_NAMES},
    "min": min,
    "max": max,
}
