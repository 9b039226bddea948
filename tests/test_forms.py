"""Forms of a kernel that take its arrays as tensors of other types: words, and one axis."""

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from benchmarks.pattern_texts import TEXTS
from wsdsl import Schedule, parse
from wsdsl.diagnostics import LaunchError
from wsdsl.dispatch.kernel import Kernel
from wsdsl.ir.ops import LoadGlobal, StoreGlobal
from wsdsl.lowering.one_axis import with_one_axis
from wsdsl.lowering.packed_components import with_words

BF16 = ml_dtypes.bfloat16
TEXT = """
@kernel
def mixed(X: bf16[B, M, N], Z: f32[B, M, N], s: f32[1], Y: bf16[B, M, N]):
    for b in each(B):
        for m, n in tiles(M, N):
            Y[b, m, n] += X[b, m, n] * Z[b, m, n] + s[0]

@kernel
def turned(X: bf16[M, N, 2], Y: bf16[N, M, 2]):
    for m, n in tiles(M, N):
        a, b = X[m, n, 0], X[m, n, 1]
        Y[n, m, 1] = a
        Y[n, m, 0] = b * 2.0

@kernel
def bytes(X: i8[M, N, 4], Y: i8[M, N, 2]):
    for m, n in tiles(M, N):
        Y[m, n, 0] = X[m, n, 3] - X[m, n, 1]
        Y[m, n, 1] = X[m, n, 2] - X[m, n, 0]

@kernel
def numbered(X: i32[B, N], Y: i32[B, N]):
    for b in each(B):
        for n in tiles(N):
            Y[b, n] = X[b, n] + b

@kernel
def doubled(X: bf16[M, N, 2]):
    for m, n in tiles(M, N):
        a, b = X[m, n, 0], X[m, n, 1]
        X[m, n, 0] = b
        X[m, n, 1] = a
"""
NO_AXIS = {
    "a row for all": "Y[m, n] = X[m, n] + b[n]",
    "a place": "Y[m, n] = X[m, n] + cast(index(n), f32)",
    "two orders": "Y[m, n] = X[m, n] + Z[n, m]",
    "a reduction": "Y[m, n] = X[m, n] - sum(X[m, n], over=n)",
    "a part": "Y[m, n] = X[m, n] + X[m, 0]",
    "a size": "Y[m, n] = X[m, n] / cast(N, f32)",
    "an index": "Y[m, n] = where(m > 1, X[m, n], 0.0)",
    "an index beside": "Y[m, n] = X[m, n] + b[m + 1]",
}
NO_WORDS = {
    "half of a word stored": "Y[m, n, 0] = X[m, n, 0]",
    "read between the parts": "Y[m, n, 0] = 1.0\n        a = Y[m, n, 0]\n        Y[m, n, 1] = a",
    "added": "Y[m, n, 0] += 1.0\n        Y[m, n, 1] += 2.0",
}
ROPE = vars(parse("@kernel" + TEXTS["rope_of_neighbours"]))["rope_of_neighbours"]
OWN: Any = SimpleNamespace(**vars(parse(TEXT)))


def drawn(*shape: int, dtype: Any = BF16, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.integers(-9, 9, shape) if np.dtype(dtype).kind == "i" else rng.normal(size=shape)
    return values.astype(dtype)


def widest(kernel: Kernel, **sizes: Any) -> set[int]:
    """Elements of a thread's accesses."""
    kernel, schedule, own = kernel._select(None, sizes)
    found = kernel._compiled_for(schedule, own).scheduled
    return {op.vector for op in (*found.of(LoadGlobal), *found.of(StoreGlobal)) if op.vector > 1}


@pytest.mark.parametrize("told", NO_AXIS)
def test_no_one_axis(told: str) -> None:
    head = "X: f32[M, N], Z: f32[N, M], b: f32[N], Y: f32[M, N]"
    loops = "    for m in each(M):\n        for n in tiles(N):\n"
    text = f"@kernel\ndef k({head}):\n{loops}            {NO_AXIS[told]}\n"
    assert with_one_axis(vars(parse(text))["k"].tile_ir) is None


@pytest.mark.parametrize("told", NO_WORDS)
def test_no_words(told: str) -> None:
    head = "X: f32[M, N, 2], b: f32[N], Y: f16[M, N, 2]"
    text = f"@kernel\ndef k({head}):\n    for m, n in tiles(M, N):\n        {NO_WORDS[told]}\n"
    assert with_words(vars(parse(text))["k"].tile_ir) is None


def test_one_axis() -> None:
    """Rows of 35 elements begin anywhere; vectors do not."""
    x, z = drawn(3, 5, 35), drawn(3, 5, 35, dtype=np.float32, seed=1)
    s, y = np.array([0.5], np.float32), drawn(3, 5, 35, seed=2)
    want = y.copy()
    OWN.mixed.reference(x, z, s, want)
    got = y.copy()
    OWN.mixed.simulate(x, z, s, got)
    assert np.array_equal(got, want)
    compiled = OWN.mixed.compile(B=3, M=1000, N=35)
    got = y.copy()
    compiled.simulate(x, z, s, got)
    assert np.array_equal(got, want)
    assert widest(OWN.mixed, B=3, M=1000, N=35) == {4}


def test_an_index_that_is_a_number_has_an_axis() -> None:
    x, y = np.ones((5, 40), np.int32), np.zeros((5, 40), np.int32)
    OWN.numbered.simulate(x, y)
    assert np.array_equal(y, x + np.arange(5)[:, None])


def test_arrays_that_are_not_contiguous() -> None:
    x, z, s = drawn(3, 5, 41)[..., :35], drawn(3, 5, 35, dtype=np.float32), np.zeros(1, np.float32)
    want, got = drawn(3, 5, 35), drawn(3, 5, 35)
    OWN.mixed.reference(x, z, s, want)
    OWN.mixed.simulate(x, z, s, got)
    assert np.array_equal(got, want)
    with pytest.raises(LaunchError, match="was compiled for contiguous arrays"):
        OWN.mixed.compile(B=3, M=5, N=35).simulate(x, z, s, got)


def test_tiles_that_a_schedule_names() -> None:
    """Rows of whole lines are as quick by two axes."""
    asked = Schedule(tile=dict(m=64, n=64))
    assert OWN.mixed.schedule(asked, B=3, M=1000, N=35).tile == dict(m=64, n=64)
    assert [*(OWN.mixed.schedule(B=3, M=1000, N=35).tile or {})] == ["n"]
    assert [*(OWN.mixed.schedule(B=3, M=1000, N=128).tile or {})] == ["m", "n"]


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [("turned", (9, 37, 2), BF16), ("bytes", (9, 37, 4), np.int8), ("doubled", (9, 37, 2), BF16)],
)
def test_words(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    kernel = getattr(OWN, name)
    assert with_words(kernel.tile_ir) is not None
    x = drawn(*shape, dtype=dtype)
    wanted, given = (x.copy(), x.copy())
    want, got = kernel.reference(wanted), kernel.simulate(given)
    assert np.array_equal(got, want) and got.shape == want.shape


def test_words_come_in_vectors() -> None:
    assert widest(ROPE, S=8192, H=32, D=64) == {4}


def test_words_of_strided_rows() -> None:
    """As long as each is whole, and aligned."""
    kernel, c = ROPE, drawn(5, 8, dtype=np.float32)
    for x in (drawn(5, 3, 10, 2)[:, :, :8], drawn(5, 3, 8, 3)[..., 1:]):
        assert np.array_equal(kernel.simulate(x, c, c), kernel.reference(x, c, c))
