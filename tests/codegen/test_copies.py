"""Operands that threads copy: their loads' registers are there, by what the schedule gives them."""

import pytest

from tests.codegen.support import needs_ptxas
from tests.kernels import CASES
from wsdsl import Schedule

ALL = ("A", "B", "C")


@needs_ptxas
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gemm", (1501, 501, 501)),
        ("mn_major", (501, 1501, 333)),
        ("mn_major", (65, 999, 2501)),
        ("product_f8e4m3", (900, 2500, 2500)),
    ],
)
def test_defaults_do_not_spill(name: str, sizes: tuple[int, int, int]) -> None:
    made = CASES[name].kernel._compile(None, dict(zip("MNK", sizes)), ALL)
    assert made.resources.spill_store_bytes == 0


@needs_ptxas
@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("gemm", Schedule(tile=dict(m=256, n=96), consumers=1, scheduler="stream_k")),
        ("gemm", Schedule(tile=dict(m=128, n=256))),
        ("gemm", Schedule(tile=dict(m=128, n=192), mode="pingpong")),
        ("gemm", Schedule(tile=dict(m=192, n=96), consumers=3)),
        ("mn_major", Schedule(tile=dict(m=128, n=64), consumers=1)),
        ("mn_major", Schedule(tile=dict(m=64, n=72), consumers=1)),
        ("product_tf32", Schedule(tile=dict(m=64, n=144), consumers=1, scheduler="stream_k")),
        ("product_f8e4m3", Schedule(tile=dict(m=192, n=96), consumers=3)),
    ],
)
def test_given_tiles_do_not_spill(name: str, schedule: Schedule) -> None:
    made = CASES[name].kernel._compile(schedule, {}, ALL)
    assert made.resources.spill_store_bytes == 0


@pytest.mark.parametrize("name", ["gemm", "epilogue", "mn_major", "column_major_b"])
@pytest.mark.parametrize("sizes", [(1024, 50257, 768), (4095, 4095, 4095)])
def test_who_copies_keeps_registers(name: str, sizes: tuple[int, int, int]) -> None:
    made = CASES[name].kernel._compile(None, dict(zip("MNK", sizes)), ALL)
    assert (made.schedule.registers or {})["load"] >= 56
