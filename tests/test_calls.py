"""What is given to a kernel beside arrays that fit: told by name, before anything runs."""

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from wsdsl import CompileError, LaunchError, ParseError, ScheduleError, dims, f32, kernel, tiles
from wsdsl.ir.target import MAX_SIZE

SOURCE = """
@kernel
def scaled(A: bf16[M, K], B: bf16[N, K], s: f32, C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc * s
"""
SCALED = wsdsl.parse(SOURCE).scaled
A = np.ones((8, 16), ml_dtypes.bfloat16)
C = np.zeros((8, 8), np.float32)


@pytest.mark.parametrize("more", [("x",), (1, 2)])
@pytest.mark.parametrize("way", [SCALED, SCALED.simulate, SCALED.reference])
def test_arguments_too_many(way, more) -> None:
    with pytest.raises(LaunchError, match=r"takes 4 arguments .*; [56] given"):
        way(A, A, 1.0, C, *more)


@pytest.mark.parametrize("number", ["1e3", b"7", None, A])
def test_what_is_no_number(number) -> None:
    with pytest.raises(LaunchError, match="argument 3"):
        SCALED(A, A, number, C)


@pytest.mark.parametrize("size", [-1, 1.5, "64", MAX_SIZE + 1, None])
@pytest.mark.parametrize("way", ["compile", "schedule", "explain", "timeline"])
def test_what_is_no_size(way: str, size) -> None:
    with pytest.raises(CompileError, match=f"a size is a number from 0 to {MAX_SIZE}"):
        getattr(SCALED, way)(M=size, N=64, K=64)


def test_numpy_has_sizes_too() -> None:
    assert SCALED.schedule(M=np.int64(64)) == SCALED.schedule(M=64)


@pytest.mark.parametrize("schedule", [64, "persistent", dict(stages=4)])
def test_what_is_no_schedule(schedule) -> None:
    for way in (SCALED.compile, SCALED.schedule, SCALED.explain):
        with pytest.raises(ScheduleError, match="is no schedule"):
            way(schedule)
    for way in (SCALED, SCALED.simulate):
        with pytest.raises(ScheduleError, match="is no schedule"):
            way(A, A, 1.0, schedule=schedule)


@pytest.mark.parametrize("way", [wsdsl.parse, wsdsl.compile_ir])
def test_what_is_no_text(way) -> None:
    with pytest.raises(ParseError, match="NoneType is no text"):
        way(None)


def test_a_factory_may_choose_the_element_type() -> None:
    M = dims("M")

    def made_for(T):
        @kernel
        def doubled(X: T[M], Y: T[M]):
            for m in tiles(M):
                Y[m] = X[m] + X[m]

        return doubled

    np.testing.assert_array_equal(made_for(f32)(np.ones(5, np.float32)), np.full(5, 2.0))


def test_none_is_nothing_that_a_kernel_knows() -> None:
    M, none = dims("M"), None

    @kernel
    def scaled_by_none(X: f32[M], Y: f32[M]):
        for m in tiles(M):
            Y[m] = X[m] * none

    with pytest.raises(wsdsl.TypeCheckError, match="`none` is of type NoneType"):
        scaled_by_none.compile()
