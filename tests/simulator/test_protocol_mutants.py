"""Break each synchronising op of the kernels with clusters, named barriers, flags and operands in
registers: some order shows it. What is harmless is listed with the reason why.
"""

from collections.abc import Callable

import numpy as np
import pytest

from tests.simulator import (
    test_clusters,
    test_flags,
    test_named_barriers,
    test_register_operands,
)
from tests.simulator.kernels import BF16
from tests.simulator.mutants import mutants
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.simulator.errors import SimulationError
from wsdsl.simulator.machine import simulate

SEEDS = range(3)
KINDS = ("delete", "own cta", "num_warpgroups", "arrivals", "tx_bytes", "pending", "release")
HARMLESS = {
    "spread": ["tma_store_wait(pending=0, read=False)"],  # sync_cluster and the end wait enough
    "pingpong": ["tma_store_wait(pending=0, read=False)"],
    "hand_over": [],
    "by_tma": ["sync_cta()"],  # of one warpgroup, which meets at the named barrier too
    "registers": ["arrive_barrier(barriers=%empty, state=%last)"],  # nobody waits for it
}


def spread(kernel: Kernel, seed: int) -> None:
    x = np.random.default_rng(0).standard_normal((320, 64)).astype(BF16)
    arrays = {"X": x, "Y": np.full((640, 64), np.nan, BF16)}
    simulate(kernel, arrays, seed=seed)
    assert (arrays["Y"] == np.concatenate([x, x])).all()


def pingpong(kernel: Kernel, seed: int) -> None:
    y = np.full((256, 32), np.nan, np.float32)
    simulate(kernel, {"Y": y}, seed=seed)
    assert (y == np.arange(256)[:, None]).all()


def hand_over(kernel: Kernel, seed: int) -> None:
    arrays = test_flags.arrays()
    simulate(kernel, arrays, seed=seed)
    assert (arrays["Y"][:, 0] == (np.arange(256) + 64) % 256).all()


def by_tma(kernel: Kernel, seed: int) -> None:
    w, y = (np.full((256, 64), np.nan, BF16) for _ in range(2))
    simulate(kernel, {"W": w, "F": np.zeros(4, np.int32), "Y": y}, seed=seed)
    assert (y[:, 5] == (np.arange(256) // 64 + 1) % 4).all()


def registers(kernel: Kernel, seed: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((64, 200)).astype(np.float32)
    b = rng.standard_normal((70, 200)).astype(BF16)
    c = np.full((64, 70), np.nan, np.float32)
    simulate(kernel, {"A": a, "B": b, "C": c}, seed=seed)
    wanted = a.astype(BF16).astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - wanted).max() < 1e-3


CASES: list[tuple[str, Callable[[Kernel, int], None]]] = [
    (test_clusters.SPREAD.replace(*test_clusters.ONE_CLUSTER), spread),
    (test_named_barriers.PINGPONG, pingpong),
    (test_flags.HAND_OVER, hand_over),
    (test_flags.BY_TMA, by_tma),
    (test_register_operands.GEMM, registers),
]


def objects(check: Callable[[Kernel, int], None], kernel: Kernel) -> bool:
    for seed in SEEDS:
        try:
            check(kernel, seed)
        except (SimulationError, AssertionError):
            return True
    return False


@pytest.mark.parametrize(("text", "check"), CASES, ids=[check.__name__ for _, check in CASES])
def test_every_break_is_noticed(text: str, check: Callable[[Kernel, int], None]) -> None:
    kernel = parse_kernel(text)
    assert not objects(check, kernel)
    with np.errstate(all="ignore"):
        missed = {
            what.split(": ", 1)[1]
            for what, mutant in mutants(kernel)
            if what.startswith(KINDS) and not objects(check, mutant)
        }
    assert missed == set(HARMLESS[check.__name__])
