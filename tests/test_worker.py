"""Partitions in predicted cycles: as long as is predicted, and who waits for what."""

import json
from itertools import pairwise

import pytest

from tests.kernels import CASES
from tests.test_timeline import SCHEDULES, made
from wsdsl import CompileError, Schedule, ScheduleError, parse
from wsdsl.cli import main
from wsdsl.report.timed.worker import Worker

SOFTMAX = """
@kernel
def softmax(X: bf16[M, N], Y: f32[M, N]):
    for m in tiles(M):
        x = X[m, :]
        e = exp(x - max(x, over=N))
        Y[m, :] = e / sum(e, over=N)
"""
USUAL = dict(M=2048, N=2048, K=2048, L=2048, D=128, H=16, NB=16, KB=16, G=4)
CLOSE = 0.12
FURTHER = {
    # The model counts the arithmetic of a single consumer as if it were beside its own products.
    "whole": 0.4, "held_operand": 0.55,
    # It lets scaled sums wait for what follows; here two consumers cover that.
    "two_scaled": 0.25,
    # It adds up what threads load, compute and store; here stores are beside the next loads.
    "bytes_in": 0.3, "broadcast_bytes": 0.25, "broadcast": 0.2, "scale": 0.2,
    # It lets all arithmetic be beside products.
    "attention": 0.15,
    # Its first slots wait for memory, which it does not count of a loop around.
    "around_a_loop": 0.2,
}  # fmt: skip
SMALLER = {"second_operand_first": dict(K=128)}
"""`K` is taken whole."""


def worker(name: str, schedule: Schedule | None = None, **sizes: int) -> Worker:
    return CASES[name].kernel.timeline(schedule, **sizes).worker


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"part"}))
def test_it_takes_about_what_is_predicted(name: str) -> None:
    usual = USUAL | SMALLER.get(name, {})
    sizes = {dim: usual.get(dim, size) for dim, size in CASES[name].sizes.items()}
    found = worker(name, **sizes)
    assert found.cycles == pytest.approx(found.predicted, rel=FURTHER.get(name, CLOSE))


@pytest.mark.sampled
@pytest.mark.parametrize("name", SCHEDULES)
def test_so_does_every_way_to_share_out_the_work(name: str) -> None:
    found = made(name).worker
    assert found.cycles == pytest.approx(found.predicted, rel=0.1)
    cut = any("accumulators of other CTAs" in lane.waiting for lane in found.lanes)
    # Those of stream-K may be there before they are asked for.
    assert cut == (name in ("parallel", "serial")) or name.startswith("stream")


def test_lanes_are_whole() -> None:
    found = worker("gemm", Schedule(cluster=dict(m=2)), M=1024, N=1024, K=1024)
    assert len(found.ctas) == 2 and {lane.rank for lane in found.lanes} == {0, 1}
    for lane in found.lanes:
        assert all(a.stop <= b.start + 1e-6 for a, b in pairwise(lane.spans))
        told = sum(lane.busy.values()) + sum(lane.waiting.values())
        assert told == pytest.approx(sum(s.stop - s.start for s in lane.spans))
        assert told <= lane.total + 1e-6 <= found.cycles + 1e-3
    for times in found.units.values():
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(times))


def share(found: Worker, lane: str, edge: str) -> float:
    held = next(x for x in found.lanes if x.name == lane)
    return held.waiting.get(edge, 0.0) / found.cycles


def test_what_is_waited_for_is_the_limit() -> None:
    """Of large products it is the tensor cores, of few rows the weights; deeper rings wait less."""
    large = worker("gemm", Schedule(mode="cooperative"), M=4096, N=4096, K=4096)
    assert large.busy["tensor cores"] > 0.9 * large.cycles
    assert share(large, "producer", "pipeline of A, B (empty)") > 0.8
    assert "bottleneck of the kernel: tensor cores" in str(large)
    few = worker("gemm", M=64, N=4096, K=4096)
    assert share(few, "consumer", "pipeline of B, A (full)") > 0.5
    assert f"pipeline of B, A (full): {few.bottleneck} limits the loads" in str(few)
    alone = dict(tile=dict(m=64, n=128, k=64), consumers=1, mode="cooperative")
    shallow, deep = (
        worker("gemm", Schedule(**alone, stages=stages), M=1024, N=1024, K=4096)
        for stages in (2, 8)
    )
    full = "pipeline of A, B (full)"
    assert share(shallow, "consumer", full) > 1.3 * share(deep, "consumer", full)
    assert shallow.cycles > 1.3 * deep.cycles
    assert "(full): load latency; hint: use more stages" in str(shallow)
    few_stages = Schedule(**alone, scheduler="persistent", stages=2)
    text = CASES["gemm"].kernel.explain(few_stages, M=64, N=128, K=8192)
    assert text.bottleneck == "latency" and sum(text.units.values()) > 1
    assert worker("gemm", few_stages, M=64, N=128, K=8192).bottleneck == "latency"


def test_consumers_wait_for_asynchronous_mmas() -> None:
    found = worker("gemm", Schedule(arch="sm_100a"), M=1024, N=1024, K=4096)
    assert share(found, "consumer", "pipeline of accumulators (full)") > 0.5


def test_rings_are_called_by_what_they_bring() -> None:
    found = worker("attention", H=16, M=2048, N=2048, D=128)
    edges = {edge for lane in found.lanes for edge in lane.waiting}
    assert {"pipeline of Q (full)", "pipeline of K (empty)", "pipeline of V (empty)"} <= edges


def test_a_place_runs_several_ctas() -> None:
    """Of a grid that has more than there is room for."""
    kernel = CASES["gemm"].kernel
    timeline = kernel.timeline(SCHEDULES["grid"], M=4096, N=4096, K=512)
    issued = [s for s in timeline.worker.lanes[0].spans if s.kind == "issue"]
    assert timeline.tiles > 2 * len(timeline.rows)
    assert len(issued) > 2 * 512 // 64


def test_memory_bound_ctas_share_an_sm() -> None:
    kernel = vars(parse(SOFTMAX))["softmax"]
    timeline = kernel.timeline(Schedule(ctas_per_sm=8), M=4096, N=4096)
    found = timeline.worker
    assert found.cycles == pytest.approx(found.predicted, rel=0.2)
    assert {lane.slot for lane in found.lanes} == {*range(8)} and "CTAs per SM: 8" in str(found)
    assert {bar.slot for bar in timeline.rows[0]} == {*range(8)}
    assert timeline.cycles == pytest.approx(timeline.prediction.cycles, rel=0.01)
    assert "epilogue, cycles" in timeline.text("epilogue")


def test_trace(tmp_path) -> None:
    kernel, path = CASES["gemm"].kernel, tmp_path / "made" / "trace.json"
    timeline = kernel.timeline(Schedule(cluster=dict(m=2)), M=1024, N=1024, K=1024)
    timeline.save(path)
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"CTA 0", "CTA 1", "producer", "unit: tensor cores"} <= names
    assert {"wait: pipeline of A, B (full)", "MMA"} <= {event["name"] for event in spans}
    last = max(event["ts"] + event["dur"] for event in spans)
    assert last == pytest.approx(timeline.worker.cycles / timeline.clock / 1000)


def test_save_draws_worker(tmp_path, import_optional) -> None:
    import_optional("matplotlib")
    CASES["gemm"].kernel.timeline(M=1024, N=1024, K=1024).save(tmp_path / "lanes.svg")
    text = (tmp_path / "lanes.svg").read_text()
    assert all(word in text for word in ("producer", "tensor cores", "MMA", "wait"))


def test_what_data_decide_is_refused() -> None:
    with pytest.raises(ScheduleError, match="depends on data"):
        print(CASES["part"].kernel.timeline(**CASES["part"].sizes))


def test_so_is_a_branch_that_they_decide() -> None:
    text = """
@kernel
def either(X: f32[M, N], flag: i32[1], Y: f32[M, N]):
    for m, n in tiles(M, N):
        y = X[m, n]
        if flag[0] > 0:
            y = y * 0.5
        Y[m, n] = y
"""
    with pytest.raises(ScheduleError, match=r"6:9: WS1043 the duration of this depends on data"):
        print(parse(text).either.timeline(M=256, N=256))


def test_the_cli(tmp_path, capsys) -> None:
    sizes = ["--size", "M=1024", "N=1024", "K=1024"]
    path = tmp_path / "trace.json"
    assert main(["timeline", "examples/02_gemm.py", *sizes, "-o", str(path)]) == 0
    told = capsys.readouterr().out
    assert "units busy," in told and "for pipeline of A, B (empty)" in told and path.exists()
    assert main(["timeline", "examples/02_gemm.py", *sizes, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["partitions"][0]["waiting"] and told["cycles"] > told["units"]["tensor cores"]


def test_explain_states_rows_of_ragged_loops() -> None:
    kernel, sizes = CASES["part"].kernel, dict(G=4, M=1024, N=1024, T=65536)
    whole = kernel.explain(**sizes)
    assert "65536 rows per trip are assumed, all of T. hint: give explain rows=… or lo=" in whole
    few = kernel.explain(**sizes, rows=1024)
    assert few.microseconds < 0.1 * whole.microseconds and "`k`: 1024 rows per trip" in few
    given = kernel.explain(**sizes, lo=[0, 0, 5, 9], hi=[4096, 0, 5, 9])
    assert given.microseconds == few.microseconds
    with pytest.raises(CompileError, match=r"(?s)no ragged loop .* in A.*hint: give lo, hi"):
        kernel.explain(**sizes, A=[0, 1])
