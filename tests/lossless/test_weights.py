"""bf16 weights packed, and unpacked bit for bit."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_data import rejects
from wsdsl import LaunchError
from wsdsl.kernels import lossless
from wsdsl.kernels.lossless.lossless_weights import MOST_ROWS
from wsdsl.kernels.lossless.palette import ROW, entries_of

BF16 = ml_dtypes.bfloat16
PALETTES = ("auto", "bytes", "exponents")


def normal(n: int, k: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal((n, k)) / 50).astype(BF16)


def every_pattern(n: int, k: int) -> Any:
    return np.resize(np.arange(1 << 16, dtype=np.uint16), (n, k)).view(BF16)


def one_value(n: int, k: int) -> Any:
    """NaN with a payload."""
    return np.full((n, k), 0xFFC1, np.uint16).view(BF16)


@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (64, 128), (65, 129), (130, 300)])
@pytest.mark.parametrize("make", [normal, every_pattern, one_value])
def test_bit_for_bit(make: Any, shape: tuple[int, int], palette: Any) -> None:
    given = make(*shape)
    back = lossless.pack(given, palette).unpack()
    assert back.dtype == BF16 and back.tobytes() == given.tobytes()


def test_every_pattern_at_once_and_several_chunks(monkeypatch: Any) -> None:
    monkeypatch.setattr("wsdsl.kernels.lossless.palette.CHUNK", 1 << 14)
    given = every_pattern(256, 256)
    assert lossless.pack(given).unpack().tobytes() == given.tobytes()


@pytest.mark.parametrize("palette", PALETTES[1:])
def test_rows_with_a_missing_exponent_are_kept_alone(palette: Any) -> None:
    given = np.ones((130, 300), BF16)
    given[3, 70] = given[64, 160] = given[64, 161] = np.inf
    given[65:69, 0] = -(2.0**-30)
    # As many exponents that occur more often as there is room for.
    often = 2.0 ** np.arange(0, 4 * entries_of(palette), 4)
    given[100 : 100 + len(often), 100:132] = often.astype(BF16)[:, None]
    packed = lossless.pack(given, palette)
    kept = [x.tolist() for x in np.nonzero(packed.is_kept())]
    pairs = [(3, 1), (64, 2), *((n, 0) for n in range(65, 69))]
    # The other row of a pair is eight further on.
    wanted = {*pairs, *((n + 8, b) for n, b in pairs)}
    assert {*zip(*kept, strict=True)} == wanted and len(packed.verbatim) == 6
    # Of the group of 64 four stand in front of the pair at 2 along K, one in front of the group.
    assert packed.marks[4].tolist() == [0b11110, 4 << 8, 4 << 8 | 1, *[5 << 8] * 2]
    assert packed.firsts.tolist() == [0, *[1] * 4, *[6] * 4]
    assert packed.unpack().tobytes() == given.tobytes()


def test_a_pair_has_the_bytes_of_each_thread_side_by_side() -> None:
    """Of four lanes two neighbours of every eight, of either row."""
    bits = np.random.default_rng(0).integers(0, 1 << 16, (16, 64)).astype(np.uint16)
    packed = lossless.pack(bits, "bytes")
    assert packed.is_kept().all() and len(packed.verbatim) == 8
    n, k = np.arange(16)[:, None], np.arange(64)
    place = k // 2 % 4 * 32 + k // 8 * 4 + k % 2 * 2 + n // 8
    assert np.array_equal(packed.verbatim[n % 8, place], bits >> 8)


def test_contractions_that_are_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_ROWS * ROW == 134_217_664
    monkeypatch.setattr("wsdsl.kernels.lossless.lossless_weights.MOST_ROWS", 2)
    with pytest.raises(LaunchError, match=r"expected K <= 128\n.*pack each part"):
        lossless.pack(np.ones((1, 2 * ROW + 1), BF16))


def test_statistics_of_weights_of_one_width() -> None:
    found = lossless.pack(normal(1024, 1024)).statistics
    assert 2.5 < found.entropy < 2.6
    assert 0.008 < found.verbatim < 0.024
    assert 12.1 < found.bits < 12.4


def test_the_palette_that_takes_fewer_bytes() -> None:
    assert lossless.pack(normal(256, 256)).palette.kind == "bytes"
    every_second = np.ldexp(1.0, -2 * np.arange(16))
    given = np.resize(np.concatenate([every_second, -every_second]), (64, 96)).astype(BF16)
    chosen = lossless.pack(given)
    assert chosen.palette.kind == "exponents" and chosen.statistics.verbatim == 0


def test_bits_and_jax_like_arrays_are_taken() -> None:
    given = normal(70, 90)
    assert lossless.pack(given.view(np.uint16)).unpack().tobytes() == given.tobytes()
    strided = np.ascontiguousarray(given.T).T
    assert lossless.pack(strided).unpack().tobytes() == given.tobytes()


def test_refusals() -> None:
    rejects("is float32, expected bf16", lossless.pack, np.zeros((2, 2), np.float32))
    rejects(r"weights of shape \(2,\), expected \[N, K\]", lossless.pack, np.zeros(2, BF16))
    rejects(r"weights of shape \(0, 2\)", lossless.pack, np.zeros((0, 2), BF16))
    palette: Any = "best"
    rejects(r'palette is .best., expected "auto"', lossless.pack, normal(2, 2), palette)
