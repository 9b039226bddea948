"""Which lookups become bytes of words, and which bytes are joined."""

from __future__ import annotations

from typing import Any

import pytest

from wsdsl import parse
from wsdsl.lowering.passes.hold_tables import hold_tables
from wsdsl.lowering.passes.join_bytes import join_bytes

TEXT = """
@kernel
def made(W: u4[N, K], B: u8[N, K], T: u8[16], Y: {out}[N, K]):
    for n, k in tiles(N, K):
        Y[n, k] = {value}
"""


def tile_of(value: str, out: str = "bf16") -> Any:
    (own,) = vars(parse(TEXT.format(value=value, out=out))).values()
    return own.tile


@pytest.mark.parametrize(
    "value",
    [
        "bitcast(cast(B[n, k], u16) << 8 | cast(B[n, k], u16), bf16)",
        "bitcast(cast(B[n, k], u16) + (cast(B[n, k], u16) << 8), bf16)",
    ],
)
def test_bytes_are_joined(value: str) -> None:
    assert 'fn="join"' in str(join_bytes(tile_of(value)))


@pytest.mark.parametrize(
    "value",
    [
        "bitcast(cast(B[n, k], u16) << 7 | cast(B[n, k], u16), bf16)",
        "bitcast(cast(B[n, k], u16) << 8 & cast(B[n, k], u16), bf16)",
        "bitcast(cast(B[n, k], u16) << 8 | cast(W[n, k], u16), bf16)",
        "cast(cast(B[n, k], u16) << 8 | cast(B[n, k], u16), bf16)",
    ],
)
def test_others_stay(value: str) -> None:
    tile = tile_of(value)
    assert join_bytes(tile) is tile


def test_tables_are_held() -> None:
    text = str(hold_tables(tile_of("lookup(T, W[n, k])", "u8")))
    assert text.count("load(tensor=%T") == 16 and 'fn="byte_of"' in text and "lookup" not in text
    assert text.index("load(tensor=%T") < text.index("for_tiles")


@pytest.mark.parametrize("value", ["lookup(T, B[n, k])", "lookup(T, B[n, k] & 15)"])
def test_an_index_of_more_bits_is_loaded(value: str) -> None:
    tile = tile_of(value, "u8")
    assert hold_tables(tile) is tile
