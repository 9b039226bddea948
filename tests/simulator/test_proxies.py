"""Operands that threads write to SMEM and wgmma reads: synchronization of the generic and the async
proxy.
"""

import pytest

from tests.simulator.kernels import gemm_by_threads, run
from tests.simulator.mutants import mutants
from tests.simulator.test_mutants import HARMLESS, kind_of
from wsdsl.ir.op import Kernel
from wsdsl.simulator.simulation_error import SimulationError

SIZES = [(1, 1, 1), (128, 128, 0), (130, 70, 33), (256, 384, 320)]
RING = ("thread_load", "%full", "%empty", "fence_async_proxy", "wgmma_wait")
MUTANTS = [
    (what, kernel)
    for what, kernel in mutants(gemm_by_threads())
    if any(word in what for word in RING)
]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_gemm_by_threads(m: int, n: int, k: int) -> None:
    for seed in range(3):
        run(gemm_by_threads(), m, n, k, seed=seed)


@pytest.mark.parametrize(("what", "kernel"), MUTANTS, ids=[what[:60] for what, _ in MUTANTS])
def test_each_mutant(what: str, kernel: Kernel) -> None:
    if kind_of(what) in HARMLESS:
        run(kernel, 250, 512, 320)
        return
    with pytest.raises((SimulationError, AssertionError)):
        run(kernel, 250, 512, 320)


def test_messages() -> None:
    fence = "          fence_async_proxy()\n          mbarrier_arrive(barriers=%full"
    with pytest.raises(SimulationError, match="no fence_async_proxy of its threads"):
        run(gemm_by_threads((fence, "          mbarrier_arrive(barriers=%full")))
    arrive = "mbarrier_arrive(barriers=%full, state=%f1, each_thread=True)"
    late = (fence.split("\n")[0] + "\n", ""), (arrive, arrive + "\n fence_async_proxy()")
    with pytest.raises(SimulationError, match=r"no synchronization follows|no fence_async_proxy"):
        run(gemm_by_threads(*late))
    alone = arrive.replace(", each_thread=True", "")
    with pytest.raises(SimulationError, match="no wait orders this after it"):
        run(gemm_by_threads((arrive, alone), ("arrivals=128", "arrivals=1")))
