"""The default schedule of some hundred rows of big weights, most of which come from memory."""

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.heuristics.schedule_options import ALONE_ROWS, schedule_options
from wsdsl.lowering.pipeline import scheduled_tile


def chosen(name: str, schedule: Schedule | None = None, **sizes: int) -> Schedule:
    return CASES[name].kernel.schedule(schedule, **sizes)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # All rows in one tile: each of the weights comes once, and to three SMs of four.
        ((192, 12288, 4096), (192, 96, None)),
        # Rows beyond the tensor cost more than to load the weights twice.
        ((160, 10240, 8192), (80, 192, "n")),
    ],
)
def test_one_consumer_has_192_rows(
    sizes: tuple[int, int, int], expected: tuple[int, int, str | None]
) -> None:
    made = chosen("gemm", **dict(zip("MNK", sizes, strict=True)))
    assert made.tile and (made.tile["m"], made.tile["n"], made.mma_m) == expected
    assert made.consumers == 1


@pytest.mark.parametrize(
    ("name", "sizes", "offered"),
    [
        ("gemm", (192, 9216, 3072), True),
        ("gemm", (192, 18432, 3072), False),  # two waves
        ("gemm", (192, 512, 3072), False),  # less than half of the SMs
        ("gemm", (64, 24576, 3072), False),  # memory alone is the limit
        ("scaled", (192, 9216, 3072), False),  # not measured
    ],
)
def test_where_192_rows_are_offered(name: str, sizes: tuple[int, int, int], offered: bool) -> None:
    known, given = dict(zip("MNK", sizes, strict=True)), Schedule(mma_m="m")
    kernel = scheduled_tile(CASES[name].with_schedule(given), known)
    options = schedule_options(kernel, given, Work(kernel, known))
    alone = [
        o
        for o in options
        if o.schedule.consumers == 1 and (o.schedule.tile or {})["m"] == ALONE_ROWS
    ]
    assert bool(alone) == offered


def test_without_products_nothing_is_gained_by_192_rows() -> None:
    made = chosen("scale", Schedule(consumers=1), M=192, N=8192)
    assert made.tile and made.tile["m"] <= 64


def test_rows_beyond_the_tensor_take_time_to_load() -> None:
    """None are, where the last tile overlaps the one before."""
    loaded = {}
    for rows in (160, 192, 352):
        sizes = dict(M=rows, N=10240, K=8192)
        work = Work(scheduled_tile(CASES["gemm"].kernel.tile_ir, sizes), sizes)
        loaded[rows] = work.under(dict(m=192, n=80, k=64)).operand_bytes
    whole = (192 + 80) * 8192 * 2
    assert loaded == {160: whole + 32 * 8192, 192: whole, 352: whole}


@pytest.mark.parametrize(
    ("rows", "stages"),
    # By 104 x 128, of which seven slots leave room for one buffer, not two.
    [(200, 7), (1600, 6)],
)
def test_a_slot_is_worth_more_than_a_buffer_where_memory_is_slow(rows: int, stages: int) -> None:
    given = Schedule(tile=dict(m=104, n=128, k=64), mma_m="n", mode="cooperative", consumers=2)
    assert chosen("gemm", given, M=rows, N=8192, K=1536).stages == stages


def test_what_comes_from_memory_wants_a_slot_more() -> None:
    wide = Schedule(tile=dict(m=128, n=256), mode="cooperative", consumers=2)
    assert chosen("gemm", wide, M=256, N=16384, K=4096).stages == 4
    assert chosen("gemm", wide, M=4096, N=4096, K=4096).stages == 3


def test_what_comes_from_memory_is_wanted_by_few() -> None:
    """128 rows of tiles of 64 want the same columns twice."""
    few = chosen("gemm", Schedule(scheduler="grid"), M=128, N=8192, K=2048)
    assert few.tile and few.tile["m"] == 128
