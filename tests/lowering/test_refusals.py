"""What lowering cannot do yet is refused at its line, by name, all at once."""

from typing import Any

import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl import Schedule, ScheduleError
from wsdsl.diagnostics import CompileError

REFUSED = {
    "part_of_a_dimension": (
        """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], first: i32, C: f32[M, N]):
    for m in tiles(first, M, of=M):
        for n in tiles(N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            C[m, n] = acc
""",
        4,
        "walks a part of a dimension",
    ),
    "f32": (
        """
@kernel
def f(A: f32[M, K], B: f32[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
""",
        7,
        "`@` of f32 and f32",
    ),
    "fp8_mn_major": (
        """
@kernel
def f(A: f8e4m3[M, K], B: f8e5m2[K, N], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[k, n]
        C[m, n] = acc
""",
        7,
        "`B` is f8e5m2, and `k`, which the product sums over, is not its last",
    ),
    "unknown_whole_size": (
        """
@kernel
def f(A: bf16[M, D], B: bf16[N, D], C: f32[M, N]):
    for m, n in tiles(M, N):
        C[m, n] = A[m, :] @ B[n, :]
""",
        5,
        "`D` is taken whole",
    ),
    "both_axes_reduced": (
        """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], R: f32[M], S: f32[N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        R[m] += sum(acc, over=n)
        S[n] += sum(acc, over=m)
""",
        9,
        "reduces",
    ),
    "read_back": (
        """
@kernel
def f(A: f32[M, N], C: f32[M, N], D: f32[M, N]):
    for m, n in tiles(M, N):
        C[m, n] = A[m, n] * 2.0
        D[m, n] = C[m, n]
""",
        6,
        "read and written",
    ),
    "two_nests": (
        """
@kernel
def f(A: f32[M, N], C: f32[M, N]):
    for m, n in tiles(M, N):
        C[m, n] = A[m, n]
    for m, n in tiles(M, N):
        C[m, n] = A[m, n]
""",
        6,
        "second loop nest",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_its_line(name: str) -> None:
    text, line, words = REFUSED[name]
    kernel = wsdsl.parse(text, "f.ws").f
    with pytest.raises(CompileError) as caught:
        kernel.compile()
    assert any(
        f.loc and f.loc.line == line and words in f.message for f in caught.value.findings
    ), str(caught.value)


def test_all_refusals_at_once() -> None:
    text = """
@kernel
def f(A: f32[M, K], B: f32[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
    for m, n in tiles(M, N):
        C[m, n] = 0.0
"""
    with pytest.raises(CompileError) as caught:
        wsdsl.parse(text).f.compile()
    assert len({f.loc.line for f in caught.value.findings if f.loc}) >= 2


def test_an_unknown_size_is_named() -> None:
    text = REFUSED["two_nests"][0]
    with pytest.raises(CompileError, match="no dimension Q"):
        wsdsl.parse(text).f.compile(Q=3)


@pytest.mark.parametrize("size", [0, 257])
def test_a_whole_dimension_is_one_tile(size: int) -> None:
    text = REFUSED["unknown_whole_size"][0]
    with pytest.raises(CompileError, match=rf"of 1 to 256 elements, and there are {size}"):
        wsdsl.parse(text).f.compile(D=size)


@pytest.mark.parametrize("more", [{}, dict(scheduler="split_k", splits=3, reduction="parallel")])
@pytest.mark.parametrize(
    ("name", "tile", "words"),
    [
        ("gemm", dict(k=100), "tile k=100 is no multiple of 16 up to 256"),
        ("product_f8e4m3", dict(k=40), "tile k=40 is no multiple of 32 up to 256"),
        ("product_tf32", dict(k=10), "tile k=10 is no multiple of 8 up to 256"),
        ("gemm", dict(m=64, n=100), "tile n=100 is no multiple of 8 up to 256"),
        ("mn_major", dict(m=72, n=12), "tile n=12 is no multiple of 8 up to 256"),
        ("epilogue", dict(n=100), "tile n=100 is no multiple of 8 up to 256"),
    ],
)
@pytest.mark.parametrize("sizes", [{}, dict(M=208, N=264, K=200)])
def test_tiles_that_are_none(
    name: str, tile: dict[str, int], words: str, more: dict[str, Any], sizes: dict[str, int]
) -> None:
    with pytest.raises(ScheduleError, match=words):
        CASES[name].kernel.schedule(Schedule(tile=tile, **more), **sizes)


@pytest.mark.parametrize(("earlier", "today"), [("turns", "serial"), ("slices", "parallel")])
def test_an_earlier_word_names_todays(earlier: str, today: str) -> None:
    with pytest.raises(ScheduleError, match=f'"{earlier}" is called "{today}" today'):
        Schedule(reduction=earlier)  # type: ignore[arg-type]
