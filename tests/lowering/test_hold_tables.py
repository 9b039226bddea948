"""Which lookups become bytes of words, and which bytes are joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wsdsl import parse
from wsdsl.ir.tile_ops import Map
from wsdsl.lowering.passes.hold_tables import hold_tables
from wsdsl.lowering.passes.join_bytes import join_bytes

TEXT = """
@kernel
def made(W: u4[N, K], B: u8[N, K], T: u8[16], Y: {out}[N, K]):
    for n, k in tiles(N, K):
        Y[n, k] = {value}
"""

SHORT = """
@kernel
def found(W: u4[N, K], T: u8[{size}], Y: u8[N, K]):
    for n, k in tiles(N, K):
        Y[n, k] = lookup(T, {index})
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


@pytest.mark.parametrize(
    ("size", "index", "words"),
    [(8, "W[n, k] & 7", 2), (5, "7 & W[n, k]", 2), (8, "W[n, k]", 4), (9, "W[n, k] & 7", 4)],
)
def test_three_bits_of_an_index_choose_from_two_words(size: int, index: str, words: int) -> None:
    (own,) = vars(parse(SHORT.format(size=size, index=index))).values()
    (made,) = (op for op in hold_tables(own.tile).of(Map) if op.fn in ("byte_of", "byte_of_8"))
    assert len(made.args) == 1 + words
    rng = np.random.default_rng(8)
    w, t = (rng.integers(0, 256, n).astype(np.uint8) for n in ((16, 16), size))
    code = np.stack([w & 15, w >> 4], axis=2).reshape(16, 32) & (7 if "7" in index else 15)
    wanted = np.concatenate([t, np.zeros(16 - size, np.uint8)])[code]
    assert np.array_equal(own.simulate(w, t, None), wanted)


@pytest.mark.parametrize("value", ["lookup(T, B[n, k])", "lookup(T, B[n, k] & 15)"])
def test_an_index_of_more_bits_is_loaded(value: str) -> None:
    tile = tile_of(value, "u8")
    assert hold_tables(tile) is tile
