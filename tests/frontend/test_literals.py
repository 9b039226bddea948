"""Literals beside values of each float type."""

import re
from random import Random

import numpy as np
import pytest

import wsdsl
from wsdsl.diagnostics import TypeCheckError
from wsdsl.frontend.element_types import is_rounded, loses_digits, nearest
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import numpy_dtype

WIDE = ("f32", "bf16", "f16")
SMALL = ("f8e4m3", "f8e5m2", "f6e2m3", "f6e3m2", "f4e2m1")


def kernel(dtype: str, value: str) -> wsdsl.Kernel:
    text = f"@kernel\ndef k(X: {dtype}[M, N], Y: {dtype}[M, N]):\n    for m, n in tiles(M, N):\n"
    return wsdsl.parse(f"{text}        x = X[m, n]\n        Y[m, n] = {value}\n").k


@pytest.mark.parametrize("name", [*WIDE, *SMALL])
def test_nearest_is_what_numpy_rounds_to(name: str) -> None:
    rng, dtype = Random(0), DTYPES[name]
    least = 2.0 ** dict(f32=-149, bf16=-133, f16=-24).get(name, -9)
    for _ in range(500):
        value = rng.choice((1.0, least * rng.randint(1, 9), 7.0)) * rng.uniform(-1, 1)
        held = float(np.array(value).astype(np.float64).astype(numpy_dtype(dtype)))
        assert nearest(value, dtype) == held, value
        assert is_rounded(value, dtype) == (held != value)


@pytest.mark.parametrize("name", WIDE)
def test_no_number_becomes_0(name: str) -> None:
    """By more than half of the least one; the hint's text computes with what it was."""
    least = 2.0 ** dict(f32=-149, bf16=-133, f16=-24)[name]
    for value in ("x * {}", "x / (abs(x) + {})", "max({}, x)", f"full({name}, {{}})", "{}"):
        _ = kernel(name, value.format(repr(least))).tile_ir
        small = value.format(repr(least / 2 - least / 64))
        with pytest.raises(TypeCheckError, match=f"rounds to 0 in {name}, whose least") as told:
            _ = kernel(name, small).tile_ir
        if name == "f16" and "x" in value:
            (hint,) = re.findall(r"as in (cast\(x, f32\))", str(told.value))
            _ = kernel(name, re.sub(r"\bx\b", hint, small)).tile_ir


@pytest.mark.parametrize("value", ["1e-200 * 1e-200", "1e-200 / 1e200", "1e-50", "-1e-46"])
def test_no_smaller_one_either(value: str) -> None:
    with pytest.raises(TypeCheckError, match=r"too small|rounds to 0 in f32"):
        _ = kernel("f32", f"x * ({value})").tile_ir


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_digits_are_kept(name: str) -> None:
    """An operation rounds once, to what a literal of that many digits gives."""
    rng, dtype = Random(1), DTYPES[name]
    held = numpy_dtype(dtype)
    x = np.arange(1, 9).astype(held).reshape(1, 8)
    wide = x.astype(np.float32)
    assert not any(loses_digits(v, dtype) for v in (0.1, 0.3, 0.125, 3.14, 257, 1e-5, 1000.0))
    for digits in (1, 4, 7):
        own = rng.randint(10 ** (digits - 1) + 1, 10**digits - 1) / 10 ** (digits - 1)
        used = np.float32(own) if loses_digits(own, dtype) else np.float32(held.type(own))
        assert loses_digits(own, dtype) == (digits > 4) or digits == 4
        for value, wanted in (
            (f"x * {own}", wide * used), (f"{own} - x", used - wide), (f"x / {own}", wide / used),
            (f"where(x < {own}, x, 0.0)", np.where(wide < used, wide, 0)),
            (f"fma(x, {own}, x)", wide * used + wide),
        ):  # fmt: skip
            assert np.array_equal(kernel(name, value).reference(x), wanted.astype(held)), value
            assert np.array_equal(kernel(name, value).simulate(x, None), wanted.astype(held)), value


def test_a_factor_of_a_product_is_no_computed_operand() -> None:
    text = "@kernel\ndef k(A: bf16[M, K], B: bf16[N, K], C: f32[M, N]):\n"
    text += (
        "    for m, n in tiles(M, N):\n        acc = zeros(f32[m, n])\n        for k in tiles(K):\n"
    )
    text += "            acc += (A[m, k] * {}) @ B[n, k]\n        C[m, n] = acc\n"
    plain, exact = (wsdsl.parse(text.format(x)).k for x in ("0.0884", "0.08838834764"))
    assert exact.schedule(M=512, N=512, K=512) == plain.schedule(M=512, N=512, K=512)
    a = np.random.default_rng(0).integers(-8, 9, (8, 64)).astype(numpy_dtype(DTYPES["bf16"]))
    wide = a.astype(np.float64)
    assert np.allclose(exact.simulate(a, a, None), wide @ wide.T * 0.08838834764, 1e-6)
