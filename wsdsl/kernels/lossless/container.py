"""Files of bf16 weights for distribution: some 10.6 bits each, bit for bit.

A matrix `name` is two tensors in the safetensors format: `name.rest`, of its shape, has signs and
mantissas, a byte each; `name.exponents` has those by an entropy coder, in chunks. Metadata say the
coder, and of each matrix the palette, the sizes of chunks, and a digest of all that (blake2b, 16
bytes). Nothing is run that a file says, and its size bounds what is allocated. `load` transcodes to
the palette's form.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import struct
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wsdsl.deprecation import deprecate
from wsdsl.diagnostics import LaunchError
from wsdsl.kernels.gemm.matmul_dtypes import wrong_option
from wsdsl.kernels.lossless.lossless_arrays import Bits, bits_of
from wsdsl.kernels.lossless.lossless_weights import Weights, pack
from wsdsl.kernels.lossless.palette import KINDS
from wsdsl.kernels.safetensors import (
    FileError,
    check_is_file,
    damaged,
    header_of_bytes,
    open_tensors,
)
from wsdsl.record import record

KEY, VERSION = "wsdsl.lossless", 2
DIGEST = 16
CHUNK = 1 << 22
"""Weights of a chunk."""
INVALID = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)
"""Raised by JSON that is not as `save` writes it."""


class _Stored(NamedTuple):
    """A matrix as a file has it."""

    name: str
    shape: tuple[int, ...]
    palette: Any
    coder: str
    coded: list[bytes]
    rest: Any

    @property
    def digest(self) -> str:
        described = [*self[:4], [len(part) for part in self.coded]]
        made = blake2b(json.dumps(described).encode(), digest_size=DIGEST)
        for part in (*self.coded, self.rest):
            made.update(part)
        return made.hexdigest()

    @property
    def is_sane(self) -> bool:
        sizes = len(self.shape) == 2 and all(type(n) is int and n > 0 for n in self.shape)
        chunks = sizes and len(self.coded) == -(-math.prod(self.shape) // CHUNK)
        return chunks and type(self.name) is str and self.palette in ("auto", *KINDS)


def save(
    path: str | os.PathLike[str], tensors: Mapping[str, Any], coder: str = "zlib"
) -> dict[str, float]:
    """Write weights to a file, and return the bits per weight of each tensor in it.

    tensors: arguments or results of `pack`, by name.
    coder: "zlib", or "zstd", which decodes faster and needs the package zstandard.

    LaunchError for other values, and for another coder. The file appears as a whole or not at
    all.
    """
    chosen, target = coder_named(coder), Path(path)
    stored = [_stored(name, given, chosen) for name, given in tensors.items()]
    described: dict[str, tuple[int, ...]] = {}
    for t in stored:
        described |= {f"{t.name}.exponents": (sum(map(len, t.coded)),), f"{t.name}.rest": t.shape}
    entries = {
        t.name: dict(palette=t.palette, chunks=[len(part) for part in t.coded], digest=t.digest)
        for t in stored
    }
    metadata = {KEY: json.dumps(dict(version=VERSION, coder=coder, tensors=entries))}
    held, written = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(held, "wb") as file:
            file.write(header_of_bytes(described, metadata))
            file.writelines(part for t in stored for part in (*t.coded, t.rest.data))
        Path(written).replace(target)
    except BaseException:
        Path(written).unlink(missing_ok=True)
        raise
    return {t.name: 8 + 8 * sum(map(len, t.coded)) / t.rest.size for t in stored}


def load(path: str | os.PathLike[str], like: Any = None) -> dict[str, Weights]:
    """Read packed weights of `save`: arrays of NumPy, or of the framework and device of `like`.

    FileError for a file that is damaged, and LaunchError where its coder is not installed.
    """
    check_is_file(path)
    with open(path, "rb") as file:
        is_old = file.read(len(MAGIC)) == MAGIC
    found: dict[str, Weights] = {}
    for tensor in _read_version_1(path) if is_old else _read(path):
        if not tensor.is_sane:
            raise damaged(path, "the header is invalid")
        made = pack(_decoded(path, tensor).reshape(tensor.shape), tensor.palette)
        found[tensor.name] = made if like is None else made.to(like)
    return found


def _stored(name: str, given: Any, coder: Coder) -> _Stored:
    packed = isinstance(given, Weights)
    bits = given.bits() if packed else bits_of(given)
    exponents, rest = ((bits >> 7).astype(np.uint8).reshape(-1), bits >> 8 & 0x80 | bits & 0x7F)
    coded = [coder.encode(exponents[i : i + CHUNK].tobytes()) for i in range(0, bits.size, CHUNK)]
    kind = given.palette.kind if packed else "auto"
    return _Stored(name, bits.shape, kind, coder.name, coded, rest.astype(np.uint8))


def _decoded(path: Any, tensor: _Stored) -> Bits:
    rest, coder = tensor.rest.reshape(-1).astype(np.uint16), coder_named(tensor.coder)
    made = (rest & 0x80) << 8 | rest & 0x7F
    for first, coded in zip(range(0, made.size, CHUNK), tensor.coded):
        part = made[first : first + CHUNK]
        raw = coder.decode(coded, part.size)
        if raw is None or len(raw) != part.size:
            raise damaged(path, f"the exponents of {tensor.name} cannot be decoded")
        part |= np.frombuffer(raw, np.uint8).astype(np.uint16) << 7
    return made


def _read(path: Any) -> Iterator[_Stored]:
    """Nothing is decoded of what is not as it was written."""
    tensors = open_tensors(path)
    if KEY not in tensors.metadata:
        raise FileError(f"WS0824 {path} is not a file of packed weights", hint="use lossless.save")
    try:
        told = json.loads(tensors.metadata[KEY])
        if told["version"] != VERSION:
            message = f"WS0825 {path} has version {told['version']}, expected {VERSION}"
            raise FileError(message, hint="save the weights again by this version of wsdsl")
        coder, every = CODERS[told["coder"]].name, told["tensors"]
        for name, t in every.items():
            coded, rest = (tensors.read(f"{name}.{part}") for part in ("exponents", "rest"))
            parts = [part.tobytes() for part in np.split(coded, np.cumsum(t["chunks"]))[:-1]]
            found = _Stored(name, rest.shape, t["palette"], coder, parts, rest)
            if found.digest != t["digest"] or sum(t["chunks"]) != coded.size:
                raise damaged(path, f"the digest of {name} is wrong")
            yield found
    except INVALID:
        raise damaged(path, "the header is invalid") from None


# Files of wsdsl 0.1, which are read for one release.
MAGIC = b"wsdsl.lossless\r\n"
START = struct.Struct("<16sII")


def _read_version_1(path: Any) -> Iterator[_Stored]:
    """Read magic, version u32, size of the header u32 | header, JSON | its digest | for each tensor
    chunks | their digest; a chunk is size u32 | exponents | rest.
    """
    deprecate(f"the format of {path}", "lossless.save to write it in the safetensors format")
    with open(path, "rb") as file:
        total = os.fstat(file.fileno()).st_size

        def take(size: int) -> bytes:
            raw = file.read(size) if size <= total else b""
            if len(raw) < size:
                raise damaged(path, "it ends early")
            return raw

        def check(*parts: bytes) -> None:
            if blake2b(b"".join(parts), digest_size=DIGEST).digest() != take(DIGEST):
                raise damaged(path, "a digest is wrong")

        _, version, size = START.unpack(take(START.size))
        if version != 1:
            raise damaged(path, f"it has version {version}, expected 1")
        check(raw := take(size))
        try:
            told = json.loads(raw)
            coder = CODERS[told["coder"]].name
            for t in told["tensors"]:
                (n, k), parts = t["shape"], list[bytes]()
                for first in range(0, n * k, CHUNK):
                    parts.append(take(4))
                    parts.append(take(int.from_bytes(parts[-1], "little")))
                    parts.append(take(min(CHUNK, n * k - first)))
                check(*parts)
                rest = np.frombuffer(b"".join(parts[2::3]), np.uint8)
                yield _Stored(t["name"], (n, k), t["palette"], coder, parts[1::3], rest)
        except INVALID:
            raise damaged(path, "the header is invalid") from None
        if file.read(1):
            raise damaged(path, "bytes follow the last tensor")


# Entropy coders of exponents.
HARDLY_SEARCHED = dict(min_match=7, window_log=17, hash_log=6, strategy=1, target_length=0)


@record
class Coder:
    name: str

    def encode(self, raw: bytes) -> bytes:
        if self.name == "zstd":
            module = _zstandard()
            how = module.ZstdCompressionParameters.from_level(1, **HARDLY_SEARCHED)
            return module.ZstdCompressor(compression_params=how).compress(raw)
        made = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
        return made.compress(raw) + made.flush()

    def decode(self, coded: bytes, size: int) -> bytes | None:
        """None where that is not what was coded, or is of another size."""
        if self.name == "zstd":
            module = _zstandard()
            try:
                if module.frame_content_size(coded) != size:
                    return None
                return module.ZstdDecompressor().decompress(coded, max_output_size=size)
            except module.ZstdError:
                return None
        made = zlib.decompressobj(-15)
        try:
            raw = made.decompress(coded, size + 1)
        except zlib.error:
            return None
        return raw if made.eof and not made.unused_data else None


CODERS = {name: Coder(name) for name in ("zlib", "zstd")}


def coder_named(name: str) -> Coder:
    """LaunchError for one that is not known, or not installed."""
    if name not in CODERS:
        raise wrong_option("coder", repr(name), ", ".join(CODERS))
    if name == "zstd" and importlib.util.find_spec("zstandard") is None:
        raise LaunchError("WS0827 zstandard is not installed", hint="pip install 'wsdsl[zstd]'")
    return CODERS[name]


def _zstandard() -> Any:
    return importlib.import_module("zstandard")
