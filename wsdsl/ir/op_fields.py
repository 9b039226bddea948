"""Classify the fields of an op by their annotations: operands, results, regions, attributes."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from typing import Any, ClassVar, Literal, Protocol

FieldKind = Literal["operand", "result", "bind", "region", "attribute"]


class OpFields(Protocol):
    """An op's dataclass: the annotation of a field determines its kind."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


@cache
def op_name(cls: type[OpFields]) -> str:
    """ForTiles -> for_tiles."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


@cache
def fields_of(cls: type[OpFields]) -> tuple[tuple[str, FieldKind], ...]:
    """Return (name, kind) of every field but `loc`, in declaration order."""
    found: list[tuple[str, FieldKind]] = []
    for f in dataclasses.fields(cls):
        annotation = str(f.type)
        if f.name == "loc":
            continue
        if "kind" in f.metadata:
            kind: FieldKind = f.metadata["kind"]
        elif "Value" in annotation:
            kind = "operand"
        else:
            kind = "region" if annotation == "Region" else "attribute"
        found.append((f.name, kind))
    return tuple(found)


@cache
def names_of(cls: type[OpFields], kind: FieldKind) -> tuple[str, ...]:
    return tuple(name for name, k in fields_of(cls) if k == kind)
