"""Entries as bytes: JSON of a few known dataclasses, with byte strings behind it, under a checksum.

    magic · SHA-256 of what follows · length of the JSON · JSON · byte strings

Nothing in an entry names code: a class that is not in `KNOWN` is refused.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from wsdsl.artifact.access import Access
from wsdsl.artifact.artifact import Artifact, Choice, Declaration, Names, Versions
from wsdsl.artifact.certificate import Certificate
from wsdsl.artifact.resources import Resources
from wsdsl.artifact.signature import (
    LentTensor,
    MapArgument,
    PointerArgument,
    ScalarArgument,
    Signature,
    SizeArgument,
    StrideArgument,
)
from wsdsl.ir.op import Value
from wsdsl.ir.types import DTYPES, DType, Tensor, Tile
from wsdsl.schedule import Schedule

MAGIC = b"wsdsl\n\0\1"
KNOWN: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Access, Artifact, Certificate, Choice, Declaration, LentTensor, MapArgument, Names,
        PointerArgument, Resources, ScalarArgument, Schedule, Signature, SizeArgument,
        StrideArgument, Tensor, Tile, Value, Versions,
    )
}  # fmt: skip
CLASS = "class"


class CorruptError(ValueError):
    """Bytes that are no entry."""


def to_bytes(key: str, value: object) -> bytes:
    """`key` is part of the entry, so that none is taken for another."""
    blobs: list[bytes] = []
    text = json.dumps([key, _plain(value, blobs)], separators=(",", ":")).encode()
    rest = struct.pack("<I", len(text)) + text + b"".join(blobs)
    return MAGIC + hashlib.sha256(rest).digest() + rest


def from_bytes(key: str, data: bytes) -> Any:
    """CorruptError for whatever `to_bytes` did not make for this key."""
    head = len(MAGIC) + 32
    rest = data[head:]
    if data[:head] != MAGIC + hashlib.sha256(rest).digest():
        raise CorruptError("the checksum is wrong")
    try:
        (size,) = struct.unpack_from("<I", rest)
        held, value = json.loads(rest[4 : 4 + size])
        if held != key:
            raise CorruptError("it is another entry's")
        return _value(value, rest[4 + size :])
    except CorruptError:
        raise
    except Exception as error:  # of any constructor
        raise CorruptError(f"{type(error).__name__}: {error}") from None


def _plain(value: Any, blobs: list[bytes]) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        at = sum(map(len, blobs))
        blobs.append(value)
        return {CLASS: "bytes", "at": at, "size": len(value)}
    if isinstance(value, tuple):
        return [_plain(x, blobs) for x in cast("tuple[Any, ...]", value)]
    if isinstance(value, frozenset):
        return {CLASS: "set", "items": sorted(cast("frozenset[str]", value))}
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {CLASS: "dict", "items": [[k, _plain(v, blobs)] for k, v in items]}
    if isinstance(value, DType):
        return {CLASS: "DType", "name": value.name}
    name = type(value).__name__
    if KNOWN.get(name) is not type(value) or not is_dataclass(value):
        raise TypeError(f"{name} is no plain data")
    held = {f.name: _plain(getattr(value, f.name), blobs) for f in fields(value)}
    return {CLASS: name} | held


def _value(held: Any, blobs: bytes) -> Any:
    if isinstance(held, list):
        return tuple([_value(x, blobs) for x in cast("list[Any]", held)])
    if not isinstance(held, dict):
        return held
    given = cast("dict[str, Any]", held)
    match name := given.pop(CLASS):
        case "bytes":
            found = blobs[given["at"] : given["at"] + given["size"]]
            if len(found) != given["size"]:
                raise CorruptError("it is too short")
            return found
        case "set":
            return frozenset(given["items"])
        case "dict":
            return {k: _value(v, blobs) for k, v in given["items"]}
        case "DType":
            return DTYPES[given["name"]]
        case _:
            return KNOWN[name](**{k: _value(v, blobs) for k, v in given.items()})
