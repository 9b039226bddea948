"""Kernels and functions as Python defines them: places, nesting, what their names stand for."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wsdsl
from wsdsl import dims, exp, f32, function, kernel, tiles, zeros
from wsdsl.ir.op import Op
from wsdsl.ir.ops import Constant, Contract, Load, Reduce, Store
from wsdsl.ir.rewriter import walk
from wsdsl.ir.types import Tensor

M, N, K = dims("M N K")
ROWS = M
WIDE = np.int64(48)
HALF = np.float32(0.5)
NOT_A_NUMBER = np.zeros(3)
LINES = Path(__file__).read_text().splitlines()


def first(made: wsdsl.Kernel, kind: type[Op]) -> Op:
    return next(op for op in walk(made.tile_ir.body) if isinstance(op, kind))


def spelled(op: Op) -> str:
    """The text that an op's place points at, read from this file."""
    assert op.loc is not None
    assert op.loc.file == __file__
    return LINES[op.loc.line - 1][op.loc.column - 1 : op.loc.end - 1]


def configured(**_: Any) -> Any:
    return kernel


def make_nested() -> wsdsl.Kernel:
    if M is not None:
        # fmt: off
        @configured(
            a=dict(m=64,
                   n=64),
            b="def of something",
        )
        def nested(
            A: f32[M, K],
            B: f32[N, K],   # a remark: with a colon

            C: f32[M, N],
        ):
            """A docstring
of several lines."""
            for m, n in tiles(M, N):

                # a remark
                acc = zeros(f32[m, n])
                for k in tiles(K):
                    acc += (A[m, k] @
                            B[n, k])
                C[m, n] = acc
        # fmt: on

        return nested
    raise AssertionError


def test_places_of_a_nested_function() -> None:
    made = make_nested()
    assert spelled(first(made, Load)) == "A[m, k]"
    assert spelled(first(made, Store)) == "C[m, n]"
    product = first(made, Contract)
    assert product.loc is not None
    assert product.loc.text.strip() == "acc += (A[m, k] @"


def test_names_from_around() -> None:
    rows, columns, factor = dims("R"), 24, 3

    @kernel
    def made(A: f32[rows, columns], C: f32[ROWS, WIDE]):
        for m in tiles(ROWS):
            C[m, 2] = zeros(f32[m]) + factor * HALF

    types = [p.type for p in made.tile_ir.params]
    assert [t.dims for t in types if isinstance(t, Tensor)] == [("rows", "columns"), ("M", 48)]
    assert 1.5 in [op.value for op in walk(made.tile_ir.body) if isinstance(op, Constant)]


def test_local_sizes_in_annotations_that_python_evaluates() -> None:
    """Without `from __future__ import annotations` the types hold what the names stood for."""
    rows, columns = dims("R"), 24

    def made(A: f32[rows, columns], C: f32[rows]):
        for r in tiles(rows):
            C[r] = A[r, 3]

    made.__annotations__ = {"A": f32[rows, columns], "C": f32[rows]}
    types = [p.type for p in kernel(made).tile_ir.params]
    assert [t.dims for t in types if isinstance(t, Tensor)] == [("R", 24), ("R",)]


@function
def twice(x):
    return x + x


@function
def normal(x, top):
    """Two results, of which one comes from another function."""
    e = exp(x - top)
    return e, twice(e)


@function
def store_to(C, m, x):
    C[m] = x


@function
def endless(x):
    return endless(x) + 1.0


@function
def wrong(x):
    return x + unknown  # noqa: F821


@function
def even(x):
    return odd(x)


@function
def odd(x):
    return even(x)


def test_functions_are_inlined() -> None:
    @kernel
    def made(A: f32[M], C: f32[M], D: f32[M]):
        for m in tiles(M):
            e, d = normal(A[m], 1.0)
            store_to(C, m, e)
            D[m] = d

    a = np.linspace(-1, 1, 11, dtype=np.float32)
    c, d = np.zeros_like(a), np.zeros_like(a)
    made.reference(a, c, d)
    np.testing.assert_allclose(c, np.exp(a - 1), rtol=1e-6)
    np.testing.assert_array_equal(d, c + c)


def messages(made: wsdsl.Kernel) -> list[str]:
    with pytest.raises(wsdsl.WsdslError) as caught:
        _ = made.tile_ir
    return [f.message for f in caught.value.findings]


@pytest.mark.parametrize("called", [endless, even])
def test_recursion_is_refused(called: Any) -> None:
    @kernel
    def made(C: f32[M]):
        for m in tiles(M):
            C[m] = called(1.0)

    (message,) = messages(made)
    assert "calls itself" in message


def test_a_mistake_in_a_function_names_the_call() -> None:
    @kernel
    def made(C: f32[M]):
        for m in tiles(M):
            C[m] = wrong(1.0)
            C[m] = wrong(2.0)

    (message,) = messages(made)
    assert message.startswith("`unknown` is not defined (inside `wrong`, called at ")
    line = int(message.split(":")[-2])
    assert LINES[line - 1].strip() == "C[m] = wrong(1.0)"


def test_python_values_that_mean_nothing() -> None:
    @kernel
    def made(C: f32[M]):
        for m in tiles(M):
            C[m] = NOT_A_NUMBER + 1.0
            C[m] = np.exp(1.0)
            C[m] = make_nested

    with pytest.raises(wsdsl.ParseError):
        _ = made.tile_ir

    @kernel
    def other(C: f32[M]):
        for m in tiles(M):
            C[m] = NOT_A_NUMBER + 1.0
            C[m] = LINES
            for _i in range(3):
                C[m] = len(C)

    assert messages(other) == [
        "`NOT_A_NUMBER` is of type ndarray, which a kernel cannot use",
        "`LINES` is of type list, which a kernel cannot use",
        "`range` is not defined",
        "`len` is not defined",
    ]


def test_what_is_no_function_with_a_source() -> None:
    assert "is not a def" in messages(kernel(lambda C: C))[0]
    scope: dict[str, Any] = {}
    exec("def f(C): pass", scope)
    assert "has no source" in messages(kernel(scope["f"]))[0]


def test_a_name_that_is_assigned_later() -> None:
    @kernel
    def made(C: f32[M]):
        for m in tiles(M):
            C[m] = later

    assert messages(made) == ["`later` is not defined"]
    later = 1.0
    assert functools.reduce(max, [later]) == 1.0


def test_words_that_hide_builtins_are_those_outside_of_kernels() -> None:
    from wsdsl import abs, max, min, round, sum

    assert (max(3, 4), max([1, 2], key=lambda x: -x), min(2, 3), min([], default=5)) == (4, 1, 2, 5)
    assert (sum([1, 2], start=3), abs(-2), round(2.567, 1), round(2.5)) == (6, 2, 2.6, 2)
    with pytest.raises(wsdsl.WsdslError, match="has a meaning only inside a @kernel"):
        max([1, 2], over=1)


def test_they_are_words_inside_of_kernels_whoever_they_are() -> None:
    from wsdsl import max, sum

    @wsdsl.kernel
    def k(X: f32[M, N], Y: f32[M]):
        for m in tiles(M):
            Y[m] = max(sum(X[m, :], over=N), min(X[m, :], over=N))

    assert [op.fn for op in k.tile_ir.ops if isinstance(op, Reduce)] == ["add", "min"]
