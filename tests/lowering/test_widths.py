"""How columns are cut into chunks, panels and slices, whatever multiple of 8 they are."""

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.ir.memory_ops import MakeTensorMap, StoreShared
from wsdsl.lowering.pieces import chunk_widths, panel_widths
from wsdsl.lowering.slices import slice_width

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
                width = slice_width(columns, splits, least)
                assert columns % width == 0 and width <= 64
                assert width % least == columns % least


def test_slices_are_over_soon() -> None:
    assert slice_width(128, 2) == 64 and slice_width(128, 4) == 32
    assert slice_width(128, 16) == 8 and slice_width(128, 16, least=16) == 16
    # Two turns of 8 columns take longer than one of 16.
    assert slice_width(128, 14) == 16


def test_what_is_left_is_one_line_without_a_swizzle() -> None:
    made = CASES["gemm"].kernel.compile(schedule=Schedule(tile=dict(n=168))).scheduled
    stores = [op for op in made.ops if isinstance(op, StoreShared)]
    assert {op.swizzle for op in stores} == {"128B", "none"}
    boxes = {op.box for op in made.ops if isinstance(op, MakeTensorMap) and op.tensor.name == "C"}
    assert boxes == {(16, 64), (16, 40)}
