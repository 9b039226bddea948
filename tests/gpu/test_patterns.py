"""Patterns without products on the GPU beside NumPy's float64."""

from typing import Any

import numpy as np
import pytest

from tests.pattern_kernels import PATTERNS
from tests.test_patterns import compare
from wsdsl import parse

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", PATTERNS)
def test_right(name: str) -> None:
    (kernel,) = vars(parse("\n@kernel" + PATTERNS[name].text)).values()

    def run(*arrays: Any) -> None:
        """NumPy's arrays are copied there and back."""
        kernel(*arrays)

    compare(PATTERNS[name], kernel, run, np.random.default_rng(1))
