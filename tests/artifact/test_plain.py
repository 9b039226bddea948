"""Entries as bytes: what is damaged is found out, whatever the bytes say, and nothing is run."""

import dataclasses
import hashlib
import json
import pickle
import struct
from typing import Any

import pytest

import wsdsl
from tests.case_table import matmul_text
from wsdsl import Schedule
from wsdsl.artifact.artifact import Artifact, Choice, Names
from wsdsl.artifact.serialization import (
    MAGIC,
    CorruptError,
    Entry,
    OtherFormatError,
    from_bytes,
    opened,
    to_bytes,
)

TEXT = matmul_text(
    "sums(A: bf16[M, K], rows: i32[M], B: bf16[N, K], C: f32[M, N], scale: f32)",
    "A[m, k] @ B[n, k]",
    "C[m, n] += acc * scale + cast(rows[m], f32)",
)
CUT = Schedule(tile=dict(m=64, n=64, k=64), consumers=1, scheduler="split_k", splits=2)
KEY = "k" * 64


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return wsdsl.parse(TEXT).sums.compile(CUT).artifact


@pytest.fixture(scope="module")
def data(artifact: Artifact) -> bytes:
    return to_bytes(Entry(KEY, "emitter", artifact))


def test_an_artifact_comes_back(artifact: Artifact, data: bytes) -> None:
    key, emitter, again = from_bytes(KEY, data)
    assert (key, emitter) == (KEY, "emitter")
    for field in dataclasses.fields(artifact):
        assert getattr(again, field.name) == getattr(artifact, field.name), field.name
    assert again.ptx == artifact.ptx and again.assembled == artifact.assembled
    assert again.access.whole == artifact.access.whole and again.signature.lent
    assert type(again.params) is tuple and type(again.access.reads) is frozenset


@pytest.mark.parametrize(
    "value",
    [
        Choice(
            Schedule(tile=dict(m=64), pdl_independent=("B",), multicast=False),
            ("wider ones spill",),
        ),
        Choice(Schedule()),
        Names(()),
    ],
)
def test_others_come_back(value: Any) -> None:
    assert from_bytes(KEY, to_bytes(Entry(KEY, "", value))).value == value


def test_every_byte_counts(data: bytes) -> None:
    """One of each region, and of every stretch of each, is another one."""
    head = len(MAGIC) + 32 + 4
    for at in {*range(head), *range(head, len(data), 97), len(data) - 1}:
        broken = bytearray(data)
        broken[at] ^= 0x10
        with pytest.raises(CorruptError):
            from_bytes(KEY, bytes(broken))


def test_none_may_be_missing(data: bytes) -> None:
    for size in (*range(60), len(data) // 2, len(data) - 1):
        with pytest.raises(CorruptError):
            from_bytes(KEY, data[:size])
    with pytest.raises(CorruptError):
        from_bytes(KEY, data + b"\0")
    with pytest.raises(CorruptError):
        from_bytes(KEY, bytes(len(data)))


def test_it_is_of_its_own_key(data: bytes) -> None:
    with pytest.raises(CorruptError, match="another"):
        from_bytes("other", data)


def test_another_format_is_told(data: bytes) -> None:
    with pytest.raises(OtherFormatError):
        opened(KEY, data[: len(MAGIC) - 1] + b"\1" + data[len(MAGIC) :])


def sealed(value: Any, blobs: bytes = b"") -> bytes:
    """With a checksum that is right."""
    text = json.dumps([KEY, "", value]).encode()
    rest = struct.pack("<I", len(text)) + text + blobs
    return MAGIC + hashlib.sha256(rest).digest() + rest


class Evil:
    ran = False

    def __reduce__(self) -> Any:
        return setattr, (Evil, "ran", True)


@pytest.mark.parametrize(
    "value",
    [
        {"class": "system", "command": "false"},
        {"class": "os.system", "command": "false"},
        {"class": "Evil"},
        {"class": "Names", "names": [], "more": 1},
        {"class": "Names"},
        {"class": "Schedule", "stages": -1},
        {"class": "DType", "name": "f31"},
        {"class": "bytes", "at": 0, "size": 1000},
        {"class": []},
        {"names": []},
    ],
)
def test_what_it_says_is_not_run(value: Any) -> None:
    with pytest.raises(CorruptError):
        from_bytes(KEY, sealed(value, pickle.dumps(Evil())))
    assert not Evil.ran


def test_what_is_no_plain_data_is_not_written() -> None:
    with pytest.raises(TypeError):
        to_bytes(Entry(KEY, "", Evil()))
