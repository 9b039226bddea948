"""Whether tiles are cut: what the busiest worker has, what that costs, and when it is chosen."""

import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels import CASES, simulated
from wsdsl import Schedule, ScheduleError, parse
from wsdsl.ir.tile_scheduler import DataParallel, SplitK, StreamK, TileScheduler, pieces_of
from wsdsl.lowering.cost_model.speeds import loading_cycles
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.wave_quantization import busiest, unevenness

schedulers = st.builds(SplitK, st.integers(1, 9)) | st.just(StreamK()) | st.just(DataParallel())


@settings(max_examples=400, deadline=None)
@given(schedulers, st.integers(1, 60), st.integers(1, 20), st.integers(1, 24))
def test_the_busiest_worker(scheduler: TileScheduler, tiles: int, depth: int, room: int) -> None:
    found = busiest(scheduler, tiles, depth, room)
    work = pieces_of(scheduler, tiles, depth, scheduler.num_workers(tiles, depth, room))

    def most(of) -> int:
        return max(sum(of(p) for p in pieces) for pieces in work)

    assert found.workers == len(work)
    assert found.iterations == most(lambda p: 1)
    assert found.finished == most(lambda p: p.end == depth)
    assert found.handed == most(lambda p: p.end < depth)
    assert found.taken == most(lambda p: p.begin > 0)
    slots = scheduler.num_slots(tiles, depth, len(work))
    assert found.cut == slots
    # With split-K a worker has equal pieces; others may have more of the longer ones by one.
    assert found.steps == most(lambda p: p.end - p.begin)
    if slots:
        parts = [sum(p.tile == tile for pieces in work for p in pieces) for tile in range(slots)]
        assert found.parts == max(parts) and found.pieces == sum(parts)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 400), st.integers(1, 140), st.integers(1, 40))
def test_the_busiest_worker_of_a_triangle(tiles: int, workers: int, places: int) -> None:
    """Tiles are dealt out in turns, and each takes one more part than the one before."""
    each = [sum(i % places + 1 for i in range(w, tiles, workers)) for w in range(workers)]
    alike = -(-tiles // workers) * (places + 1) / 2
    assert unevenness(tiles, workers, places) == max(each) / alike


def chosen(m: int, n: int, k: int, schedule: Schedule | None = None) -> Schedule:
    return CASES["gemm"].kernel.schedule(schedule, M=m, N=n, K=k)


@pytest.mark.parametrize(
    ("sizes", "scheduler", "reduction"),
    [
        # A width divides the waves, or nearly.
        ((1024, 2112, 4096), "persistent", None),
        ((1024, 2304, 16384), "persistent", None),
        ((1024, 7296, 4096), "persistent", None),
        ((8192, 8192, 8192), "persistent", None),
        # 4 x 33 tall tiles: runs that come out even are no quicker by the margin.
        ((1024, 2112, 16384), "persistent", None),
        # Few tiles.
        ((256, 256, 65536), "split_k", "parallel"),
        ((512, 512, 16384), "split_k", "parallel"),
        ((128, 128, 131072), "split_k", "parallel"),
        # Little to do.
        ((256, 256, 512), "persistent", None),
        ((128, 128, 1024), "persistent", None),
        ((64, 28672, 8192), "persistent", None),
        # Memory is the limit: whoever is free takes the next.
        ((16, 28672, 8192), "grid", None),
        # ... but whole runs of tiles are no better, and tiles that are over soon not dealt out.
        ((16, 18432, 7168), "grid", None),
        ((100000, 64, 64), "persistent", None),
    ],
)
def test_choice(sizes: tuple[int, int, int], scheduler: str, reduction: str | None) -> None:
    for asked in (None, Schedule(scheduler="auto")):
        made = chosen(*sizes, asked)
        assert (made.scheduler, made.reduction) == (scheduler, reduction)
        assert chosen(*sizes, made) == made


def test_how_many_pieces_may_be_left_open() -> None:
    made = chosen(512, 512, 16384, Schedule(scheduler="split_k", tile=dict(m=128, n=128)))
    assert (made.scheduler, made.splits, made.reduction) == ("split_k", 8, "parallel")
    turns = chosen(512, 512, 16384, Schedule(scheduler="split_k", reduction="serial"))
    assert turns.splits and turns.reduction == "serial"


def test_pieces_that_take_turns_have_less_under_way_than_slices() -> None:
    turns, slices = (
        Schedule(tile=dict(m=64, n=144), scheduler="split_k", splits=2, reduction=r)
        for r in ("serial", "parallel")
    )
    serial, parallel = (chosen(1024, 576, 16384, s).stages or 0 for s in (turns, slices))
    assert serial < parallel


def test_pieces_run_along_the_shorter_side() -> None:
    schedule = Schedule(tile=dict(m=128, n=96), scheduler="split_k", splits=4)
    assert chosen(1024, 384, 16384, schedule).swizzle == 1
    assert chosen(384, 1024, 16384, schedule).swizzle == 4


def test_pieces_have_more_slots_than_whole_tiles() -> None:
    made = chosen(128, 128, 131072, Schedule(tile=dict(k=64)))
    assert made.splits and made.stages == 12
    whole = chosen(128, 128, 131072, Schedule(tile=made.tile, scheduler="persistent"))
    assert whole.stages == 8


def test_loads_that_reach_over_the_end_are_slower() -> None:
    kernel, sizes = CASES["gemm"].kernel.tile_ir, dict(M=1024, N=576, K=4096)
    tile = dict(m=64, n=96, k=64)
    exact = Work(kernel, sizes).under(tile)
    # 6 columns beyond 570, that TMA can not start at; 24 rows beyond 40.
    for over in (dict(N=570), dict(M=40)):
        assert loading_cycles(Work(kernel, sizes | over).under(tile)) > loading_cycles(exact)
    # Last tiles that overlap those before reach over no end.
    for inside in (dict(N=568), dict(M=1001)):
        made = Work(kernel, sizes | inside).under(tile)
        assert loading_cycles(made) == loading_cycles(exact)


DEEP = dict(M=256, N=256, K=65536)
HEAD = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], C: f32[M, N], D: f32[M, N]):
    for m, n in tiles(M, N):
"""
SUM = """
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
"""


@pytest.mark.parametrize(
    ("text", "scheduler"),
    [
        (f"{HEAD}{SUM}        C[m, n] = acc\n", "split_k"),
        (f"{HEAD}{SUM}        C[m, n] += acc\n", "persistent"),
        (f"{HEAD}        D[m, n] = D[m, n] * 2.0\n{SUM}        C[m, n] = acc\n", "persistent"),
    ],
    ids=["stored", "added", "stored in front"],
)
def test_what_is_stored(text: str, scheduler: str) -> None:
    assert parse(text).f.schedule(**DEEP).scheduler == scheduler


@pytest.mark.parametrize("left_out", "MNK")
def test_sizes_that_are_not_known(left_out: str) -> None:
    sizes = {name: size for name, size in DEEP.items() if name != left_out}
    assert CASES["gemm"].kernel.schedule(**sizes).scheduler == "persistent"


def test_whole_rows_are_summed_in_turns() -> None:
    text = f"{HEAD}{SUM}        C[m, n] = acc - max(acc, over=n)\n"
    made = parse(text).f.schedule(**DEEP)
    assert (made.scheduler, made.reduction) == ("split_k", "serial")


def test_clusters_are_not_cut_in_slices() -> None:
    made = chosen(256, 256, 65536, Schedule(cluster=dict(m=2)))
    assert made.reduction != "parallel"


def test_a_simulated_card_has_room_for_all() -> None:
    more = Schedule(tile=dict(m=64, n=32), scheduler="split_k", splits=8, reduction="parallel")
    simulated(CASES["gemm"], more, M=64, N=32, K=512)


def test_a_call_with_known_sizes_asks_nothing(monkeypatch) -> None:
    """What was chosen is looked up."""
    kernel = parse(f"{HEAD}{SUM}        C[m, n] = acc\n").f
    monkeypatch.setattr("wsdsl.dispatch.dispatcher.runs_simulated", lambda: False)
    asked: list[int | None] = []

    def made(call):
        asked.append(call.num_sms)
        return kernel._variants.lowered(call)

    monkeypatch.setattr(kernel._variants, "build", made)
    room = [132]
    monkeypatch.setattr("wsdsl.runtime.device.num_sms_of", lambda device: room[0])
    views = [np.zeros(shape, ml_dtypes.bfloat16) for shape in [(256, 65536), (256, 65536)]]
    call = kernel.resolve((*views, None, np.zeros((256, 256), "f4")))
    first = kernel.compiled_for(call)
    assert first.schedule.reduction == "parallel"
    assert kernel.compiled_for(call) is first and len(asked) == 1
    # On a card with less room, or a part of one, fewer wait for each other.
    room[0] = 64
    assert not first.fits(call)
    fitting = kernel.compiled_for(call, Schedule(scheduler="auto"))
    assert fitting.fits(call) and fitting.schedule.reduction == "parallel"
    assert kernel.compiled_for(call, Schedule(scheduler="auto")) is fitting
    assert asked == [None, None, 64]


def test_a_schedule_of_another_process() -> None:
    schedule = Schedule(tile=dict(m=64), scheduler="auto")
    assert hash(schedule) == hash(Schedule(scheduler="auto", tile=dict(m=64)))
    copied = pickle.loads(pickle.dumps(schedule))
    assert copied == schedule and "_hash" not in vars(copied)


@pytest.mark.parametrize("sizes", [(2048, 2048, 2048), (64, 64, 64), (64, 64, 0), (0, 64, 64)])
def test_who_asks_for_pieces_gets_some(sizes: tuple[int, int, int]) -> None:
    named = dict(zip("MNK", sizes))
    chosen = CASES["gemm"].kernel.schedule(Schedule(scheduler="split_k"), **named)
    assert chosen.splits and chosen.splits >= 2


def test_slices_that_there_is_no_room_for() -> None:
    slices = Schedule(scheduler="split_k", reduction="parallel")
    with pytest.raises(ScheduleError, match="all slices can run at the same time"):
        CASES["gemm"].kernel.schedule(slices, M=2048, N=2048, K=2048)


def test_how_many_pieces_of_sums_that_are_added_to_a_tensor() -> None:
    text = (
        CASES["gemm"].text.replace("C[m, n] = acc", "C[m, n] += acc").replace("C: bf16", "C: f32")
    )
    kernel, sizes = parse(text).gemm, dict(M=256, N=256, K=8192)
    assert kernel.schedule(**sizes).scheduler == "persistent"
    assert (kernel.schedule(Schedule(scheduler="split_k"), **sizes).splits or 0) > 1
