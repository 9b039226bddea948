"""Functions whose results are rounded to fewer bits, on this machine."""

import math

import numpy as np
import pytest

from tests.codegen.test_float_functions import ERF, EXACT, SPECIAL, run, samples
from wsdsl.codegen.arithmetic.approximate_functions import RELAXED, relaxed
from wsdsl.lowering.instruction_counts import RELAXED as COUNTS
from wsdsl.lowering.passes.approximate_math import RELAXED as NAMES

GELU = (lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2))), -4, 12)
CASES = [(name, bits) for name, held in RELAXED.items() for bits, _ in held if name != "tanh"]


@pytest.mark.parametrize(("name", "bits"), CASES)
def test_a_quarter_of_the_rounding(name: str, bits: int) -> None:
    exact, low, high, *_ = EXACT.get(name, GELU)
    x = np.concatenate([samples(low, min(high, 88)), np.float32([-87.3, -80.5, 87.9])])
    want = exact(x.astype(np.float64))
    off = np.abs(run(relaxed(name, bits), x) - want)
    # The f32 function has the same error where gelu is nearly 0.
    floor = 2.0**-22 if name == "gelu" else 2.0**-126
    assert np.max(off / (np.abs(want) + 2.0 ** (bits + 2) * floor)) < 2.0 ** -(bits + 2)


@pytest.mark.parametrize(("name", "bits"), CASES)
def test_special_values(name: str, bits: int) -> None:
    exact, *_ = EXACT.get(name, GELU)
    with np.errstate(all="ignore"):
        want = np.asarray(exact(SPECIAL))
    if name == "gelu":
        want[np.isneginf(SPECIAL)] = 0  # its limit
    got = run(relaxed(name, bits), SPECIAL.astype(np.float32))
    np.testing.assert_allclose(got, want.astype(np.float32), rtol=2.0 ** -(bits + 2), atol=2e-7)


def test_normal_results_are_kept() -> None:
    """Though 1 + e^88 has no normal reciprocal."""
    x = np.concatenate([np.linspace(-88.5, -80, 20_001), [1e-35, -1e-36]]).astype(np.float32)
    exact = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))
    assert np.max(np.abs(run(relaxed("silu", 8), x) / exact - 1)) < 2.0**-16


def test_more_bits_are_those_of_f32() -> None:
    for name in RELAXED:
        assert relaxed(name, 24) is not relaxed(name, 8)
    assert relaxed("gelu", 11) is not relaxed("gelu", 8)
    assert relaxed("tanh", 11) is relaxed("tanh", 24)
    assert relaxed("sin", 8) is relaxed("sin", 24)


def test_relaxed_functions_match_names_and_counts() -> None:
    assert {*NAMES} == {*RELAXED}
    for name, by_bits in COUNTS.items():
        assert [*by_bits] == [most for most, _ in RELAXED[name]]
