"""The sample GEMM, simulated: accesses of TMA, and errors for misuse."""

import time

import numpy as np
import pytest

from tests.simulator.kernels import check, gemm, inputs, padded, run
from wsdsl.ir.op import THREADS
from wsdsl.ir.ops import LaunchNarrowing
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError
from wsdsl.simulator.warpgroup_steps import INVISIBLE_OPS, VALUES, VISIBLE_OPS


@pytest.mark.sampled(8)
@pytest.mark.parametrize("trips", range(7))
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_any_number_of_trips_through_the_pipeline(stages: int, trips: int) -> None:
    for seed in range(2):
        run(gemm(stages=stages), 200, 300, 64 * trips, seed=seed)


def test_simulator_runs_every_scheduled_op() -> None:
    """Except `launch_narrowing`: simulated kernels have the width of their launch."""
    assert {*THREADS} - {*VALUES, *INVISIBLE_OPS, *VISIBLE_OPS} == {LaunchNarrowing}


def test_the_same_seed_gives_the_same_run() -> None:
    kernel = gemm()
    assert run(kernel, seed=7) == run(kernel, seed=7)


def test_tma_stores_write_whole_units() -> None:
    """90 columns are 180 bytes; 12 more are overwritten."""
    arrays = inputs(100, 90, 80)
    whole = np.full((100, 200), 7, arrays["C"].dtype)
    arrays["C"] = whole[:, 48:138]
    simulate(gemm(), arrays)
    check(arrays)
    assert (whole[:, :48] == 7).all()
    assert (whole[:, 138:144] == 0).all()
    assert (whole[:, 144:] == 7).all()


def test_tma_cannot_store_past_the_end() -> None:
    arrays = inputs(1, 90, 80)
    arrays["C"] = arrays["C"].copy()
    with pytest.raises(SimulationError, match="rows of C have 180: it writes past the end"):
        simulate(gemm(), arrays)


@pytest.mark.parametrize("name", ["A", "C"])
def test_tma_needs_strides_of_16_bytes(name: str) -> None:
    arrays = inputs(8, 13, 15)
    arrays[name] = arrays[name].copy()
    with pytest.raises(SimulationError, match=f"TMA cannot access {name}: the stride of axis 0"):
        simulate(gemm(), arrays)


def test_tma_needs_aligned_addresses() -> None:
    arrays = inputs(8, 16, 16)
    arrays["A"] = padded(np.zeros((8, 24), arrays["A"].dtype))[:, 4:20]
    with pytest.raises(SimulationError, match="TMA cannot access A: its address"):
        simulate(gemm(), arrays)


def test_512_cubed_is_fast() -> None:
    kernel, arrays = gemm(), inputs(512, 512, 512)
    # CPU time: the machine that runs the tests may have other things to do.
    begin = time.process_time()
    simulate(kernel, arrays)
    assert time.process_time() - begin < 2
    check(arrays)


def test_map_and_descriptor_that_disagree_give_wrong_data() -> None:
    right = 'offset=16384, state=%s1, dtype="bf16", rows=128, columns=64, swizzle="128B"'
    kernel = gemm((right, right.replace("128B", "64B")))
    arrays = inputs(256, 256, 128)
    simulate(kernel, arrays)
    with pytest.raises(AssertionError):
        check(arrays)


ACCUMULATES_AT_ONCE = ('fn="gt", args=(%k_1, %zero)', 'fn="ge", args=(%k_1, %zero)')
ALL_INITIALISE = ("tma_store_wait(pending=0, read=False)", "mbarrier_init(barriers=%full)")
OLD_VALUE = ("yield(values=(%acc2, %s2, %s1))", "yield(values=(%acc1, %s2, %s1))")
MISUSE = [
    ("stage 4 of `empty`", ("num=4", "num=5")),
    ("item 2 of `slots`", ("shared<32768 x 4>", "shared<32768 x 2>")),
    ("bytes 16384 to 32768 of an item", ("shared<32768 x 4>", "shared<16384 x 4>")),
    ("overlap `staging`", ("offset=163840)", "offset=163832)")),
    ("bytes of SMEM; a CTA has", ("offset=163872)", "offset=232448)")),
    ("not a multiple of 1024", ('label="slots", offset=0', 'label="slots", offset=512')),
    ("k_major", ("k=64)", "k=64, b_k_major=False)")),
    ("1 to 256 elements per dimension", ("box=(128, 64)", "box=(512, 64)")),
    ("rows have 128 bytes", ("box=(128, 64)", "box=(128, 32)")),
    ("box of B that begins at element 2 of a row", ("(%n, %k)", "(%n, %two)")),
    ("box of C that begins at element 2 of a row", ("(%m_row, %n_right)", "(%m_row, %two)")),
    ("64 x 80 elements", ("k=64)", "k=80)")),
    ("no op has written the accumulator", ACCUMULATES_AT_ONCE),
    ("put it in an `elect`", ALL_INITIALISE),
    ("has overwritten the registers", OLD_VALUE),
    ("are not more than 40", ("count=232, increase=True", "count=32, increase=True")),
    ("a multiple of 8", ("count=40", "count=42")),
]


@pytest.mark.parametrize(("message", "change"), MISUSE, ids=[m for m, _ in MISUSE])
def test_misuse_is_named(message: str, change: tuple[str, str]) -> None:
    with pytest.raises(SimulationError, match=message) as caught:
        run(gemm(change))
    assert caught.value.kind in ("misuse", "bounds", "uninitialized")
