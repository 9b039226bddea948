"""Files of weights: what is written is read again, and what is damaged is refused."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl import LaunchError
from wsdsl.kernels import lossless
from wsdsl.kernels.lossless.container import DIGEST, MAGIC, START, VERSION


def weights(n: int, k: int, seed: int = 0) -> Any:
    own = np.random.default_rng(seed)
    return (own.standard_normal((n, k)) / 50).astype(ml_dtypes.bfloat16)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    lossless.save(path, {"w": weights(40, 70)})
    return path


@pytest.mark.parametrize("coder", ["zlib", "zstd"])
def test_several_tensors_bit_for_bit(tmp_path: Path, coder: str, import_optional: Any) -> None:
    if coder == "zstd":
        import_optional("zstandard")
    every = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    given = {"up": weights(512, 512), "every": every.view(ml_dtypes.bfloat16), "é": weights(1, 3)}
    packed = given | {"up": lossless.pack(given["up"], "exponents")}
    bits = lossless.save(tmp_path / "w", packed, coder)
    found = lossless.load(tmp_path / "w")
    assert {n: w.unpack().tobytes() for n, w in found.items()} == {
        n: w.tobytes() for n, w in given.items()
    }
    assert found["up"].palette.kind == "exponents"
    # An exponent of these has 2.55 bits of information.
    assert 10.5 < bits["up"] < 10.68


def test_chunks(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("wsdsl.kernels.lossless.container.CHUNK", 1000)
    lossless.save(tmp_path / "w", {"w": weights(40, 70)})
    assert lossless.load(tmp_path / "w")["w"].unpack().tobytes() == weights(40, 70).tobytes()


def test_each_byte_counts(written: Path) -> None:
    raw = written.read_bytes()
    at = np.random.default_rng(0).choice(len(raw), 60, replace=False)
    for i in (*at.tolist(), 0, 16, 20, len(raw) - 1):
        written.write_bytes(raw[:i] + bytes([raw[i] ^ 1 << i % 8]) + raw[i + 1 :])
        with pytest.raises(lossless.FileError, match=r"damaged|file of packed|has version"):
            lossless.load(written)


def test_what_is_cut_or_longer(written: Path) -> None:
    raw = written.read_bytes()
    for size in (0, 10, 30, 90, len(raw) // 2, len(raw) - 1):
        written.write_bytes(raw[:size])
        with pytest.raises(lossless.FileError, match=r"damaged|file of packed"):
            lossless.load(written)
    written.write_bytes(raw + b"\0")
    with pytest.raises(lossless.FileError, match="bytes follow the last tensor"):
        lossless.load(written)


HEADERS = [
    [],
    {"coder": "zlib"},
    {"coder": "lzma", "tensors": []},
    {"coder": "zlib", "tensors": [{"name": "w", "shape": [0, 4], "palette": "auto"}]},
    {"coder": "zlib", "tensors": [{"name": "w", "shape": [True, 4], "palette": "auto"}]},
    {"coder": "zlib", "tensors": [{"name": "w", "shape": [2**40, 2**40], "palette": "auto"}]},
    {"coder": "zlib", "tensors": [{"name": "w", "shape": [4, 4], "palette": "best"}]},
]


@pytest.mark.parametrize("header", HEADERS, ids=str)
def test_headers_that_nobody_writes(written: Path, header: Any) -> None:
    """Their digests are right."""
    told = json.dumps(header).encode()
    magic, version, _ = START.unpack(written.read_bytes()[: START.size])
    digest = hashlib.blake2b(told, digest_size=DIGEST).digest()
    written.write_bytes(START.pack(magic, version, len(told)) + told + digest)
    with pytest.raises(lossless.FileError, match="is damaged"):
        lossless.load(written)


def test_exponents_that_are_other_than_told(written: Path) -> None:
    """A digest that is right, of a code that ends early."""
    raw = written.read_bytes()
    at = START.size + START.unpack(raw[: START.size])[2] + DIGEST
    body = bytearray(raw[at:-DIGEST])
    size = int.from_bytes(body[:4], "little")
    body[4 : 4 + size] = bytes(size)
    digest = hashlib.blake2b(body, digest_size=DIGEST).digest()
    written.write_bytes(raw[:at] + body + digest)
    with pytest.raises(lossless.FileError, match="exponents of w cannot be decoded"):
        lossless.load(written)


def test_other_versions_and_coders(written: Path) -> None:
    raw = written.read_bytes()
    magic, version, size = START.unpack(raw[: START.size])
    written.write_bytes(START.pack(magic, version + 1, size) + raw[START.size :])
    with pytest.raises(lossless.FileError, match=r"has version 2, expected 1"):
        lossless.load(written)
    with pytest.raises(LaunchError, match="coder is 'lzma', expected zlib, zstd"):
        lossless.save(written, {}, "lzma")


def test_a_file_is_written_as_a_whole(written: Path) -> None:
    before = written.read_bytes()
    with pytest.raises(LaunchError, match="expected bf16"):
        lossless.save(written, {"w": weights(4, 4), "v": np.zeros((2, 2))})
    assert written.read_bytes() == before and [*written.parent.iterdir()] == [written]


def test_a_header_that_is_nested_deeply_is_refused(tmp_path: Path) -> None:
    header = b"[" * 100_000
    digest = hashlib.blake2b(header, digest_size=DIGEST).digest()
    start = START.pack(MAGIC, VERSION, len(header))
    (tmp_path / "w").write_bytes(start + header + digest)
    with pytest.raises(lossless.FileError, match="is damaged"):
        lossless.load(tmp_path / "w")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(lossless.FileError, match="not a regular file"):
        lossless.load(tmp_path / "fifo")
