"""Tensor memory in the simulator: the legal order of accesses to columns, in any order of a run."""

import pytest

from tests.case_data import inputs, simulated
from tests.scaled_kernels import SCALED
from tests.simulator.kernels import run
from tests.tensor_memory import lowered, mutants, scheduled
from wsdsl.ir.op import Kernel
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

BROKEN = {
    "delete mbarrier_wait(barriers=%full_1": "no wait has completed a phase",
    "delete mbarrier_wait(barriers=%empty_1": "may count in its phase",
    "delete tcgen05_commit(barriers=%full_1": "deadlock",
    "delete tcgen05_dealloc": "its tensor memory is not freed",
    "column tcgen05_mma": "columns",
    "column tcgen05_ld": "columns",
}


def broken(what: str, kernel: Kernel) -> list[Kernel]:
    change, _, name = what.partition(" ")
    found = list[Kernel]()
    for told, made in mutants(kernel):
        own, _, op = told.partition(" op ")
        if own == change and op.split(": ", 1)[1].split(" = ")[-1].startswith(name):
            found.append(made)
    assert found
    return found


@pytest.mark.parametrize("what", BROKEN)
def test_misuse_is_told(what: str) -> None:
    for kernel in broken(what, scheduled("gemm")):
        with pytest.raises(SimulationError, match=BROKEN[what]):
            run(kernel, 130, 130, 200)


@pytest.mark.parametrize("seed", range(3))
def test_any_order_gives_the_same(seed: int) -> None:
    run(scheduled("gemm", stages=2), 200, 136, 200, seed=seed)


SCALES_BROKEN = {
    "delete mbarrier_wait(barriers=%full,": "no wait orders this|no op has written",
    "delete mbarrier_wait(barriers=%empty,": "may count in its phase|no wait has completed a phase",
    "delete store_scale_factors": "no op has written",
    "delete tcgen05_wait_st": "no tcgen05_wait_st covers it",
    "delete fence_async_proxy": "no fence_async_proxy",
    "state store_scale_factors": "item|race|deadlock|writ",
}


@pytest.mark.parametrize("what", SCALES_BROKEN)
def test_misuse_of_scales_is_told(what: str) -> None:
    kernel, *_ = broken(what, lowered(SCALED["mx"], tile=dict(n=64), stages=3))
    with pytest.raises(SimulationError, match=SCALES_BROKEN[what]):
        simulate(kernel, inputs(SCALED["mx"], M=130, N=136, K=784, KB=25), num_sms=1)


@pytest.mark.parametrize("seed", range(3))
def test_any_order_gives_the_same_with_scales(seed: int) -> None:
    case = SCALED["mx"]
    kernel = lowered(case, tile=dict(n=64), stages=2)
    simulated(case, kernel, seed, num_sms=1, M=130, N=136, K=784, KB=25)
