"""Names of Schedule's fields and values before 0.2: accepted with a DeprecationWarning, and without
one in stored text (IR, tuning cache, `--schedule`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

FIELDS = {
    "mma": "mma_m", "share": "consumer_split", "widths": "tile_n_variants",
    "decode": "operand_transform", "precise_every": "mma_promotion_interval",
    "constant": "pdl_independent", "overlap": "launch_pdl", "counters": "smem_privatize",
    "scale_path": "sf_load",
}  # fmt: skip
VALUES = {
    "operand_transform": {"shared": "smem", "tensor": "tmem"},
    "sf_load": {"copy": "cp", "store": "st"},
    "reduction": {"turns": "serial", "slices": "parallel"},
}


def current(named: Mapping[str, Any]) -> dict[str, Any]:
    """Fields and values of a Schedule by their current names."""
    fields = {FIELDS.get(name, name): value for name, value in named.items()}
    coded = VALUES.keys() & fields.keys()
    return fields | {name: _current(fields[name], VALUES[name]) for name in coded}


def _current(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _current(part, names) for key, part in value.items()}
    return names.get(value, value) if isinstance(value, str) else value


def with_warnings(named: Mapping[str, Any], stacklevel: int) -> dict[str, Any]:
    """The same, with a DeprecationWarning for each old name or value."""
    fields = current(named)
    for name, value in named.items():
        new = FIELDS.get(name, name)
        if new != name or fields[new] != value:
            told = f"Schedule({name}={value!r}) is deprecated; use {new}={fields[new]!r}"
            warnings.warn(told, DeprecationWarning, stacklevel + 1)
    return fields
