"""The reference and the simulator convert alike, and as NumPy and ml_dtypes do."""

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests import conversions
from wsdsl.codegen.arithmetic.literals import f8_bits, literal, tf32_value
from wsdsl.ir.types import DTYPES


@pytest.mark.parametrize("how", ["reference", "simulate"])
def test_conversions(how: str) -> None:
    made = conversions.arguments()
    getattr(conversions.KERNEL, how)(*made.values())
    conversions.check(made)


@pytest.mark.parametrize(
    ("name", "dtype"), [("f8e4m3", ml_dtypes.float8_e4m3fn), ("f8e5m2", ml_dtypes.float8_e5m2)]
)
def test_constants_of_codegen(name: str, dtype: type) -> None:
    """A constant of codegen equals the result of a cast."""
    wanted = conversions.expected()["F" if name == "f8e4m3" else "G"]
    values = conversions.floats()
    for value, bits in zip(values.flat, (wanted if name == "f8e4m3" else wanted.T).flat):
        assert f8_bits(float(value), name) == int(np.asarray(bits).view(np.uint8))
    assert literal(-1.0, DTYPES[name]) == str(int(np.asarray(-1, dtype).view(np.int8)))


def test_tf32_constants_of_codegen() -> None:
    for value, wanted in zip(conversions.floats().flat, conversions.expected()["T"].flat):
        assert tf32_value(float(value)) == wanted or np.isnan(wanted)


def test_a_number_of_tf32_keeps_its_lower_bits() -> None:
    """Only the tensor cores ignore them."""
    text = """
@kernel
def k(s: tf32[N], Y: f32[N]):
    for n in tiles(N):
        Y[n] = zeros(f32[n]) + cast(s[0], f32)
"""
    (kernel,) = vars(wsdsl.parse(text)).values()
    value = np.array([1 + 2**-15], np.float32)
    for run in (kernel.reference, kernel.simulate):
        found = np.zeros(1, np.float32)
        run(value, found)
        assert found[0] == value[0]
