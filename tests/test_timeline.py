"""Who does what when: every step once, nobody before what it waits for, as long as is predicted."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from tests.kernels import CASES
from wsdsl import CompileError, Schedule, ScheduleError
from wsdsl.cli import main
from wsdsl.ir.hardware.target import H200
from wsdsl.report.timeline import Timeline
from wsdsl.report.timeline_figure import color, draw_timeline
from wsdsl.runtime.launcher import num_ctas

SCHEDULES = {
    "whole": Schedule(scheduler="persistent", tile=dict(m=128, n=192)),
    "grid": Schedule(scheduler="grid", tile=dict(m=128, n=192)),
    "pingpong": Schedule(scheduler="persistent", mode="pingpong", tile=dict(m=128, n=128)),
    "stream": Schedule(scheduler="stream_k", mode="cooperative", tile=dict(m=128, n=192)),
    "stream, pingpong": Schedule(scheduler="stream_k", mode="pingpong", tile=dict(n=160)),
    "stream, clusters": Schedule(scheduler="stream_k", tile=dict(n=256), cluster=dict(m=2)),
    "serial": Schedule(scheduler="split_k", splits=5, tile=dict(m=128, n=256)),
    "parallel": Schedule(
        scheduler="split_k", splits=4, reduction="parallel", tile=dict(m=128, n=256)
    ),
}
LARGE, SMALL = dict(M=1024, N=4992, K=16384), dict(M=512, N=1792, K=16384)


def made(name: str) -> Timeline:
    sizes = SMALL if name in ("parallel", "serial") else LARGE
    return CASES["gemm"].kernel.timeline(SCHEDULES[name], **sizes)


@pytest.mark.parametrize("name", SCHEDULES)
def test_times(name: str) -> None:
    timeline = made(name)
    p = timeline.prediction
    scale = timeline.scale * p.stretch / p.tile.depth
    products: dict[int, float] = defaultdict(float)
    finished: dict[int, int] = defaultdict(int)
    for row in timeline.rows:
        mine = [bar for bar in row if not bar.beside]
        assert all(a.stop <= b.start + 1e-6 for a, b in pairwise(mine))
        for bar in row:
            assert bar.stop >= bar.start
            if bar.kind == "products":
                whole = p.apart if bar.tile < p.work.cut else p.mainloop
                products[bar.tile] += (bar.stop - bar.start) / (scale * whole)
            finished[bar.tile] += bar.kind == "results"
    assert sorted(products) == list(range(timeline.tiles))
    assert all(abs(steps - p.tile.depth) < 1e-3 for steps in products.values())
    pieces = 4 if name == "parallel" else 1
    assert set(finished.values()) == {pieces}


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_takes_what_is_predicted(name: str) -> None:
    timeline = made(name)
    assert timeline.cycles == pytest.approx(timeline.prediction.cycles)
    assert timeline.scale == pytest.approx(1, rel=0.06)
    work = timeline.prediction.work
    assert timeline.pieces == work.pieces + timeline.tiles - work.cut
    # Runs of more than a tile have whole ones in them: a tile is cut where two runs meet.
    assert 0.9 * min(work.cut, work.workers - 1) <= timeline.cut <= work.cut


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (Schedule(scheduler="split_k", reduction="parallel", cluster=dict(m=8)), (50, 465, 4096)),
        (Schedule(scheduler="split_k", reduction="parallel", cluster=dict(n=2)), (270, 169, 4096)),
        (Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(m=8)), (64, 8448, 1000)),
        (Schedule(tile=dict(m=128, n=128), scheduler="grid", cluster=dict(m=2)), (300, 300, 512)),
        (Schedule(cluster=dict(n=2, k=2)), (128, 64, 4096)),
    ],
)
def test_clusters_reach_over_the_end(given: Schedule, sizes: tuple[int, int, int]) -> None:
    """Where an axis has no tiles for all CTAs of its clusters they are launched nevertheless; what
    is chosen has room."""
    kernel, named = CASES["gemm"].kernel, dict(zip("MNK", sizes))
    launched = kernel._compile(given, named, ()).signature
    size = launched.cluster
    ctas = num_ctas(launched, named, H200.num_sms, H200.cluster_room(size))
    assert len(kernel.timeline(given, **named).rows) * size == ctas


def test_memory_that_is_waited_for_is_spread() -> None:
    """Results that are most of what is moved take longer than the sum of their parts."""
    turns = Schedule(tile=dict(m=128, n=192), mode="pingpong")
    timeline = CASES["gemm"].kernel.timeline(turns, M=16384, N=16384, K=128)
    assert timeline.cycles == pytest.approx(timeline.prediction.cycles)
    assert timeline.scale > 1.4


def test_who_finishes_waits() -> None:
    timeline = made("serial")
    handed: dict[int, list[float]] = defaultdict(list)
    last: dict[int, float] = {}
    for bar in timeline.bars:
        if bar.kind == "sums":
            handed[bar.tile].append(bar.stop)
        elif bar.kind == "results":
            last[bar.tile] = bar.start
    assert all(last[tile] >= max(times) for tile, times in handed.items())
    assert any(bar.kind == "wait" for bar in timeline.bars)


@pytest.mark.parametrize("name", SCHEDULES)
def test_draw_timeline_writes_figure(name: str, tmp_path, import_optional) -> None:
    import_optional("matplotlib")
    timeline = made(name)
    path = draw_timeline(timeline, tmp_path / "t.svg", "gemm <1>", [timeline.summary])
    text = path.read_text()
    assert "gemm &lt;1&gt;" in text and timeline.summary in text
    assert ("wave 1" in text) == (timeline.cycles > timeline.wave)
    assert ("split-K fixup" in text) == (timeline.cut > 0)


def test_a_tile_of_one_piece_is_not_cut() -> None:
    cut = Schedule(scheduler="split_k", splits=2, reduction="parallel", tile=dict(m=64, n=64))
    timeline = CASES["gemm"].kernel.timeline(cut, M=64, N=64, K=8)
    assert timeline.cut == 0


def test_colours_are_the_tiles() -> None:
    by_tile = defaultdict(set)
    for bar in made("stream").bars:
        if bar.kind == "products":
            by_tile[bar.tile].add(color(bar))
    assert all(len(colours) == 1 for colours in by_tile.values())
    assert len({*by_tile}) - len(set.union(*by_tile.values())) < 4


def test_what_can_not_be_shown() -> None:
    kernel = CASES["gemm"].kernel
    with pytest.raises(CompileError, match="needs a size for"):
        kernel.timeline(M=128)
    with pytest.raises(ScheduleError, match="has no tiles"):
        kernel.timeline(M=0, N=128, K=128)
    with pytest.raises(ScheduleError, match="at most 100000"):
        kernel.timeline(M=10**7, N=10**7, K=64)
    with pytest.raises(ScheduleError, match="wait for each other"):
        kernel.timeline(SCHEDULES["parallel"], M=8192, N=8192, K=4096)


def test_the_cli_explains(capsys) -> None:
    sizes = ["M=1024", "N=1024", "K=4096"]
    assert main(["explain", "examples/02_gemm.py", "--size", *sizes]) == 0
    told = capsys.readouterr().out
    assert "bottleneck: " in told and "alternatives, predicted time" in told
    assert main(["explain", "examples/02_gemm.py", "--size", *sizes, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert f"bottleneck: {values['bottleneck']}" in values["explanation"] == told[:-1]
