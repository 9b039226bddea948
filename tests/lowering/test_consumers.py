"""Schedules of consumers that share a tile."""

import pytest

from benchmarks.predicted_kernels import product_case
from benchmarks.predictions import kernel_of
from tests.kernels import CASES
from wsdsl import Schedule, ScheduleError


def test_whole_rows_need_one_consumer() -> None:
    with pytest.raises(ScheduleError, match="this needs whole rows"):
        CASES["quantised"].kernel.schedule(Schedule(consumer_split="n", consumers=2))


def test_three_share_tiles_that_fill_waves() -> None:
    """198 tiles of weights by two of rows are three waves of 132 SMs; 256 rows for two are four."""
    chosen = CASES["gemm"].kernel.schedule(M=264, N=37888, K=3584)
    assert (chosen.consumers, chosen.mode, chosen.mma_m) == (3, "cooperative", "n")
    assert (chosen.tile or {})["n"] == 192


def test_three_do_not_compute_operands() -> None:
    """They have 160 registers a thread, and what they compute would lie beside their sums."""
    weights = product_case("weights", "decoded", (264, 37888, 3584), decoded=True)
    assert kernel_of(weights).schedule(M=264, N=37888, K=3584).consumers != 3
