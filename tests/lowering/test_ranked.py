"""The search gives out what predicting everything would, and predicts little."""

import math
import random
import statistics

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.lowering.cost_model.predict import least_cut, predict
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.heuristics import ranked
from wsdsl.lowering.heuristics.schedule_options import schedule_options
from wsdsl.lowering.heuristics.split_k_options import split_k_options
from wsdsl.lowering.pipeline import scheduled_tile


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gemm", dict(M=4096, N=4096, K=4096)),
        ("gemm", dict(M=256, N=1152, K=4304)),
        ("gemm", dict(M=200, N=256, K=40000)),
        ("gemm", dict(M=16, N=28672, K=8192)),
        ("scaled", dict(M=512, N=1024, K=4096)),
        ("scale", dict(M=300, N=1000)),
    ],
)
def test_as_if_everything_were_predicted(
    name: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = scheduled_tile(CASES[name].kernel.tile_ir, sizes)

    def found(limit: float = math.inf) -> list[tuple[Schedule, float]]:
        options = ranked.ranked(kernel, Schedule(), sizes, limit)
        return [(schedule, ranked.weight(own)) for schedule, own in options]

    all_of_them = found()
    limit = all_of_them[len(all_of_them) // 3][1]
    assert found(limit) == [option for option in all_of_them if option[1] < limit]
    monkeypatch.setattr(ranked, "floors", lambda *_: iter((0.0, 0.0, 0.0)))
    monkeypatch.setattr(ranked, "least_cut", lambda *_: 0.0)
    assert all_of_them == found()


def test_no_schedule_that_cuts_tiles_is_below_its_floor() -> None:
    draw, found = random.Random(0), list[float]()
    for name in ("gemm", "scaled"):
        for _ in range(4):
            m, n, k = (draw.randint(1, most) for most in (700, 700, 60000))
            sizes = dict(M=m, N=16 * n, K=64 + k // 64 * 64)
            kernel = scheduled_tile(CASES[name].kernel.tile_ir, sizes)
            assert kernel.schedule is not None
            given, work = Schedule(mma_m=kernel.schedule.mma_m), Work.of(kernel, sizes)
            tried = (t.fitted(kernel, work) for t in schedule_options(kernel, given, work))
            for whole in [t for t in tried if t][::5]:
                own = predict(work, whole, axis_sizes(kernel, whole))
                least = least_cut(own, whole)
                tile, ways = axis_sizes(kernel, whole), split_k_options
                every = [predict(work, o, tile) for o in ways(kernel, given, (whole, own))]
                if cut := [predicted.cycles for predicted in every if predicted.work.cut]:
                    assert least <= min(cut)
                    found.append(least / min(cut))
    assert statistics.median(found) > 0.75


def test_little_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large product."""
    asked, predict = list[Schedule](), ranked.predict
    monkeypatch.setattr(ranked, "predict", lambda *a: asked.append(a[1]) or predict(*a))
    tile, sizes = CASES["gemm"].kernel.tile_ir, dict(M=8192, N=8192, K=8192)
    chosen, few = scheduled_tile(tile, sizes), len(asked)
    monkeypatch.setattr(ranked, "floors", lambda *_: iter((0.0, 0.0, 0.0)))
    assert scheduled_tile(tile, sizes).schedule == chosen.schedule
    assert 0 < 8 * few < len(asked)
