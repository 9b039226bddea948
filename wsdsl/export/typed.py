"""Check values of dataclasses against their annotations: JSON may have any type anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints


def require_type(value: Any, kind: Any, where: str) -> None:
    """TypeError, with the path of the value, unless it has the annotated type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if not any(_has_type(value, each, where) for each in args):
            raise TypeError(f"`{where}` is {value!r:.80}")
    elif origin is Literal:
        if value not in args:
            raise TypeError(f"`{where}` is {value!r:.80}")
    elif not isinstance(value, origin or kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"`{where}` is {value!r:.80}")
    elif origin is tuple and args[-1:] != (...,):
        for i, (each, item) in enumerate(zip(args, value, strict=True)):
            require_type(item, each, f"{where}[{i}]")
    elif origin in (tuple, frozenset):
        for item in value:
            require_type(item, args[0], where)
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            require_type(key, args[0], where)
            require_type(item, args[1], f"{where}.{key}")
    elif is_dataclass(value):
        for name, each in _types(type(value)).items():
            require_type(getattr(value, name), each, f"{where}.{name}")


def _has_type(value: Any, kind: Any, where: str) -> bool:
    try:
        require_type(value, kind, where)
    except (TypeError, ValueError):
        return False
    return True


@cache
def _types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
