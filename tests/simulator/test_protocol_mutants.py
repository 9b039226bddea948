"""Break each synchronizing op of the kernels with clusters, named barriers, semaphores and operands
in registers: some order shows it. Harmless mutants are listed with the reason.
"""

from collections.abc import Callable

import numpy as np
import pytest

from tests.simulator import test_clusters, test_flags, test_named_barriers, test_register_operands
from tests.simulator.mutants import mutants
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.simulator.simulation_error import SimulationError

SEEDS = range(3)
KINDS = ("delete", "own cta", "num_warpgroups", "arrivals", "tx_bytes", "pending", "release")
Check = Callable[[Kernel, int], object]
CASES: dict[str, tuple[str, Check, list[str]]] = {
    "spread": (
        test_clusters.SPREAD.replace(*test_clusters.ONE_CLUSTER),
        test_clusters.check,
        ["tma_store_wait(pending=0, read=False)"],  # sync_cluster and the end wait enough
    ),
    "pingpong": (
        test_named_barriers.PINGPONG,
        test_named_barriers.check,
        ["tma_store_wait(pending=0, read=False)"],
    ),
    "hand_over": (test_flags.HAND_OVER, test_flags.check, []),
    "by_tma": (
        test_flags.BY_TMA,
        test_flags.check_by_tma,
        ["sync_cta()"],  # of one warpgroup, which waits at the named barrier too
    ),
    "registers": (
        test_register_operands.GEMM,
        test_register_operands.check,
        ["mbarrier_arrive(barriers=%empty, state=%last)"],  # no thread waits for it
    ),
}
"""Text, the parameters of a run, and the harmless mutants."""


def objects(check: Check, kernel: Kernel) -> bool:
    for seed in SEEDS:
        try:
            check(kernel, seed)
        except (SimulationError, AssertionError):
            return True
    return False


@pytest.mark.parametrize("name", CASES)
def test_every_break_is_noticed(name: str) -> None:
    text, check, harmless = CASES[name]
    kernel = parse_kernel(text)
    assert not objects(check, kernel)
    with np.errstate(all="ignore"):
        missed = {
            what.split(": ", 1)[1]
            for what, mutant in mutants(kernel)
            if what.startswith(KINDS) and not objects(check, mutant)
        }
    assert missed == set(harmless)
