"""The card converts as the reference says, bit for bit; through SMEM and TMA, and directly."""

from typing import Any

import numpy as np
import pytest

from tests import conversions

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def test_conversions() -> None:
    made = conversions.arguments()
    conversions.KERNEL(*made.values())
    conversions.check(made)


def test_stored_directly() -> None:
    """An address that TMA cannot access: the last row and column are left out."""
    made = conversions.arguments()
    small = {name: np.ascontiguousarray(a[:-1, :-1]) for name, a in made.items()}
    conversions.KERNEL(*small.values())
    wanted = conversions.expected()
    for name, a in small.items():
        if name in wanted:
            made[name][...] = wanted[name]
            made[name][:-1, :-1] = a
    conversions.check(made)
