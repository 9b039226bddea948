"""Files in the safetensors format: size of the header u64 | header, JSON | data."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wsdsl.diagnostics import WsdslError
from wsdsl.kernels.host_arrays import OF_HOST
from wsdsl.record import record

SIZE = 8
"""Bytes of the header's size, which is little-endian."""
INDEX = "model.safetensors.index.json"


class FileError(WsdslError):
    """A file of weights is damaged, of another version, or of another format."""


def damaged(path: Any, why: str) -> FileError:
    return FileError(f"WS0826 {path} is damaged: {why}", hint="get the file again")


def check_is_file(path: str | os.PathLike[str]) -> None:
    if Path(path).is_fifo():
        raise FileError(f"WS0823 {path} is not a regular file", hint="copy it to disk")


@record
class Tensors:
    """The tensors of a file, by name: type, shape, and offsets of the first byte and of the end."""

    path: Path
    entries: Mapping[str, tuple[str, tuple[int, ...], int, int]]
    metadata: Mapping[str, str]

    def read(self, name: str, index: int | None = None) -> Any:
        """One tensor, or the element at `index` of its first dimension."""
        kind, shape, begin, end = self.entries[name]
        ours = kind.lower().replace("_", "")
        dtype = np.dtype(np.int64) if ours == "i64" else OF_HOST.get(ours * kind.isupper())
        if dtype is None:
            hint = "convert it to integers or floats of at most 32 bits"
            raise FileError(f"WS0848 {name} in {self.path} has the type {kind}", hint=hint)
        if math.prod(shape) * dtype.itemsize != end - begin:
            raise damaged(self.path, f"{name} of shape {shape} has {end - begin} bytes")
        if index is not None:
            size, shape = (end - begin) // shape[0], shape[1:]
            begin, end = begin + index * size, begin + (index + 1) * size
        return (
            np.fromfile(self.path, np.uint8, end - begin, offset=begin).view(dtype).reshape(shape)
        )


def open_tensors(path: str | os.PathLike[str]) -> Tensors:
    """Read the header of a file; FileError if it does not describe all bytes of the file."""
    check_is_file(path)
    with open(path, "rb") as file:
        size, total = int.from_bytes(file.read(SIZE), "little"), os.fstat(file.fileno()).st_size
        raw = file.read(size if size <= total else 0)
    entries: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    at = begin = SIZE + size
    try:
        header = json.loads(raw)
        metadata = dict(header.pop("__metadata__", {}))
        for name, told in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            shape, (first, end) = tuple(told["shape"]), told["data_offsets"]
            if begin + first != at or not all(type(n) is int and n >= 0 for n in (*shape, end)):
                raise damaged(path, f"offsets or shape of {name} are invalid")
            entries[name] = told["dtype"], shape, at, begin + end
            at = begin + end
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged(path, "the header is invalid") from None
    if at != total:
        raise damaged(path, f"its header describes {at} bytes of {total}")
    return Tensors(Path(path), entries, metadata)


def files_of_tensors(path: str | os.PathLike[str], prefixes: tuple[str, ...]) -> dict[str, Tensors]:
    """The file of each tensor whose name starts with a prefix, in a checkpoint of one file or of
    several: `path` is a file, an index of files, or the folder of either.
    """
    path = Path(path)
    if path.is_dir():
        path /= INDEX if (path / INDEX).exists() else INDEX.removesuffix(".index.json")
    if path.suffix != ".json":
        tensors = open_tensors(path)
        return {name: tensors for name in tensors.entries if name.startswith(prefixes)}
    check_is_file(path)
    try:
        held = dict(json.loads(path.read_bytes())["weight_map"])
        paths = {name: path.with_name(x) for name, x in held.items() if name.startswith(prefixes)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged(path, "weight_map is invalid") from None
    files = {file: open_tensors(file) for file in dict.fromkeys(paths.values())}
    for name, file in paths.items():
        if name not in files[file].entries:
            raise damaged(path, f"{file.name} does not contain {name}")
    return {name: files[file] for name, file in paths.items()}


def header_of_bytes(shapes: Mapping[str, tuple[int, ...]], metadata: Mapping[str, str]) -> bytes:
    """The start of a file of tensors of u8, in the order of their data."""
    made: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape)
        made[name] = dict(dtype="U8", shape=shape, data_offsets=(begin, end))
    raw = json.dumps(made).encode()
    raw += b" " * (-len(raw) % SIZE)
    return len(raw).to_bytes(SIZE, "little") + raw
