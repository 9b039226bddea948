"""Check values of dataclasses against their annotations: JSON may have any type anywhere."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints


def has_type(value: Any, kind: Any) -> bool:
    """Whether a value has an annotated type. TypeError for a field of a dataclass that has not."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(has_type(value, each) for each in args)
    if origin is Literal:
        return value in args
    if not isinstance(value, origin or kind) or (kind is int and isinstance(value, bool)):
        return False
    if origin is tuple and args[-1:] != (...,):
        return len(value) == len(args) and all(map(has_type, value, args))
    if origin in (tuple, frozenset):
        return all(has_type(item, args[0]) for item in value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return all(has_type(key, args[0]) and has_type(item, args[1]) for key, item in items)
    for name, each in _types(cast("Any", type(value))).items():
        if not has_type(getattr(value, name), each):
            raise TypeError(f"{kind.__name__}.{name} is {getattr(value, name)!r:.80}")
    return True


@cache
def _types(kind: Any) -> dict[str, Any]:
    if not is_dataclass(kind):
        return {}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
