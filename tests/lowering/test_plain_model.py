"""The model of kernels without products, against what was measured and what is compiled."""

import math
import re
from collections.abc import Mapping

import pytest

from benchmarks import bandwidth_predictions as bandwidth
from benchmarks.predictions import read
from wsdsl import Schedule
from wsdsl.ir.hardware.target import TARGETS
from wsdsl.lowering.cost_model.memory_bound import INSTRUCTIONS, LATENCY, MEMORY, PlainCost


def cost_of(name: str, sizes: Mapping[str, int], schedule: Schedule | None = None) -> PlainCost:
    cost = bandwidth.predicted(bandwidth.kernels()[name], sizes, TARGETS[0], schedule).plain
    assert cost is not None
    return cost


def test_predictions_are_near_what_was_measured() -> None:
    found = [(row, row.prediction.plain) for row in bandwidth.rows(read(bandwidth.RESULTS))]
    plain = [(row, cost) for row, cost in found if cost is not None]
    assert len(plain) >= 30
    assert sum(row.is_near for row, _ in plain) >= 0.9 * len(plain)
    assert all(cost.limit == MEMORY for row, cost in plain if row.measured > 50)


def test_rows_are_read_once_if_they_are_held() -> None:
    sizes = dict(M=1 << 14, N=1 << 13)
    held = cost_of("rmsnorm", sizes)
    whole = 2 * sizes["M"] * sizes["N"]
    assert held.is_held
    assert (held.read_bytes, held.written_bytes) == (whole + 2 * sizes["N"], whole)


@pytest.mark.parametrize(("columns", "times"), [(1 << 11, 1), (1 << 20, 2)])
def test_rows_that_are_not_held_come_from_l2_again_while_it_has_them(
    columns: int, times: int
) -> None:
    sizes, walked = dict(M=1 << 12, N=columns), Schedule(tile=dict(m=64, n=64))
    cost = cost_of("softmax", sizes, walked)
    assert not cost.is_held
    assert cost.read_bytes == times * cost.written_bytes == times * 2 * sizes["M"] * columns


def test_ctas_of_a_cluster_share_a_row() -> None:
    alone, shared = (cost_of("rmsnorm", dict(M=1024, N=n)) for n in (8192, 65536))
    assert shared.tile.tiles == 8 * alone.tile.tiles
    ratio = shared.units[INSTRUCTIONS] / alone.units[INSTRUCTIONS]
    assert ratio == pytest.approx(8, rel=0.05)


def test_few_ctas_are_limited_by_latency() -> None:
    cost = cost_of("softmax", dict(M=16, N=100000))
    assert cost.limit == LATENCY and cost.cycles > 1.5 * cost.units[MEMORY]


@pytest.mark.parametrize("name", ["rmsnorm", "softmax", "layernorm"])
def test_instructions_are_counted_as_they_are_compiled(name: str) -> None:
    """Of a thread: but for zeros in front of loads, and moves."""
    kernel = bandwidth.kernels()[name]
    body = kernel.compile(M=1 << 14, N=1 << 13).ptx
    found = re.findall(r"^\s*(?:@!?%p\d+ )?([a-z]\w*)\.", body, re.MULTILINE)
    compiled = sum(op not in ("mov", "reg", "version", "target", "ld") for op in found)
    cost = cost_of(name, dict(M=1 << 14, N=1 << 13))
    rates, tiles = cost.tile.rates, math.ceil(cost.tile.tiles / cost.tile.target.num_sms)
    cycles = cost.units[INSTRUCTIONS] / cost.tile.clock * rates.clock / tiles
    assert cycles * rates.fma_lanes / 128 == pytest.approx(compiled, rel=0.35)


def test_nothing_is_explained() -> None:
    told = bandwidth.kernels()["rmsnorm"].explain(M=0, N=1 << 13)
    assert "work: " in told and "DRAM: " not in told
