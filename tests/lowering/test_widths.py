"""How columns are cut into chunks, panels and slices, whatever multiple of 8 they are."""

from dataclasses import replace

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.lowering.cost_model.predict import slices
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.parallel_reduction import Slicing
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.lowering.register_tiles import chunk_widths, panel_widths

COLUMNS = range(8, 257, 8)


@pytest.mark.parametrize("narrow", [False, True])
def test_chunks_are_few(narrow: bool) -> None:
    widest = 32 if narrow else 64
    for columns in COLUMNS:
        chunks, panels = chunk_widths(columns, narrow), panel_widths(columns, narrow)
        assert sum(chunks) == sum(panels) == columns
        assert len(chunks) == -(-columns // widest) and max(chunks) <= widest
        assert all(w in (8, 16, 32, 64) for w in panels)
    assert chunk_widths(168, False) == (64, 64, 40)
    assert panel_widths(168, False) == (64, 64, 32, 8)


def test_slices_are_equal() -> None:
    for columns in COLUMNS:
        for splits in range(2, 33):
            for least in (8, 16):
                width = Slicing(64, columns, 64 * columns, 1, splits, least).width
                assert columns % width == 0 and width <= 64
                assert width % least == columns % least


def test_slices_are_over_soon() -> None:
    one = Slicing(rows=64, columns=128, sums=64 * 128, consumers=1, splits=16)
    assert (one.width, one.at_once(8)) == (8, 16)
    assert replace(one, least=16).width == 16
    # Two turns of 8 columns take longer than one of 16.
    assert replace(one, splits=14).width == 16
    assert replace(one, splits=4).width == 32
    assert replace(one, splits=3).width == 64
    # Beside sums that take most of the registers: wide slices would be loaded one by one.
    wide = Slicing(rows=128, columns=256, sums=128 * 256, consumers=2, splits=4)
    assert (wide.at_once(64), wide.at_once(32), wide.width) == (1, 4, 32)


def test_slices_fit_in_registers() -> None:
    """The whole and one piece; 256 x 192 in slices of 32 columns spilled 416 bytes."""
    tall = Slicing(rows=256, columns=192, sums=256 * 192, consumers=2, splits=3)
    assert tall.width == 8
    assert replace(tall, rows=128, sums=128 * 192).width == 64


def test_slices_of_those_in_turns_are_of_one_consumer() -> None:
    """To the model as in the kernel."""
    cut = Schedule(scheduler="split_k", splits=3, reduction="parallel", mode="pingpong")
    cut = replace(cut, tile=dict(m=128, n=128), consumers=2)
    kernel = scheduled_tile(CASES["gemm"].with_schedule(cut))
    assert kernel.schedule is not None
    asked = Work(kernel, {}).under(dict(m=128, n=128, k=64))
    width = slices(asked, kernel.schedule).width
    assert f"frag<bf16[64x{width}]>" in CASES["gemm"].fresh().compile(cut).ir("scheduled")


def test_slots_that_are_asked_for_fit_by_one_line() -> None:
    made = CASES["gemm"].kernel.schedule(Schedule(stages=20), M=4096, N=4096, K=4096)
    assert made.tile == dict(m=64, n=16, k=64)


def test_columns_that_three_consumers_share() -> None:
    made = CASES["broadcast"].kernel.schedule(Schedule(consumers=3, consumer_split="n"))
    assert made.tile and made.tile["n"] == 144
