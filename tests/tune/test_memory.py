"""How results of two kernels differ."""

import numpy as np
import pytest

from wsdsl.tune.memory import fault


@pytest.mark.parametrize(
    ("dtype", "other", "told"), [("f4e2m1", 0x23, ""), ("u4", 0x23, "wrong: `Y` differs")]
)
def test_floats_of_four_bits_may_be_rounded_otherwise(dtype: str, other: int, told: str) -> None:
    """Two to a byte: 1.5 in place of 1; integers are exact."""
    exact = np.full(64, 0x22, np.uint8)
    held = exact.copy()
    held[5] = other
    assert fault("Y", held, exact, dtype, 2.0**-3) == told
    assert fault("Y", exact ^ 0x88, exact, dtype, 2.0**-3).startswith("wrong: `Y`")
