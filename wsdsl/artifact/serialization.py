"""Serialize entries: JSON of a few known dataclasses, then byte strings, under a checksum.

    magic · SHA-256 of what follows · length of the JSON · JSON · byte strings

The JSON is the entry's key, the emitter that made it, and its value.

An entry cannot name code: a class that is not in `KNOWN` is rejected.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, cast

from wsdsl.artifact import artifact, dispatch_table, shape_bucket, signature
from wsdsl.ir.types import DTYPES, DType, Tensor, Tile, Value
from wsdsl.schedule import Schedule

NAME, MAGIC = b"wsdsl\n", b"wsdsl\n\0\2"
"""The first bytes of an entry of any format, and of this format."""
KNOWN: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        artifact.Access, artifact.Artifact, artifact.Certificate, artifact.Choice,
        artifact.Declaration, signature.WorkspaceTensor, signature.MapArgument, artifact.Names,
        signature.NarrowingArgument, signature.PointerArgument, artifact.Rejection,
        artifact.Resources, signature.ScalarArgument, Schedule, signature.Signature,
        signature.SizeArgument, artifact.Representatives, signature.StrideArgument, Tensor, Tile,
        Value, artifact.Versions, dispatch_table.Variant, dispatch_table.Form, shape_bucket.Span,
    )
}  # fmt: skip
CLASS = "class"


class CorruptError(ValueError):
    """Bytes that are no entry."""


class OtherFormatError(CorruptError):
    """An entry of another version of wsdsl."""


class Entry(NamedTuple):
    """`key` is part of it, so that none is taken for another."""

    key: str
    emitter: str
    value: Any


def to_bytes(entry: Entry) -> bytes:
    blobs: list[bytes] = []
    text = json.dumps(
        [entry.key, entry.emitter, to_json(entry.value, blobs)], separators=(",", ":")
    ).encode()
    rest = struct.pack("<I", len(text)) + text + b"".join(blobs)
    return MAGIC + hashlib.sha256(rest).digest() + rest


def from_bytes(key: str, data: bytes) -> Entry:
    """Parse an entry. CorruptError unless `to_bytes` wrote the data, for this key."""
    emitter, held, blobs = opened(key, data)
    try:
        return Entry(key, emitter, of_json(held, blobs))
    except CorruptError:
        raise
    except Exception as error:  # of any constructor
        raise CorruptError(f"{type(error).__name__}: {error}") from None


def opened(key: str, data: bytes) -> tuple[str, Any, bytes]:
    """The emitter, the value's JSON and the byte strings; only that emitter can parse the value."""
    if data.startswith(NAME) and not data.startswith(MAGIC):
        raise OtherFormatError("another version's format")
    head = len(MAGIC) + 32
    rest = data[head:]
    if data[:head] != MAGIC + hashlib.sha256(rest).digest():
        raise CorruptError("the checksum is wrong")
    try:
        (size,) = struct.unpack_from("<I", rest)
        held, emitter, value = json.loads(rest[4 : 4 + size])
    except (struct.error, ValueError, TypeError, RecursionError) as error:
        raise CorruptError(f"{type(error).__name__}: {error}") from None
    if held != key:
        raise CorruptError("it has another key")
    return emitter, value, rest[4 + size :]


def to_json(value: Any, blobs: list[bytes]) -> Any:
    """Return a value as JSON, with byte strings appended to `blobs`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        at = sum(map(len, blobs))
        blobs.append(value)
        return {CLASS: "bytes", "at": at, "size": len(value)}
    if isinstance(value, tuple):
        return [to_json(x, blobs) for x in cast("tuple[Any, ...]", value)]
    if isinstance(value, frozenset):
        return {CLASS: "set", "items": sorted(cast("frozenset[str]", value))}
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {CLASS: "dict", "items": [[k, to_json(v, blobs)] for k, v in items]}
    if isinstance(value, DType):
        return {CLASS: "DType", "name": value.name}
    name = type(value).__name__
    if KNOWN.get(name) is not type(value) or not is_dataclass(value):
        raise TypeError(f"{name} is not plain data")
    held = {f.name: to_json(getattr(value, f.name), blobs) for f in fields(value)}
    return {CLASS: name} | held


def of_json(held: Any, blobs: bytes = b"") -> Any:
    """Invert `to_json`."""
    if isinstance(held, list):
        return tuple([of_json(x, blobs) for x in cast("list[Any]", held)])
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
            if not isinstance(given["items"], list):
                raise CorruptError("a set is not a list")
            return frozenset(given["items"])
        case "dict":
            return {k: of_json(v, blobs) for k, v in given["items"]}
        case "DType":
            return DTYPES[given["name"]]
        case _:
            return KNOWN[name](**{k: of_json(v, blobs) for k, v in given.items()})
