"""Deprecated public names: each works for one minor release and warns (CONTRIBUTING.md)."""

from collections.abc import Mapping
from typing import Any

from wsdsl.diagnostics import warn

FIELDS = {
    "mma": "mma_m", "share": "consumer_split", "widths": "tile_n_variants",
    "decode": "operand_transform", "precise_every": "mma_promotion_interval",
    "constant": "pdl_independent", "overlap": "launch_pdl", "counters": "smem_privatize",
    "scale_path": "sf_load",
}  # fmt: skip
"""Fields of Schedule by their names before 0.2."""
VALUES = {
    "operand_transform": {"shared": "smem", "tensor": "tmem"},
    "sf_load": {"copy": "cp", "store": "st"},
    "reduction": {"turns": "serial", "slices": "parallel"},
}
"""Values of fields of Schedule by their names before 0.2."""


def deprecate(old: str, new: str) -> None:
    """Warn at the caller's line that `old` is deprecated in favor of `new`."""
    warn(f"{old} is deprecated; use {new}", DeprecationWarning)


class Renamed:
    """Define a deprecated alias of a method or property: `warm = Renamed("precompile")`."""

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: object, owner: type) -> Any:
        deprecate(f"{owner.__name__}.{self.old}", f"{owner.__name__}.{self.new}")
        return getattr(owner if instance is None else instance, self.new)


def current_fields(named: Mapping[str, Any], warns: bool = False) -> dict[str, Any]:
    """Fields and values of a Schedule by their current names, as stored text (IR, tuning cache)
    needs them; for calls with a DeprecationWarning for each old name.
    """
    # `dataclasses.replace(schedule, mma="n")` gives `mma_m` of the schedule, too.
    fields = {name: value for name, value in named.items() if name not in FIELDS}
    fields |= {FIELDS[name]: value for name, value in named.items() if name in FIELDS}
    for name in VALUES.keys() & fields.keys():
        fields[name] = _current_value(fields[name], VALUES[name])
    for name, value in named.items() if warns else ():
        new = FIELDS.get(name, name)
        if new != name or (new in VALUES and fields[new] != value):
            deprecate(f"Schedule({name}={value!r})", f"{new}={fields[new]!r}")
    return fields


def _current_value(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _current_value(part, names) for key, part in value.items()}
    return names.get(value, value) if isinstance(value, str) else value
