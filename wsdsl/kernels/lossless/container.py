"""Files of bf16 weights for distribution: some 10.6 bits each, bit for bit.

    magic, version u32, size of the header u32 | header, JSON | its digest
    for each tensor: chunks | their digest
    a chunk: size u32 | exponents, by an entropy coder | signs and mantissas, a byte each

All numbers are little-endian, a digest is blake2b's of 16 bytes. Nothing is run that a file says,
and its size bounds what is allocated. `load` transcodes to the palette's form.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from wsdsl.diagnostics import LaunchError
from wsdsl.kernels.gemm.dtypes import wrong_option
from wsdsl.kernels.lossless.arrays import Bits, bits_of
from wsdsl.kernels.lossless.palette import KINDS, Kind
from wsdsl.kernels.lossless.weights import Weights, pack
from wsdsl.kernels.safetensors import FileError, check_is_file, damaged

MAGIC, VERSION = b"wsdsl.lossless\r\n", 1
START = struct.Struct("<16sII")
SIZE = struct.Struct("<I")
DIGEST = 16
CHUNK = 1 << 22
"""Weights of a chunk."""


@dataclass(frozen=True)
class _Tensor:
    name: str
    shape: tuple[int, int]
    palette: Kind | str

    @property
    def count(self) -> int:
        return self.shape[0] * self.shape[1]


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
    packed = {name: t for name, t in tensors.items() if isinstance(t, Weights)}
    bits = {n: t.bits() if isinstance(t, Weights) else bits_of(t) for n, t in tensors.items()}
    kinds = {name: packed[name].palette.kind if name in packed else "auto" for name in bits}
    listed = [dict(name=n, shape=b.shape, palette=kinds[n]) for n, b in bits.items()]
    header = json.dumps(dict(coder=chosen.name, tensors=listed)).encode()
    found: dict[str, float] = {}
    held, written = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(held, "wb") as file:
            file.write(START.pack(MAGIC, VERSION, len(header)) + header)
            file.write(blake2b(header, digest_size=DIGEST).digest())
            for name, own in bits.items():
                begin, digest = file.tell(), blake2b(digest_size=DIGEST)
                for part in _encoded(own.ravel(), chosen):
                    digest.update(part)
                    file.write(part)
                file.write(digest.digest())
                found[name] = 8 * (file.tell() - begin) / own.size
        Path(written).replace(target)
    except BaseException:
        Path(written).unlink(missing_ok=True)
        raise
    return found


def load(path: str | os.PathLike[str], like: Any = None) -> dict[str, Weights]:
    """Read packed weights of `save`: arrays of NumPy, or of the framework and device of `like`.

    FileError for a file that is damaged, and LaunchError where its coder is not installed.
    """
    found: dict[str, Weights] = {}
    check_is_file(path)
    with open(path, "rb") as file:
        total = os.fstat(file.fileno()).st_size
        coder, tensors = _header(file, total)
        for tensor in tensors:
            if tensor.count > total:
                raise damaged(path, f"{tensor.name} has {tensor.count} weights in {total} bytes")
            bits = _decoded(file, path, tensor, coder)
            made = pack(bits.reshape(tensor.shape), cast(Kind, tensor.palette))
            found[tensor.name] = made if like is None else made.to(like)
        if file.read(1):
            raise damaged(path, "bytes follow the last tensor")
    return found


def _encoded(bits: Bits, coder: Coder) -> Iterator[bytes]:
    for first in range(0, bits.size, CHUNK):
        part = bits[first : first + CHUNK]
        exponents = coder.encode((part >> 7).astype(np.uint8).tobytes())
        rest = (part >> 8 & 0x80 | part & 0x7F).astype(np.uint8)
        yield SIZE.pack(len(exponents))
        yield exponents
        yield rest.tobytes()


def _decoded(file: BinaryIO, path: Any, tensor: _Tensor, coder: Coder) -> Bits:
    made, digest = np.empty(tensor.count, np.uint16), blake2b(digest_size=DIGEST)
    parts: list[tuple[int, bytes]] = []

    def read(size: int) -> bytes:
        raw = file.read(size)
        if len(raw) < size:
            raise damaged(path, f"it ends inside {tensor.name}")
        digest.update(raw)
        return raw

    for first in range(0, tensor.count, CHUNK):
        count = min(CHUNK, tensor.count - first)
        (size,) = SIZE.unpack(read(SIZE.size))
        if size > 2 * count + 1024:
            raise damaged(path, f"a chunk of {tensor.name} is too large")
        parts.append((first, read(size)))
        rest = np.frombuffer(read(count), np.uint8).astype(np.uint16)
        made[first : first + count] = (rest & 0x80) << 8 | rest & 0x7F
    # Nothing is decoded of what is not as it was written.
    if digest.digest() != file.read(DIGEST):
        raise damaged(path, f"the digest of {tensor.name} is wrong")
    for first, coded in parts:
        count = min(CHUNK, tensor.count - first)
        raw = coder.decode(coded, count)
        if raw is None or len(raw) != count:
            raise damaged(path, f"the exponents of {tensor.name} cannot be decoded")
        made[first : first + count] |= np.frombuffer(raw, np.uint8).astype(np.uint16) << 7
    return made


def _header(file: BinaryIO, total: int) -> tuple[Coder, list[_Tensor]]:
    path, start = file.name, file.read(START.size)
    if len(start) < START.size or not start.startswith(MAGIC):
        raise FileError(f"WS0824 {path} is not a file of packed weights", hint="use lossless.save")
    _, version, size = START.unpack(start)
    if version != VERSION:
        hint = "save the weights again by this version of wsdsl"
        raise FileError(f"WS0825 {path} has version {version}, expected {VERSION}", hint=hint)
    if size > total:
        raise damaged(path, "it ends inside the header")
    header = file.read(size)
    if blake2b(header, digest_size=DIGEST).digest() != file.read(DIGEST):
        raise damaged(path, "the digest of the header is wrong")
    try:
        told = json.loads(header)
        tensors = [
            _Tensor(t["name"], (t["shape"][0], t["shape"][1]), t["palette"])
            for t in told["tensors"]
        ]
        name = told["coder"]
        fits = name in CODERS and all(_is_sane(t) for t in tensors)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        fits = False
        name, tensors = "", []
    if not fits:
        raise damaged(path, "the header is invalid")
    return coder_named(name), tensors


def _is_sane(tensor: _Tensor) -> bool:
    sizes = all(type(n) is int and n > 0 for n in tensor.shape)
    return type(tensor.name) is str and sizes and tensor.palette in ("auto", *KINDS)


# Entropy coders of exponents.
HARDLY_SEARCHED = dict(min_match=7, window_log=17, hash_log=6, strategy=1, target_length=0)


@dataclass(frozen=True)
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
