"""Tensor memory in the simulator: who may touch which columns when, whatever the order of a run."""

from __future__ import annotations

import pytest

from tests.simulator.kernels import run
from tests.tensor_memory import mutants, scheduled
from wsdsl.ir.op import Kernel
from wsdsl.simulator.errors import SimulationError

BROKEN = {
    "delete wait_barrier(barriers=%full_1": "was not waited for",
    "delete wait_barrier(barriers=%empty_1": "may come before its phase",
    "delete tensor_commit(barriers=%full_1": "deadlock",
    "delete free_tensor_memory": "its tensor memory is not freed",
    "column tensor_product": "columns",
    "column tensor_load": "columns",
}


def broken(what: str) -> list[Kernel]:
    change, _, name = what.partition(" ")
    found = list[Kernel]()
    for told, kernel in mutants(scheduled("gemm")):
        own, _, op = told.partition(" op ")
        if own == change and op.split(": ", 1)[1].split(" = ")[-1].startswith(name):
            found.append(kernel)
    assert found
    return found


@pytest.mark.parametrize("what", BROKEN)
def test_misuse_is_told(what: str) -> None:
    for kernel in broken(what):
        with pytest.raises(SimulationError, match=BROKEN[what]):
            run(kernel, 130, 130, 200)


@pytest.mark.parametrize("seed", range(3))
def test_any_order_gives_the_same(seed: int) -> None:
    run(scheduled("gemm", stages=2), 200, 136, 200, seed=seed)
