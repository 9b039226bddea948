"""Operands whose lines run along rows or columns lie in as few panels as can be."""

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.ir.hardware.target import H200
from wsdsl.ir.types import BF16, F16, F32
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.lowering.product_operands import operand_lines
from wsdsl.lowering.smem_allocations import smem_bytes
from wsdsl.rates import rates_of

MN_MAJOR = CASES["mn_major"].kernel
CROSSING, SPLIT = rates_of(H200).l2_crossing, rates_of(H200).l2_split


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (8, ("32B", 16)),
        (16, ("32B", 16)),
        (32, ("64B", 32)),
        (40, ("128B", 64)),
        (64, ("128B", 64)),
        (96, ("128B", 128)),
        (240, ("128B", 256)),
        (256, ("128B", 256)),
    ],
)
def test_few_panels(size: int, expected: tuple[str, int]) -> None:
    assert operand_lines(size, BF16, "columns") == expected


def test_lines_along_the_contraction_are_as_scheduled() -> None:
    assert operand_lines(96, BF16, "") == ("64B", 96)
    assert operand_lines(32, F32, "") == ("128B", 32)


@pytest.mark.parametrize(
    ("size", "expected"), [(128, ("128B", 128)), (192, ("64B", 192)), (96, ("32B", 96))]
)
def test_shares_begin_with_a_panel(size: int, expected: tuple[str, int]) -> None:
    assert operand_lines(size, F16, "columns", 2) == expected


def test_slots_hold_whole_panels() -> None:
    schedule = Schedule(tile=dict(m=64, n=72, k=64), consumers=1)
    kernel = scheduled_tile(MN_MAJOR.tile_ir)
    slot = smem_bytes(kernel, schedule, 3) - smem_bytes(kernel, schedule, 2)
    assert slot == 64 * (64 + 128) * 2 + 16
    ir = MN_MAJOR._compile(schedule, {}, ()).ir()
    assert f"shared<{slot - 16} x " in ir


def loaded(m: int, n: int) -> float:
    """Bytes a step of a slot, as the model counts them."""
    kernel = scheduled_tile(MN_MAJOR.tile_ir, sizes := dict(M=1024, N=1024, K=1024))
    asked = Work(kernel, sizes).under(dict(m=m, n=n, k=64))
    return asked.operand_bytes / asked.depth


def test_the_model_counts_lines() -> None:
    line = 64 * 128
    assert loaded(64, 128) == line * (1 + 2)
    # Beyond the tile and across lines of L2; the same where it begins amid a sector.
    assert loaded(64, 112) == pytest.approx(line * (1 + 2 * CROSSING))
    assert loaded(64, 104) == pytest.approx(line * (1 + 2 * SPLIT))
    # One line of half the bytes.
    assert loaded(64, 32) == line * (1 + 1)


@pytest.mark.parametrize("sizes", [(512, 1024, 4096), (4096, 8192, 1024)])
def test_tiles_begin_with_lines(sizes: tuple[int, int, int]) -> None:
    """By 64 x 80 columns 512 x 1024 x 4096 takes 18.3 us on an H200, by 64 x 64 10.4."""
    chosen = MN_MAJOR.schedule(**dict(zip("MNK", sizes)))
    assert chosen.tile is not None
    assert chosen.tile["n"] % 64 == 0 and chosen.tile["m"] % 64 == 0
