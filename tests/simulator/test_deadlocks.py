"""Kernels that hang, written by hand, and what is said about them."""

import pytest

from tests.simulator.kernels import gemm, run
from wsdsl.ir.parser import parse_kernel
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

RELEASE_AT_ONCE = (
    ("wgmma_wait(pending=1)", "wgmma_wait(pending=0)"),
    ("state=%before, pred=%more", "state=%s1"),
    ("mbarrier_arrive(barriers=%empty, state=%last, pred=%any)\n", "\n"),
)

PROLOGUE = """
kernel pair @ scheduled () {
  %left: mbarrier<1> = allocate_mbarriers(label="left", arrivals=1, offset=0)
  %right: mbarrier<1> = allocate_mbarriers(label="right", arrivals=1, offset=8)
  elect() {
    mbarrier_init(barriers=%left)
    mbarrier_init(barriers=%right)
    fence_mbarrier_init()
  }
  sync_cta()
  %start: state = initial_state(parity=0)
"""


def test_message(golden) -> None:
    with pytest.raises(SimulationError) as caught:
        run(gemm(('label="empty", arrivals=2', 'label="empty", arrivals=3')))
    assert caught.value.kind == "deadlock"
    golden(str(caught.value))


def test_race_message(golden) -> None:
    with pytest.raises(SimulationError) as caught:
        run(gemm(("  sync_warp()\n      store_shared(value=%left", "store_shared(value=%left")))
    assert caught.value.kind == "race"
    # The trace shows how far the others were; the finding is the same in any order.
    golden("\n".join(f.render() for f in caught.value.findings[:2]))


@pytest.mark.parametrize("seed", range(5))
def test_one_stage_deadlocks_when_released_late(seed: int) -> None:
    """The consumer keeps stage i while it waits for stage i + 1."""
    with pytest.raises(SimulationError, match="deadlock"):
        run(gemm(stages=1), seed=seed)
    run(gemm(stages=2), seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_one_stage_runs_when_released_at_once(seed: int) -> None:
    run(gemm(*RELEASE_AT_ONCE, stages=1), seed=seed)


def test_one_trip_fits_in_one_stage() -> None:
    run(gemm(stages=1), k=64, m=128, n=128)


@pytest.mark.parametrize("seed", range(5))
def test_each_waits_for_the_other(seed: int) -> None:
    text = (
        PROLOGUE
        + """
      partition(role="load") {
        mbarrier_wait(barriers=%left, state=%start)
        mbarrier_arrive(barriers=%right, state=%start)
      }
      partition(role="compute") {
        mbarrier_wait(barriers=%right, state=%start)
        mbarrier_arrive(barriers=%left, state=%start)
      }
    }"""
    )
    with pytest.raises(SimulationError, match="deadlock") as caught:
        simulate(parse_kernel(text), {}, seed=seed)
    assert "load warpgroup 0 waits for `left` stage 0, parity 0" in str(caught.value)
    assert "compute warpgroup 0 waits for `right` stage 0, parity 0" in str(caught.value)
    first = "mbarrier_arrive(barriers=%right, state=%start)"
    wait = "mbarrier_wait(barriers=%left, state=%start)"
    fixed = text.replace(wait, "").replace(first, f"{first}\n{wait}")
    simulate(parse_kernel(fixed), {}, seed=seed)


def test_a_partition_that_has_ended_is_told() -> None:
    text = (
        PROLOGUE
        + """
      partition(role="load") { }
      partition(role="compute") { mbarrier_wait(barriers=%right, state=%start) }
    }"""
    )
    with pytest.raises(SimulationError, match="load warpgroup 0 has ended"):
        simulate(parse_kernel(text), {})


def test_incomplete_sync_deadlocks() -> None:
    text = (
        PROLOGUE
        + """
      partition(role="load") { sync_cta() }
      partition(role="compute") { }
    }"""
    )
    with pytest.raises(SimulationError, match="1 of 2 have arrived"):
        simulate(parse_kernel(text), {})


def test_registers_without_release_deadlock() -> None:
    with pytest.raises(SimulationError, match=r"registers per thread .* has 0"):
        run(gemm(("setmaxnreg(count=40, increase=False)", "")))


def test_arrivals_of_every_thread() -> None:
    text = (
        PROLOGUE.replace('label="left", arrivals=1', 'label="left", arrivals=128')
        + """
      partition(role="load") { mbarrier_arrive(barriers=%left, state=%start, each_thread=True) }
      partition(role="compute") { mbarrier_wait(barriers=%left, state=%start) }
    }"""
    )
    simulate(parse_kernel(text), {})
    with pytest.raises(SimulationError, match="128 arrivals on `left`"):
        simulate(parse_kernel(text.replace("arrivals=128", "arrivals=127")), {})
