"""Ragged loops of the output nest: CTAs share the tiles of all groups."""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import wsdsl
from tests.case_data import DTYPES
from wsdsl import Schedule
from wsdsl.diagnostics import ProofError, ScheduleError
from wsdsl.ir.ops import ForWork
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.prove import prove

GROUPED = """
@kernel
def f(A: bf16[M, K], W: bf16[G, N, K], offset: i32[G1], C: f32[M, N]):
    for g in each(G):
        for m in tiles(offset[g], offset[g + 1], of=M):
            for n in tiles(N):
                acc = zeros(f32[m, n])
                for k in tiles(K):
                    acc += A[m, k] @ W[g, n, k]
                C[m, n] = acc
"""
PAIRS = """
@kernel
def f(X: f32[H, M, N], begin: i32[G, J], length: i32[G, J], Y: f32[H, G, J, M, N]):
    for g in each(G):
        for h in each(H):
            for j in each(J):
                for m in tiles(begin[g, j], begin[g, j] + length[g, j], of=M):
                    for n in tiles(N):
                        Y[h, g, j, m, n] = X[h, m, n] + 1.0
"""
FIRST = """
@kernel
def f(X: f32[M, N], count: i32[1], first: i32, Y: f32[M, N]):
    for m in tiles(first, count[0], of=M):
        for n in tiles(N):
            Y[m, n] = X[m, n] * 2.0
"""
IN_PLACE = """
@kernel
def f(lo: i32[G], hi: i32[G], X: f32[M, N]):
    for g in each(G):
        for m in tiles(lo[g], hi[g], of=M):
            for n in tiles(lo[g], hi[g], of=N):
                X[m, n] = X[m, n] * 2.0
"""
OFFSETS = np.array([0, 100, 100, 357, 358, 600], np.int32)
SHARED = dict(tile=dict(m=64, n=64, k=64))
SCHEDULES = [
    Schedule(**SHARED, consumers=1),
    Schedule(tile=dict(m=128, n=64, k=64), consumers=2, mode="pingpong"),
    Schedule(**SHARED, consumers=1, cluster=dict(n=2)),
    Schedule(**SHARED, consumers=1, cluster=dict(m=2), scheduler="grid"),
    Schedule(arch="sm_100a", tile=dict(m=128, n=64, k=64)),
]


def kernel_of(text: str) -> wsdsl.Kernel:
    return vars(wsdsl.parse(text))["f"]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_groups_of_any_length(schedule: Schedule) -> None:
    rng, kernel = np.random.default_rng(0), kernel_of(GROUPED)
    a: Any = rng.integers(-4, 5, (600, 64)).astype(DTYPES["bf16"])
    w: Any = rng.integers(-4, 5, (5, 1280, 64)).astype(DTYPES["bf16"])
    c = np.full((600, 1280), 7, np.float32)
    kernel.compile(schedule=schedule, K=64, N=1280).prove()
    kernel.simulate(a, w, OFFSETS, c, schedule=schedule)
    parts = zip(OFFSETS, OFFSETS[1:], w.astype(np.float32), strict=False)
    expected = [a[lo:hi].astype(np.float32) @ own.T for lo, hi, own in parts]
    np.testing.assert_array_equal(c, np.concatenate(expected))


def test_loops_around_that_determine_no_bound() -> None:
    rng, kernel = np.random.default_rng(1), kernel_of(PAIRS)
    x = rng.standard_normal((3, 150, 64)).astype(np.float32)
    begin = np.array([[-5, 140], [20, 64]], np.int32)
    length = np.array([[70, 90], [-3, 1]], np.int32)
    y = np.full((3, 2, 2, 150, 64), 7, np.float32)
    expected = y.copy()
    for g, j in np.ndindex(2, 2):
        rows = slice(max(0, begin[g, j]), max(0, begin[g, j] + length[g, j]))
        expected[:, g, j, rows] = x[:, rows] + 1
    kernel.compile().prove()
    kernel.simulate(x, begin, length, y)
    np.testing.assert_array_equal(y, expected)


def test_many_parts_are_of_one_cta_each() -> None:
    kernel, few = kernel_of(GROUPED), dict(M=600, N=1280, K=64)
    plans = [kernel.compile(**few, G=g, G1=g + 1).partitioned.of(ForWork)[0] for g in (5, 2000)]
    assert [work.ragged for work in plans] == ["m", ""]


@pytest.mark.parametrize(("first", "count"), [(-3, 200), (70, 71), (90, 20)])
def test_a_part_without_groups(first: int, count: int) -> None:
    kernel, x = kernel_of(FIRST), np.arange(100 * 40, dtype=np.float32).reshape(100, 40)
    y = np.full_like(x, 7)
    kernel.compile().prove()
    kernel.simulate(x, np.array([count], np.int32), first, y)
    rows = np.arange(100)[:, None]
    np.testing.assert_array_equal(y, np.where((rows >= first) & (rows < count), x * 2, 7))


def test_a_second_ragged_loop_and_elements_of_other_groups() -> None:
    kernel, x = kernel_of(IN_PLACE), np.ones((600, 400), np.float32)
    expected = x.copy()
    for lo, hi in pairwise(OFFSETS):
        expected[lo:hi, lo:hi] = 2
    kernel.compile().prove()
    kernel.simulate(OFFSETS[:-1], OFFSETS[1:], x)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"start=%at\w*", "start=%c1_1"),
        (r"(args=\(%num_work\w*), %num_ctas\w*", r"\1, %c1_1"),
        (r"init=\(%cta\w*", "init=(%c1_1"),
        (r"step=%num_ctas\w*", "step=%c1_1"),
    ],
)
def test_ctas_that_share_an_item_are_rejected(old: str, new: str) -> None:
    text = str(kernel_of(GROUPED).compile(schedule=SCHEDULES[0]).scheduled)
    changed, number = re.subn(old, new, text)
    assert number
    for scheduler in ("persistent", "grid"):
        with pytest.raises(ProofError, match="several items, but stores once"):
            prove(
                parse_kernel(
                    changed.replace("ragged=True", f'ragged=True, scheduler="{scheduler}"')
                )
            )


def test_tiles_of_a_ragged_loop_have_one_width() -> None:
    schedule = Schedule(mma_m="n", tile_n_variants=4)
    with pytest.raises(ScheduleError, match="the loop over `m` walks parts of M"):
        kernel_of(GROUPED).compile(schedule=schedule, N=1280, K=64)


@pytest.mark.parametrize("given", [dict(scheduler="stream_k"), dict(cluster=dict(k=2))])
def test_a_number_of_tiles_that_is_not_known_at_launch(given: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError, match="number of tiles is not known at launch"):
        kernel_of(GROUPED).compile(schedule=Schedule(**given))
