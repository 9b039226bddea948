"""fp8 sums that are promoted in parts of a tile: right, or refused."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels import CASES
from wsdsl import Schedule, ScheduleError, parse

FP8 = ml_dtypes.float8_e4m3fn
HEAD = "@kernel\ndef f(A: f8e4m3[M, K], B: f8e4m3[N, K], X: {x}[M, K], Y: {x}[N, K], C: f32[M, N]"
LOOP = """):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            {body}
        C[m, n] = acc
"""
PLAIN: Any = CASES["product_f8e4m3"].kernel
DEEP = Schedule(tile=dict(m=64, n=64, k=256), consumers=1)
OPEN = None


def made(body: str, x: str = "f8e4m3", more: str = "") -> Any:
    return parse(HEAD.format(x=x) + more + LOOP.format(body=body)).f


def operands(m: int, n: int, k: int, x: Any = FP8) -> list[Any]:
    rng = np.random.default_rng(0)
    own = [rng.integers(-2, 3, size).astype(FP8) for size in ((m, k), (n, k))]
    return own + [rng.integers(-2, 3, size).astype(x) for size in ((m, k), (n, k))]


def check(kernel: Any, want: Any, args: list[Any], schedule: Schedule | None, *more: Any) -> None:
    c = np.zeros((len(args[0]), len(args[1])), np.float32)
    kernel.simulate(*args, c, *more, schedule=schedule)
    a, b, x, y = (v.astype(np.float64) for v in args)
    assert np.array_equal(c, want(a @ b.T, x @ y.T))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", [OPEN, DEEP], ids=repr)
@pytest.mark.parametrize("size", [(16, 64, 1040), (130, 136, 272)])
def test_two_products_added_to_each_other(
    size: tuple[int, int, int], schedule: Schedule | None
) -> None:
    kernel = made("acc += A[m, k] @ B[n, k] + X[m, k] @ Y[n, k]")
    check(kernel, lambda p, q: p + q, operands(*size), schedule)


@pytest.mark.parametrize("schedule", [OPEN, DEEP], ids=repr)
def test_a_sum_beside_a_scalar(schedule: Schedule | None) -> None:
    """The scalar is no running total."""
    text = HEAD.format(x="f8e4m3") + ", alpha: f32" + LOOP.replace("tiles(K)", "tiles(K, by=256)")
    kernel = parse(text.format(body="acc += A[m, k] @ B[n, k] + alpha")).f
    args, c = operands(16, 72, 1024), np.zeros((16, 72), np.float32)
    kernel.simulate(*args, c, 0.0, schedule=schedule)
    assert np.array_equal(c, args[0].astype(np.float64) @ args[1].astype(np.float64).T)


def test_two_in_a_row() -> None:
    kernel = made("acc += A[m, k] @ B[n, k]\n            acc += X[m, k] @ Y[n, k]")
    for schedule in (OPEN, DEEP, Schedule(tile=dict(m=256, n=64))):
        check(kernel, lambda p, q: p + q, operands(200, 136, 272), schedule)


def test_beside_products_of_other_types() -> None:
    """They are summed in place, and nothing is promoted in parts beside them."""
    kernel = made("acc += A[m, k] @ B[n, k] + X[m, k] @ Y[n, k]", "bf16")
    check(kernel, lambda p, q: p + q, operands(130, 72, 272, ml_dtypes.bfloat16), OPEN)
    with pytest.raises(ScheduleError, match="where other matmuls"):
        kernel.schedule(DEEP)


def test_products_in_place_that_are_added_to_each_other() -> None:
    kernel = parse(
        HEAD.format(x="bf16").replace("f8e4m3", "bf16")
        + LOOP.format(body="acc += A[m, k] @ B[n, k] + X[m, k] @ Y[n, k]")
    ).f
    args = [v.astype(ml_dtypes.bfloat16) for v in operands(130, 72, 100)]
    check(kernel, lambda p, q: p + q, args, OPEN)


def test_parts_take_registers() -> None:
    kernel = made("acc += A[m, k] @ B[n, k]")
    with pytest.raises(ScheduleError, match="registers"):
        kernel.schedule(Schedule(tile=dict(m=128, n=192, k=256), mode="cooperative"))
    tile = kernel.schedule(Schedule(tile=dict(k=256)), M=8192, N=8192, K=8192).tile
    assert tile and tile["n"] <= 160


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        # One wave of two blocks of rows a consumer, not two of one each.
        ((777, 3584, 14336), dict(m=88, n=256)),
        # Wide ones take longer than their products tell; in thin products each byte counts.
        ((4096, 4096, 4096), dict(m=128, n=208)),
        ((64, 28672, 1536), dict(m=64, n=112)),
    ],
)
def test_two_blocks_of_rows(sizes: tuple[int, int, int], tile: dict[str, int]) -> None:
    found = PLAIN.schedule(**dict(zip("MNK", sizes, strict=True))).tile
    assert found and {**found, **tile} == found


def test_splits_may_be_left_open() -> None:
    given = Schedule(scheduler="split_k", consumers=2, tile=dict(m=128, n=128, k=256))
    kernel = made("acc += A[m, k] @ B[n, k]")
    assert kernel.schedule(given, M=256, N=256, K=4096).splits


TWO_LOOPS = """
@kernel
def f(A: {a}[M, K], B: {a}[N, K], X: {x}[M, {dim}], Y: {x}[N, {dim}], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        for {i} in tiles({dim}):
            acc += X[m, {i}] @ Y[n, {i}]
        C[m, n] = acc
"""


def depths(a: str, x: str, dim: str, given: Schedule | None = None) -> list[int]:
    """Tiles of what two loops sum over, the second along `dim`."""
    kernel = parse(TWO_LOOPS.format(a=a, x=x, dim=dim, i=dim.lower())).f
    tile = kernel.schedule(given, **dict.fromkeys(("M", "N", "K", dim), 4096)).tile
    return [tile["k"], tile[dim.lower()]]


def test_other_axes_keep_their_tiles() -> None:
    assert depths("f8e4m3", "tf32", "L", Schedule(mma_promotion_interval=256)) == [256, 32]


def test_loops_over_one_dimension_have_one_tile() -> None:
    for types in (("bf16", "tf32"), ("tf32", "bf16")):
        assert depths(*types, "K") == [32, 32]


@pytest.mark.parametrize("dtype", ["bf16", "f8e4m3"])
def test_two_dimensions_taken_whole(dtype: str) -> None:
    source = """
@kernel
def f(A: T[M, D], B: T[N, D], X: T[M, E], Y: T[N, E], C: f32[M, N]):
    for m, n in tiles(M, N):
        C[m, n] = A[m, :] @ B[n, :] + X[m, :] @ Y[n, :]
"""
    of = ml_dtypes.bfloat16 if dtype == "bf16" else FP8
    a, b, _, _ = operands(72, 88, 64, of)
    _, _, x, y = operands(72, 88, 128, of)
    a, b, c = a.astype(of), b.astype(of), np.zeros((72, 88), np.float32)
    parse(source.replace("T[", f"{dtype}[")).f.simulate(a, b, x, y, c)
    a, b, x, y = (v.astype(np.float64) for v in (a, b, x, y))
    assert np.array_equal(c, a @ b.T + x @ y.T)


@pytest.mark.parametrize("size", [(16, 0, 0), (0, 16, 0), (1, 0, 0), (0, 0, 0)])
def test_nothing_at_all(size: tuple[int, int, int]) -> None:
    kernel = made("acc += A[m, k] @ B[n, k]")
    assert kernel.explain(**dict(zip("MNK", size, strict=True)))
