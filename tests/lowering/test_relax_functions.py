"""How exact functions have to be: by what becomes of their results."""

from __future__ import annotations

import dataclasses

import pytest

import wsdsl
from wsdsl.codegen import relaxed_functions
from wsdsl.ir.tile_ops import Map
from wsdsl.lowering.instruction_counts import RELAXED as COUNTED_RELAXED
from wsdsl.lowering.passes.relax_functions import RELAXED, relax_functions

TEXT = """
@kernel
def f(X: f32[M, N], R: bf16[M, N], S: f16[M, N], w: f32[N], Y: OUT[M, N], Z: f32[M, N]):
    for m, n in tiles(M, N):
        x = X[m, n]
        BODY
"""


def bits(out: str, *lines: str) -> list[int]:
    text = TEXT.replace("OUT", out).replace("BODY", "\n        ".join(lines))
    kernel = relax_functions(wsdsl.parse(text).f.tile)
    return [op.bits for op in kernel.ops if isinstance(op, Map) and op.fn in ("gelu", "exp")]


@pytest.mark.parametrize(
    ("out", "what", "expected"),
    [
        ("bf16", "gelu(x)", 8),
        ("f16", "gelu(x)", 11),
        ("f8e4m3", "gelu(x)", 4),
        ("f32", "gelu(x)", 24),
        ("bf16", "gelu(x + w[n]) * w[n]", 8),
        ("bf16", "max(-gelu(x) / w[n], 0.0)", 8),
        ("bf16", "where(x > 0.0, gelu(x), x)", 8),
        # What is known to as few bits may be added, nothing else: they could cancel.
        ("bf16", "gelu(x) + cast(R[m, n], f32)", 8),
        ("bf16", "cast(R[m, n], f32) + gelu(x) * w[n]", 8),
        ("bf16", "cast(R[m, n], f32) - gelu(x)", 24),
        ("bf16", "gelu(x) + cast(cast(x, bf16), f32)", 24),
        ("f16", "gelu(x) + cast(S[m, n], f32)", 11),
        ("bf16", "gelu(x) + cast(S[m, n], f32)", 24),
        ("bf16", "gelu(x) - x", 24),
        ("bf16", "gelu(x) + w[n]", 24),
        # Rounded on the way.
        ("f32", "cast(cast(gelu(x), bf16), f32) - x", 8),
        ("f32", "cast(gelu(x) > 0.5, f32)", 24),
        ("i8", "cast(gelu(x), i8)", 24),
    ],
)
def test_what_is_kept_of_it(out: str, what: str, expected: int) -> None:
    assert bits(out, f"Y[m, n] = {what}") == [expected]


def test_what_rounding_leaves_is_exact() -> None:
    lines = ("g = gelu(x)", "h = cast(g, bf16)", "Y[m, n] = h", "Z[m, n] = g - cast(h, f32)")
    assert bits("bf16", *lines) == [24]


@pytest.mark.parametrize(("squares", "expected"), [(1, 9), (2, 10), (4, 12)])
def test_errors_of_factors_come_together(squares: int, expected: int) -> None:
    lines = ("g = gelu(x)", *["g = g * g"] * squares, "Y[m, n] = g")
    assert bits("bf16", *lines) == [expected]
    assert bits("bf16", "Y[m, n] = gelu(x) * exp(x)") == [9, 9]


def test_every_function_that_is_relaxed_has_a_quicker_one() -> None:
    assert {*RELAXED} == {*relaxed_functions.RELAXED}
    for name, by_bits in COUNTED_RELAXED.items():
        assert [*by_bits] == [most for most, _ in relaxed_functions.RELAXED[name]]


def test_whoever_needs_most_counts() -> None:
    assert bits("bf16", "g = gelu(x)", "Y[m, n] = g", "Z[m, n] = g * 2.0") == [24]


def test_a_sum_is_not_rounded() -> None:
    lines = ("e = exp(x)", "s = sum(e, over=n)", "Y[m, n] = e / s")
    assert bits("bf16", *lines) == [24]


def test_another_iteration_needs_all_bits() -> None:
    kernel = wsdsl.parse("""
@kernel
def f(X: f32[M, N], Y: bf16[M]):
    for m in tiles(M):
        total = zeros(f32[m])
        for n in tiles(N, by=128):
            total = exp(total) + sum(X[m, n], over=n)
        Y[m] = total
""").f.tile
    assert relax_functions(kernel) == kernel


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("tiles(N)", 15),
        ("tiles(N, by=256)", 15),
        # Of few elements the sum is off by less than each may be.
        ("tiles(N, by=64)", 24),
        ("tiles(0, end(m), of=N)", 24),
    ],
)
def test_elements_of_long_sums_may_be_off(loop: str, expected: int) -> None:
    kernel = wsdsl.parse(f"""
@kernel
def f(X: f32[M, N], Y: f32[M]):
    for m in tiles(M):
        total = zeros(f32[m])
        for n in {loop}:
            total += sum(where(index(n) <= index(m), exp(X[m, n]), 0.0), over=n)
        Y[m] = total
""").f.tile
    relaxed = relax_functions(dataclasses.replace(kernel, sizes=(("N", 1024),)))
    assert [op.bits for op in relaxed.ops if isinstance(op, Map) and op.fn == "exp"] == [expected]
