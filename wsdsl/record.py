"""`record`: frozen dataclasses that are cheap to define."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Define a dataclass with `__slots__` whose comparison, hash and repr are closures: those that
    `dataclass` writes and compiles for each class, and its `frozen`, take most of the time of a
    first launch. Type checkers reject assignments to its fields.
    """
    own = {"__eq__", "__hash__", "__repr__"} & vars(cls).keys()
    made: Any = dataclass(eq=False, repr=False, slots=True)(cls)
    compared = _getter([f.name for f in fields(made) if f.compare])

    def equal(self: Any, other: object) -> bool:
        return compared(self) == compared(other) if type(other) is type(self) else NotImplemented

    methods = dict(__eq__=equal, __hash__=lambda self: hash(compared(self)), __repr__=_repr)
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__name__}({', '.join(shown)})"
