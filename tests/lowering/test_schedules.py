"""The default schedule, and what is said of schedules that do not fit."""

import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl import Schedule, ScheduleError


def chosen(name: str, schedule: Schedule | None = None, **sizes: int) -> Schedule:
    return CASES[name].kernel.schedule(schedule, **sizes)


def test_the_choice_can_be_pasted_back() -> None:
    schedule = chosen("gemm")
    assert eval(repr(schedule), {"Schedule": Schedule}) == schedule
    assert chosen("gemm", schedule) == schedule


def test_a_large_gemm_gets_the_wide_tile() -> None:
    schedule = chosen("gemm", M=8192, N=8192, K=8192)
    assert schedule.tile == dict(m=128, n=256, k=64)
    assert (schedule.stages, schedule.consumers) == (3, 2)
    assert schedule.registers == dict(load=40, compute=232)


def test_two_accumulators_share_the_registers() -> None:
    assert (chosen("two_products").tile or {})["n"] <= 128


def test_a_width_that_divides_the_waves_is_preferred() -> None:
    narrow = chosen("gemm", M=1024, N=2048, K=4096).tile or {}
    assert -(-1024 // 128) * -(-2048 // narrow["n"]) <= 132


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(tile=dict(q=64)), "no loop walks"),
        (Schedule(tile=dict(n=320)), "no multiple of 16 up to 256"),
        (Schedule(tile=dict(n=100)), "no multiple of 16"),
        (Schedule(tile=dict(m=96)), "no multiple of 64"),
        (Schedule(tile=dict(k=24)), "no multiple of 16"),
        (Schedule(tile=dict(n=256), stages=9), "bytes of SMEM"),
        (Schedule(registers=dict(load=232, compute=232)), "more than the"),
        (Schedule(registers=dict(loader=40)), "name the roles"),
        (Schedule(mode="pingpong", consumers=1), "nobody to take turns with"),
        (Schedule(cluster=dict(k=2)), "no parallel loop walks"),
        (Schedule(cluster=dict(m=4, n=2)), "more than 4 CTAs"),
        (Schedule(raster="k"), "no parallel loop walks"),
        (Schedule(mma="k"), "no product has as a free axis"),
        (Schedule(tile=dict(n=256), consumers=3), "needs 154 registers a thread at launch"),
        (Schedule(scheduler="stream_k"), "not lowered yet"),
        (Schedule(arch="sm_100a"), "not lowered yet"),
    ],
    ids=repr,
)
def test_refused_with_the_reason(schedule: Schedule, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        chosen("gemm", schedule)


def test_a_malformed_schedule_tells_every_field() -> None:
    with pytest.raises(ScheduleError) as caught:
        Schedule(stages=0, swizzle=3, consumers=5)  # type: ignore[arg-type]
    assert len(caught.value.findings) == 3


def test_registers_too_many() -> None:
    with pytest.raises(ScheduleError, match="the tiles take 256 of 240 registers"):
        chosen("two_products", wsdsl.Schedule(tile=dict(n=256)))


def test_tiles_of_a_size_that_the_kernel_says() -> None:
    assert (chosen("quantised", M=8192, N=8192, K=8192).tile or {})["n"] == 64
    with pytest.raises(ScheduleError, match="gives `n` 128, the kernel walks it by 64"):
        chosen("quantised", Schedule(tile=dict(n=128)))
    text = CASES["quantised"].text.replace("by=64", "by=100")
    with pytest.raises(ScheduleError, match="no multiple of 16"):
        wsdsl.parse(text).quantised.schedule()
