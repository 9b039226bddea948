"""Kernels, tiles and words of schedules that are refused by name."""

import warnings
from dataclasses import replace
from typing import Any

import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl import Schedule, ScheduleError
from wsdsl.deprecation import FIELDS
from wsdsl.diagnostics import CompileError
from wsdsl.records.entry import parse_schedule


def test_a_reduction_of_both_axes_is_refused_at_its_line() -> None:
    text = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], R: f32[M], S: f32[N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        R[m] += sum(acc, over=n)
        S[n] += sum(acc, over=m)
"""
    with pytest.raises(CompileError) as caught:
        wsdsl.parse(text).f.compile()
    told = {f.loc.line: f.message for f in caught.value.findings if f.loc}
    assert "reduces" in told[9]


@pytest.mark.parametrize("size", [0, 257])
def test_a_whole_dimension_is_one_tile(size: int) -> None:
    with pytest.raises(CompileError, match=rf"it has {size} elements; one tile has 1 to 256"):
        CASES["whole"].kernel.compile(D=size)


@pytest.mark.parametrize("more", [{}, dict(scheduler="split_k", splits=3, reduction="parallel")])
@pytest.mark.parametrize(
    ("name", "tile", "words"),
    [
        ("gemm", dict(k=100), "tile k=100 .* a multiple of 16 up to"),
        ("product_f8e4m3", dict(k=40), "tile k=40 .* a multiple of 32 up to"),
        ("product_tf32", dict(k=10), "tile k=10 .* a multiple of 8 up to"),
        ("gemm", dict(m=64, n=100), "tile n=100 .* a multiple of 8 up to"),
        ("mn_major", dict(m=72, n=12), "tile n=12 .* a multiple of 8 up to"),
        ("epilogue", dict(n=100), "tile n=100 .* a multiple of 8 up to"),
    ],
)
@pytest.mark.parametrize("sizes", [{}, dict(M=208, N=264, K=200)])
def test_tiles_that_are_none(
    name: str, tile: dict[str, int], words: str, more: dict[str, Any], sizes: dict[str, int]
) -> None:
    with pytest.raises(ScheduleError, match=words):
        CASES[name].kernel.schedule(Schedule(tile=tile, **more), **sizes)


RENAMED = {
    "mma": "m", "share": "n", "widths": 2, "precise_every": 0, "constant": ("B",), "overlap": True,
    "counters": dict(H=(64,)), "scale_path": "copy", "decode": dict(W="shared", X="registers"),
}  # fmt: skip


@pytest.mark.parametrize("name", RENAMED)
def test_deprecated_field_is_accepted_with_a_warning(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name}=.* is deprecated; use {FIELDS[name]}="):
        schedule = Schedule(**{name: RENAMED[name]})
    with pytest.warns(DeprecationWarning, match=f"use {FIELDS[name]}="):
        changed = replace(Schedule(stages=4), **{name: RENAMED[name]})
    assert changed == replace(schedule, stages=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_schedule(f"Schedule({name}={RENAMED[name]!r})") == schedule
    with pytest.warns(DeprecationWarning, match=f"Schedule.{name} is deprecated"):
        assert getattr(schedule, name) == getattr(schedule, FIELDS[name])


def test_a_carried_value_is_named_as_in_the_text() -> None:
    text = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        acc = acc + 1.0
        for k in tiles(K, by=64):
            acc = max(acc, A[m, k] @ B[n, k])
        C[m, n] = acc
"""
    with pytest.raises(ScheduleError, match="`acc` does not start at 0"):
        wsdsl.parse(text).f.schedule(Schedule(scheduler="split_k", splits=2))
