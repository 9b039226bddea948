"""Break each synchronizing op of the sample: the simulator reports it in any order of events.

Mutants without a report are listed here with the reason why they are harmless.
"""

import pytest

from tests.simulator.kernels import gemm, run, sample_text
from tests.simulator.mutants import mutants
from wsdsl.ir.op import Kernel
from wsdsl.simulator.simulation_error import SimulationError

SEEDS = range(2)

HARMLESS = {
    "twice fence_mbarrier_init": "a fence more",
    "twice sync_cta": "all threads synchronize twice",
    "twice setmaxnreg": "the second asks for what is held",
    "twice mbarrier_wait": "the phase has not moved on: its consumer has not arrived",
    "twice wgmma_fence": "a fence more",
    "twice wgmma_commit": "an empty group: the waits that follow cover one real group more",
    "twice wgmma_wait": "nothing is left to wait for",
    "twice tma_store_wait": "nothing is left to wait for",
    "twice sync_warp": "the warp synchronizes twice",
    "twice fence_async_proxy": "a fence more",
    "twice tma_store_commit": "an empty group: the waits that follow cover one real group more",
    "pending 0 wgmma_wait": "waits for more",
    "pending 0 tma_store_wait": "waits for more",
    "read tma_store_wait": "waits for the writes too; the last may leave them to the kernel's end",
    "no pred mbarrier_arrive last": "%any holds whenever K > 0; when K = 0 no thread waits",
}
WRONG_DATA = {
    "delete tma_store": "nothing is written",
    "swizzle smem_descriptor": "the operand is read as it does not lie",
}


def kind_of(what: str) -> str:
    """'pending 0 op 72: wgmma_wait(...)' -> 'pending 0 wgmma_wait'."""
    change, rest = what.split(" op ", 1)
    op = rest.split(": ", 1)[1].split(" = ")[-1].split("(")[0]
    last = " last" if change == "no pred" and "%last" in rest else ""
    return f"{change} {op}{last}"


MUTANTS = list(mutants(gemm()))


def outcome(kernel: Kernel, seed: int) -> str:
    try:
        run(kernel, 250, 512, 320, seed=seed)
    except SimulationError as error:
        return error.kind
    except AssertionError:
        return "wrong data"
    return ""


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("what", "kernel"), MUTANTS, ids=[f"{w[:60]}" for w, _ in MUTANTS])
def test_each_mutant(what: str, kernel: Kernel) -> None:
    outcomes = {outcome(kernel, seed) for seed in SEEDS}
    if kind_of(what) in HARMLESS:
        assert outcomes == {""}
    elif kind_of(what) in WRONG_DATA:
        assert outcomes == {"wrong data"}
    else:
        assert "" not in outcomes
        assert "wrong data" not in outcomes


def test_lists_name_real_mutants() -> None:
    assert {*HARMLESS, *WRONG_DATA} <= {kind_of(what) for what, _ in MUTANTS}


def test_every_synchronizing_line_is_deleted() -> None:
    words = (
        "mbarrier_wait(",
        "mbarrier_arrive(",
        "mbarrier_arrive_expect_tx(",
        "fence",
        "sync_",
        "commit(",
    )
    lines = [line for line in sample_text("gemm").splitlines() if any(w in line for w in words)]
    deleted = [what for what, _ in MUTANTS if what.startswith("delete")]
    assert len(lines) > 15
    for line in lines:
        assert any(what.endswith(line.strip()) for what in deleted)
