"""What consumers that share a tile each do, and when they give slots back."""

import dataclasses
import re

import pytest

from benchmarks.predicted_kernels import product_case
from benchmarks.predictions import kernel_of
from tests.kernels import CASES
from wsdsl import Schedule, ScheduleError


def mainloop(name: str, schedule: Schedule) -> list[str]:
    """The ops of the first loop of products, without what they make."""
    text = CASES[name].kernel.compile(schedule=schedule).ir()
    body = text.split('role="compute"')[1].split("wgmma_fence()")[1].split("yield")[0]
    return re.findall(r"(?m)^ *(?:%.*? = )?(\w+\(.*\))$", body)


def words(ops: list[str]) -> list[str]:
    return [op.split("(")[0] for op in ops if op.startswith(("wgmma", "arrive"))]


def test_a_slot_is_given_back_before_the_second_half_is_started() -> None:
    ops = mainloop("gemm", Schedule(tile=dict(m=256, n=128), mode="cooperative"))
    product, commit, wait, arrive = "wgmma", "wgmma_commit", "wgmma_wait", "arrive_barrier"
    assert words(ops) == [product, commit, wait, arrive, product, commit]
    assert "wgmma_wait(pending=1)" in ops


def test_one_product_is_started_whole() -> None:
    ops = mainloop("gemm", Schedule(tile=dict(m=128, n=128), mode="cooperative"))
    assert words(ops) == ["wgmma", "wgmma_commit", "wgmma_wait", "arrive_barrier"]


def test_a_ring_of_one_slot_is_given_back_when_all_is_read() -> None:
    ops = mainloop("gemm", Schedule(tile=dict(m=256, n=64), stages=1, mode="cooperative"))
    assert words(ops) == ["wgmma", "wgmma", "wgmma_commit", "wgmma_wait", "arrive_barrier"]
    assert sum("wgmma_wait(pending=0" in op for op in ops) == 1


@pytest.mark.parametrize("name", ["gemm", "mn_major"])
def test_columns_are_divided(name: str) -> None:
    schedule = Schedule(tile=dict(m=64, n=256), consumers=2, share="n", mode="cooperative")
    text = CASES[name].kernel.compile(schedule=schedule).ir()
    assert 'num_warps=8, share="columns"' in text
    assert '%share: i32 = map(fn="mul", args=(%wg, %c128))' in text
    (b,) = re.findall(r"%b_?\d*: smem_descriptor = matrix_operand\((.*)\)", text)
    assert "start=%share" in b
    assert "acc<f32[64x128]>" in text and "acc<f32[64x256]>" not in text


def test_each_share_of_columns_begins_with_a_panel() -> None:
    given = Schedule(tile=dict(m=64, n=96), consumers=2, share="n")
    ir = CASES["mn_major"].kernel._compile(given, {}, ()).ir()
    assert 'rows=64, columns=96, swizzle="32B", k_major=False' in ir
    wide = dataclasses.replace(given, tile=dict(m=64, n=128))
    ir = CASES["mn_major"].kernel._compile(wide, {}, ()).ir()
    assert 'rows=64, columns=128, swizzle="128B", k_major=False' in ir


def test_whole_rows_need_one_consumer() -> None:
    with pytest.raises(ScheduleError, match="this needs whole rows"):
        CASES["quantised"].kernel.schedule(Schedule(share="n", consumers=2))


def test_three_share_tiles_that_fill_waves() -> None:
    """198 tiles of weights by two of rows are three waves of 132 SMs; 256 rows for two are four."""
    chosen = CASES["gemm"].kernel.schedule(M=264, N=37888, K=3584)
    assert (chosen.consumers, chosen.mode, chosen.mma) == (3, "cooperative", "n")
    assert (chosen.tile or {})["n"] == 192


def test_three_do_not_compute_operands() -> None:
    """They have 160 registers a thread, and what they compute would lie beside their sums."""
    weights = product_case("weights", "decoded", (264, 37888, 3584), decoded=True)
    assert kernel_of(weights).schedule(M=264, N=37888, K=3584).consumers != 3
