"""Patterns without products: the simulator and the reference beside NumPy's float64, and proved."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from benchmarks.pattern_texts import TEXTS
from tests.odd_patterns import ODD_PATTERNS
from tests.pattern_kernels import PATTERNS
from tests.patterns import Pattern
from wsdsl import Kernel, parse
from wsdsl.runtime.arrays.interop import numpy_dtype


def wide(array: Any) -> Any:
    return array.astype(np.float64) if getattr(array, "dtype", None) in FLOATS else array


FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)


def compare(pattern: Pattern, kernel: Kernel, run: Callable[..., Any], rng: Any) -> None:
    """What `run` stores beside what is wanted."""
    given = pattern.inputs(rng)
    wanted = pattern.wanted(*(wide(x) for x in given))
    kinds = [numpy_dtype(p.type.dtype) for p in kernel.tile_ir.params[len(given) :]]
    made = [np.zeros(w.shape, kind) for w, kind in zip(wanted, kinds, strict=True)]
    run(*given, *made)
    for got, exact, kind in zip(made, wanted, kinds, strict=True):
        step = 2.0**-18 if kind == np.float32 else 2.0**-8
        allowed = 0 if pattern.exact else step * (1 + abs(exact))
        with np.errstate(invalid="ignore"):
            assert ((abs(wide(got) - exact) <= allowed) | (wide(got) == exact)).all()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PATTERNS | ODD_PATTERNS)
def test_right_and_proved(name: str) -> None:
    pattern = (PATTERNS | ODD_PATTERNS)[name]
    (kernel,) = vars(parse("\n@kernel" + pattern.text)).values()
    for run in (kernel.simulate, kernel.reference):
        compare(pattern, kernel, run, np.random.default_rng(0))
    assert kernel._compiled_for(None, pattern.sizes).prove().proved


def test_dropout() -> None:
    """The same elements in every run, others for another seed, and as many as are said."""
    kernel = parse("@kernel" + TEXTS["dropout"]).dropout
    x = np.ones((130, 300), ml_dtypes.bfloat16)
    first, again, other = (kernel.simulate(x, np.uint32(seed), None) for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes() != other.tobytes()
    assert first.tobytes() == kernel.reference(x, np.uint32(1), None).tobytes()
    assert abs((first == 0).mean() - 0.25) < 0.01 and abs((other == 0).mean() - 0.25) < 0.01
    assert kernel._compiled_for(None, dict(M=8192, N=8192)).prove().proved
