"""Clusters that claim others in the simulator, which gives any that is left, or none."""

import pytest

from tests.case_data import check, expected, inputs
from tests.claimed_kernels import FORMS, claimed, mutants
from tests.kernels import CASES
from tests.prover.test_claims import name_of
from wsdsl.ir.op import Kernel
from wsdsl.simulator.simulation import SimulationReport, simulate
from wsdsl.simulator.simulation_error import SimulationError

SIZES = dict(M=600, N=200, K=136)
TILES = {"alone": 5 * 4, "pair": 3 * 4, "cluster": 3 * 4}


def run(kernel: Kernel, seed: int) -> SimulationReport:
    case = CASES["gemm"]
    arrays = inputs(case, **SIZES)
    report = simulate(kernel, arrays, seed=seed)
    check(case, arrays, expected(case, arrays))
    return report


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", FORMS)
def test_each_tile_is_done_once(form: str, seed: int) -> None:
    """In any order of responses: each cluster requests once per tile that it computes."""
    report = run(claimed(form), seed)
    assert report.op_counts["load warpgroup 0"]["ClcTryCancel"] == TILES[form]


BROKEN = {
    "delete clc_try_cancel": "deadlock",
    "twice clc_try_cancel": "it overwrites item",
    "delete mbarrier_arrive_expect_tx": "deadlock",
    "bytes -16 mbarrier_arrive_expect_tx": "no op has written it|is outstanding",
    "bytes +16 mbarrier_arrive_expect_tx": "deadlock",
    "delete mbarrier_arrive": "deadlock",
    "twice mbarrier_arrive": "may count in its phase|whose phase",
    "own barrier mbarrier_arrive": "deadlock",
    "delete fence_async_proxy": "fence_async_proxy",
    "delete sync_warp": "it overwrites item",
    "swapped sync_warp": "it overwrites item",
    "not claimed for_range": "deadlock",
    "same index for_range": "deadlock|wrote other bits|no cluster is left",
    "other CTA if": "deadlock",
    "both CTAs if": "it overwrites item",
    "arrivals +1 allocate_mbarriers": "deadlock",
}


@pytest.mark.parametrize("what", BROKEN)
def test_misuse_is_told(what: str) -> None:
    broken = [made for told, made in mutants(claimed("cluster")) if name_of(told) == what]
    assert broken
    for kernel in broken:
        with pytest.raises(SimulationError, match=BROKEN[what]):
            any(run(kernel, seed).steps < 0 for seed in range(3))
