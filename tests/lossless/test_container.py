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
from wsdsl.kernels.lossless.container import CODERS, DIGEST, MAGIC, START

pytestmark = pytest.mark.filterwarnings("ignore:the format of:DeprecationWarning")


def weights(n: int, k: int, seed: int = 0) -> Any:
    own = np.random.default_rng(seed)
    return (own.standard_normal((n, k)) / 50).astype(ml_dtypes.bfloat16)


def digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=DIGEST).digest()


def version_1(told: Any = None, coded: bytes | None = None) -> bytes:
    """A file as wsdsl 0.1 wrote it."""
    bits = weights(40, 70).view(np.uint16)
    tensor = dict(name="w", shape=bits.shape, palette="auto")
    told = dict(coder="zlib", tensors=[tensor]) if told is None else told
    raw = told if isinstance(told, bytes) else json.dumps(told).encode()
    coded = coded or CODERS["zlib"].encode((bits >> 7).astype(np.uint8).tobytes())
    rest = (bits >> 8 & 0x80 | bits & 0x7F).astype(np.uint8).tobytes()
    body = len(coded).to_bytes(4, "little") + coded + rest
    return START.pack(MAGIC, 1, len(raw)) + raw + digest(raw) + body + digest(body)


@pytest.fixture(params=[2, 1])
def written(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "weights"
    lossless.save(path, {"w": weights(40, 70)})
    if request.param == 1:
        path.write_bytes(version_1())
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
    for i in (*at.tolist(), *range(500 if raw[:1] != MAGIC[:1] else 25), len(raw) - 1):
        written.write_bytes(raw[:i] + bytes([raw[i] ^ 1 << i % 8]) + raw[i + 1 :])
        with pytest.raises(lossless.FileError, match=r"damaged|packed|has (version|the type)"):
            lossless.load(written)


def test_what_is_cut_or_longer(written: Path) -> None:
    raw = written.read_bytes()
    for size in (0, 10, 30, 90, len(raw) // 2, len(raw) - 1):
        written.write_bytes(raw[:size])
        with pytest.raises(lossless.FileError, match=r"damaged|file of packed"):
            lossless.load(written)
    written.write_bytes(raw + b"\0")
    with pytest.raises(lossless.FileError, match=r"bytes follow the last tensor|describes"):
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


@pytest.mark.parametrize("header", [*HEADERS, b"[" * 100_000], ids=lambda h: str(h)[:70])
def test_malformed_header_is_rejected(tmp_path: Path, header: Any) -> None:
    """Their digests are right."""
    path = tmp_path / "w"
    path.write_bytes(version_1(header))
    with pytest.raises(lossless.FileError, match="is damaged"):
        lossless.load(path)


def test_exponents_that_are_other_than_told(tmp_path: Path) -> None:
    """A digest that is right, of a code that ends early."""
    path = tmp_path / "w"
    path.write_bytes(version_1(coded=bytes(400)))
    with pytest.raises(lossless.FileError, match="exponents of w cannot be decoded"):
        lossless.load(path)


def test_other_versions_and_coders(written: Path) -> None:
    raw = written.read_bytes()
    other = raw.replace(b'version\\": 2', b'version\\": 3').replace(MAGIC + b"\1", MAGIC + b"\3")
    written.write_bytes(other)
    with pytest.raises(lossless.FileError, match=r"has version 3, expected [12]"):
        lossless.load(written)
    with pytest.raises(LaunchError, match="coder is 'lzma', expected zlib, zstd"):
        lossless.save(written, {}, "lzma")


def test_files_of_version_1_are_read(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(version_1())
    with pytest.warns(DeprecationWarning, match=r"use lossless.save to write it in"):
        found = lossless.load(tmp_path / "w")
    assert found["w"].unpack().tobytes() == weights(40, 70).tobytes()


def test_a_file_is_written_as_a_whole(written: Path) -> None:
    before = written.read_bytes()
    with pytest.raises(LaunchError, match="expected bf16"):
        lossless.save(written, {"w": weights(4, 4), "v": np.zeros((2, 2))})
    assert written.read_bytes() == before and [*written.parent.iterdir()] == [written]


def test_files_are_safetensors_files(tmp_path: Path, import_optional: Any) -> None:
    load_file = import_optional("safetensors.numpy").load_file
    lossless.save(tmp_path / "w", {"w": weights(40, 70)})
    found, bits = load_file(tmp_path / "w"), weights(40, 70).view(np.uint16)
    assert np.array_equal(found["w.rest"], bits >> 8 & 0x80 | bits & 0x7F)


def test_special_files_are_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(lossless.FileError, match="not a regular file"):
        lossless.load(tmp_path / "fifo")
