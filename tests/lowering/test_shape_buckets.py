"""Few kernels serve many numbers of rows: how few, at what cost, and that they are right."""

import dataclasses
import random
import re
import statistics

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl import Schedule, ScheduleError
from wsdsl.artifact.shape_bucket import is_round, row_range
from wsdsl.lowering.shape_buckets import predicted_cycles
from wsdsl.records.entry import Request

SOURCE = f"""{CASES["gemm"].text}
@kernel
def doubled(X: f32[M, N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n] + X[m, n]

@kernel
def summed(X: f32[M, N], Y: f32[M]):
    for m in tiles(M):
        x = X[m, :]
        Y[m] = sum(x, over=N)
"""
KERNELS = wsdsl.parse(SOURCE)
GEMM = KERNELS.gemm
WIDE = dict(N=4096, K=14336)
SPAN = re.compile(r"(\d+) to (\d+)(?:, |\n)")


def test_few_kernels_at_little_cost() -> None:
    draw, others = random.Random(5), dict(N=4096, K=4096)
    rows = [draw.randint(1, 4096) for _ in range(60)]
    taken: set[Schedule] = set()
    longer: list[float] = []
    for m in rows:
        schedule = GEMM.dispatched_schedule(M=m, **others)
        if m > 64 and not is_round(m):
            taken.add(schedule)
        own = GEMM.schedule(M=m, **others)
        cycles = (predicted_cycles(GEMM.tile_ir, s, dict(M=m, **others)) for s in (schedule, own))
        longer.append(next(cycles) / next(cycles))
    assert len(taken) <= 7 and all(schedule.tile_n_variants for schedule in taken)
    assert statistics.mean(longer) <= 1.01


def test_widths_are_left_to_whoever_says_them() -> None:
    sizes = dict(M=1001, N=4096, K=4096)
    given = Schedule(tile=dict(m=128, n=128), mode="cooperative")
    alone = GEMM.dispatched_schedule(dataclasses.replace(given, tile_n_variants=1), **sizes)
    assert alone.tile_n_variants == 1
    assert GEMM.schedule(**sizes).tile_n_variants is None
    told = GEMM.explain(**sizes)
    assert re.search(r"with tiles of \d+ along M: the fastest of 8", told)


def serving(kernel: wsdsl.Kernel, given: Schedule | None = None, **sizes: int) -> Request:
    return kernel._variants.bucket_request(given, sizes)


def test_it_does_not_depend_on_what_was_called_before() -> None:
    rows = [5, 17, 40, 63, 64]
    found = [serving(GEMM, M=m, **WIDE) for m in rows]
    fresh = wsdsl.parse(SOURCE.replace("acc", "sums")).gemm
    assert [serving(fresh, M=m, **WIDE) for m in reversed(rows)] == found[::-1]
    assert found[0].shared and not found[-1].shared and dict(found[-1].sizes)["M"] == 64


def test_members_of_a_class_have_one_stand_in() -> None:
    draw = random.Random(1)
    for _ in range(20):
        m = draw.randint(1, 4096)
        span = dict(GEMM.shape_bucket(M=m, **WIDE).spans)["M"]
        stand_ins = {serving(GEMM, M=x, **WIDE) for x in (span.low, m, span.high)}
        assert len(stand_ins) == 1
        low, high = row_range(m)
        assert low < dict(stand_ins.pop().sizes)["M"] <= high


def test_pieces_that_wait_for_each_other_serve_no_more_rows() -> None:
    given = Schedule(scheduler="split_k", reduction="parallel", tile=dict(m=64, n=64, k=64))
    sizes = dict(N=256, K=8192)
    for m in range(3, 700, 50):
        assert dict(serving(GEMM, given, M=m, **sizes).sizes)["M"] >= m


def test_what_is_exact() -> None:
    """What one tile has whole, and kernels whose rows are not told."""
    assert dict(serving(KERNELS.summed, M=77, N=77).sizes)["N"] == 77
    assert dict(serving(GEMM, M=4096, **WIDE).sizes)["M"] == 4096
    with pytest.raises(ScheduleError):
        serving(GEMM, Schedule(tile=dict(m=100)), M=77, **WIDE)


def test_what_fits_no_more_is_chosen_anew() -> None:
    """A kernel that serves several classes, as one of its own would be, if that is refused."""
    asked = serving(GEMM, M=77, **WIDE)
    refused = asked._replace(shared=Schedule(tile=dict(m=100)))
    made = GEMM._variants.lowered(refused)
    assert made.schedule == GEMM.schedule(**dict(asked.sizes))


def test_explain_tells_which_classes_share_a_kernel() -> None:
    told = GEMM.explain(M=77, **WIDE)
    assert f"shape bucket of calls: {GEMM.shape_bucket(M=77, **WIDE)}" in told
    assert "kernels for M 65 to 4096, predicted to be" in told
    rows = [m for a, b in SPAN.findall(told.split("compiled for M ")[1]) for m in (int(a), int(b))]
    schedules = {GEMM.dispatched_schedule(M=m, **WIDE) for m in rows if not is_round(m)}
    assert rows and len(schedules) == 1


@pytest.mark.parametrize("name", ["gemm", "doubled", "summed"])
def test_a_stand_in_is_right(name: str) -> None:
    """What is compiled for it, simulated at the class's ends."""
    kernel = getattr(KERNELS, name)
    rng = np.random.default_rng(0)
    for m in (41, 150):
        sizes = {"M": m, **{dim: 64 for dim in kernel.dims if dim != "M"}}
        compiled = kernel._variants.lowered(kernel._variants.bucket_request(None, sizes))
        span = dict(kernel.shape_bucket(**sizes).spans)["M"]
        for rows in (span.low, span.high):
            made = [
                rng.integers(-2, 3, [{**sizes, "M": rows}[d] for d in p.type.dims])
                for p in kernel.params[:-1]
            ]
            dtype = ml_dtypes.bfloat16 if name == "gemm" else np.float32
            arrays = [x.astype(dtype) for x in made]
            found, expected = compiled.simulate(*arrays), kernel.reference(*arrays)
            np.testing.assert_array_equal(found, expected)
