"""`lossless.matmul` in the simulator, against float64 and the weights themselves."""

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_data import rejects
from wsdsl import LaunchError, Schedule
from wsdsl.kernels import lossless
from wsdsl.kernels.lossless.lossless_matmul import arranged, kernel_of, sizes_of, source_of

BF16 = ml_dtypes.bfloat16
PALETTES: tuple[Any, ...] = ("bytes", "exponents")
SCHEDULES = [
    None,
    Schedule(operand_transform="smem"),
    Schedule(operand_transform="registers", scheduler="split_k", splits=2),
    Schedule(operand_transform="registers", scheduler="stream_k"),
]


def normal(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) / 8).astype(BF16)


def product(x: Any, w: Any) -> Any:
    with np.errstate(all="ignore"):
        return x.astype(np.float64) @ w.astype(np.float64).T


def simulated(x: Any, weights: lossless.Weights, schedule: Schedule | None = None) -> Any:
    given, kernel, shape = arranged(x, weights, None, "f32")
    return kernel.simulate(*given, schedule=schedule).reshape(shape)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_right(palette: Any, schedule: Schedule | None) -> None:
    """With rows that are kept as they are: seven in the first 64 of N, others elsewhere."""
    w = normal(200, 400)
    w[[0, 5, 9, 63, 64, 199, 130], [0, 70, 200, 399, 399, 64, 263]] *= 2.0**-60
    w[17:20, 128:140] *= 2.0**60
    packed, x = lossless.pack(w, palette), normal(9, 400, seed=1)
    assert packed.statistics.verbatim > 0.005
    got, wanted = simulated(x, packed, schedule), product(x, w)
    assert np.allclose(got, wanted, rtol=2**-16, atol=2**-16 * 2.0**60)
    others = [n for n in range(200) if n not in range(17, 20)]
    assert np.allclose(got[:, others], wanted[:, others], atol=2**-16)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize("decode", ["registers", "shared"])
def test_one_hot_gives_exact_weights_of_every_pattern(palette: Any, decode: Any) -> None:
    """All finite ones; what is not finite makes its whole row NaN."""
    bits = np.random.default_rng(0).permutation(1 << 16).astype(np.uint16).reshape(256, 256)
    w = bits.view(BF16)
    finite = np.where(np.isfinite(w.astype(np.float32)), w, np.zeros((), BF16))
    packed = lossless.pack(finite, palette)
    got = simulated(np.eye(256, dtype=BF16), packed, Schedule(operand_transform=decode))
    assert np.array_equal(got.T, finite.astype(np.float32))


@pytest.mark.parametrize("palette", PALETTES)
def test_many_rows_of_few_patterns_come_from_the_palette(palette: Any) -> None:
    """Every pattern of the 16 values and all lower bytes, none of them verbatim."""
    code, rest = np.arange(16, dtype=np.uint16)[:, None], np.arange(256, dtype=np.uint16)
    if palette == "bytes":
        bits = ((code & 8) << 12 | (code % 8 * 3 + 50) << 8 | rest).ravel()
    else:
        bits = ((rest & 128) << 8 | (code * 3 + 50) << 7 | rest & 127).ravel()
    w = np.random.default_rng(0).permutation(bits).reshape(64, 64).view(BF16)
    packed = lossless.pack(w, palette)
    assert packed.statistics.verbatim == 0
    assert np.array_equal(simulated(np.eye(64, dtype=BF16), packed).T, w.astype(np.float32))


@pytest.mark.parametrize("palette", PALETTES)
def test_what_is_not_finite(palette: Any) -> None:
    w, x = normal(70, 140), np.ones((3, 140), BF16)
    w[3, 5], w[4, 100], w[65, 139], w[66, [1, 2]] = np.inf, -np.inf, np.nan, [np.inf, -np.inf]
    got, wanted = simulated(x, lossless.pack(w, palette)), product(x, w)
    assert np.allclose(got, wanted, atol=2**-16, equal_nan=True)
    # Most weights may be so, too: then the palette has them.
    w[:] = np.inf
    assert np.all(simulated(x, lossless.pack(w, palette)) == np.inf)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (8, 3), (65, 129), (30, 200)])
def test_any_sizes_and_leading_dimensions(n: int, k: int) -> None:
    w, x = normal(n, k), normal(2, 3, k, seed=1)
    got = lossless.matmul(x, lossless.pack(w), out_dtype="f32")
    assert got.shape == (2, 3, n) and np.allclose(got, product(x, w), atol=2**-16)
    assert np.array_equal(lossless.matmul(x[0, 0], lossless.pack(w), out_dtype="f32"), got[0, 0])


def test_outputs() -> None:
    w, x = lossless.pack(normal(24, 32)), normal(5, 32, seed=1)
    exact = lossless.matmul(x, w, out_dtype="f32")
    assert np.array_equal(lossless.matmul(x, w), exact.astype(BF16))
    out = np.zeros((5, 24), np.float16)
    assert lossless.matmul(x, w, out) is out
    assert np.array_equal(out, exact.astype(np.float16))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("palette", "decode"), zip(PALETTES, ["registers", "shared"], strict=True))
def test_proved(palette: Any, decode: Any) -> None:
    kernel, sizes = kernel_of(palette, "bf16"), sizes_of(16, 512, 1024)
    assert kernel.compile(Schedule(operand_transform=decode), **sizes).prove()


def test_weights_come_through_slots() -> None:
    """Vectors of 16 bytes, one for 64 x 64 codes and two for their lower bytes; of eight weights
    the upper bytes are found by ten moves of bytes, or by four and two for their signs, and put
    beside the lower ones by four.
    """
    sizes = sizes_of(16, 512, 1024)
    schedule = Schedule(consumers=1, scheduler="persistent", tile=dict(k=64))
    for palette, moves in zip(PALETTES, (6, 10), strict=True):
        ptx = kernel_of(palette, "bf16").compile(schedule, **sizes).ptx
        assert ptx.count("ld.shared.v4.b32") == 3
        assert ptx.count("prmt.b32") == 4 * (moves + 4)


def test_four_consumers_decode_while_memory_is_the_limit() -> None:
    """Packed weights count as the bytes that they are; of 256 rows two have registers for sums."""
    kernel = kernel_of("bytes", "bf16")
    chosen = {m: kernel.schedule(**sizes_of(m, 28672, 8192)) for m in (1, 64, 128, 256)}
    assert [x.consumers for x in chosen.values()] == [4, 4, 4, 2]
    assert chosen[128].tile and chosen[128].tile["n"] == 256
    # As many slots of 24 KB as memory fills, not as many as there is room for.
    asked = Schedule(scheduler="persistent", tile=dict(k=64))
    assert kernel.schedule(asked, **sizes_of(1, 28672, 8192)).stages == 6


def test_no_product_of_64_bits_stands_in_the_loop() -> None:
    """Beside wgmma it takes as long as 40 instructions. A pair has a vector for 32 columns."""
    sizes = sizes_of(128, 512, 1024)
    tile = dict(m=16, n=64, k=64)
    schedule = Schedule(consumers=1, operand_transform="registers", scheduler="grid", tile=tile)
    ptx = kernel_of("bytes", "bf16").compile(schedule, **sizes).ptx
    loop = ptx[ptx.index("wgmma.fence") :]
    assert not re.search(r"mul\.lo\.s64|mad\.lo\.s64", loop)
    # What is next in memory comes to L2 with it.
    assert loop.count("ld.global.L2::128B.v4.b32") == 2


def test_refusals() -> None:
    packed, x = lossless.pack(normal(8, 32)), normal(4, 32)
    rejects(r"weights is a ndarray, expected the result of lossless", lossless.matmul, x, x)
    rejects(r"x has shape \(4, 30\), expected \[..., 32\]", lossless.matmul, x[:, :30], packed)
    with pytest.raises(LaunchError, match=r"out has shape \(8, 4\).*\n.*contiguous .*\(4, 8\)"):
        lossless.matmul(x, packed, np.zeros((8, 4), BF16))
    with pytest.raises(LaunchError, match="different types: bf16 and f32"):
        lossless.matmul(x, packed, np.zeros((4, 8), BF16), out_dtype="f32")
    rejects("is i32, expected bf16, f16, f32", lossless.matmul, x, packed, out_dtype="i32")
    rejects("f32", lossless.matmul, x.astype(np.float32), packed)


def test_the_page_shows_its_text() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    assert source_of("bytes", "bf16") in page


@pytest.mark.parametrize(("n", "k"), [(1, 1), (65, 129), (200, 640)])
def test_sizes_ahead_of_weights(n: int, k: int) -> None:
    held, told = lossless.pack(normal(n, k)), sizes_of(3, n, k)
    assert held.low.shape == held.codes.shape == (n, told["K"])
    assert held.marks.shape == (told["G"], told["B"]) and held.firsts.shape == (told["G"],)
