"""Deprecated public names: each works for one minor release and warns (CONTRIBUTING.md)."""

from typing import Any

from wsdsl.diagnostics import warn


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
