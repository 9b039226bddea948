"""Lines of operands that cross those of L2 take longer, and pairs load them for each other."""

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.ir.hardware.target import H200
from wsdsl.lowering.cost_model.predict import predict
from wsdsl.lowering.cost_model.terms import crossing
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.rates import rates_of

GEMM = CASES["gemm"].kernel
RATES = rates_of(H200)
CROSSING, SPLIT = RATES.l2_crossing, RATES.l2_split


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (0, 1.0),
        (64, (1 + CROSSING) / 2),
        (32, (1 + 3 * CROSSING) / 4),
        (16, (1 + 3 * CROSSING + 4 * SPLIT) / 8),
    ],
)
def test_rows_beyond_a_multiple_of_128_bytes(row: int, expected: float) -> None:
    assert crossing(RATES, row, 0, 128, True) == pytest.approx(expected)


def test_the_tile_that_takes_longest_counts() -> None:
    assert crossing(RATES, 0, 224 % 128, 128, False) == pytest.approx(CROSSING)
    assert crossing(RATES, 0, 208 % 128, 128, False) == pytest.approx(SPLIT)
    # In lines of 64 bytes tiles of 32 columns never cross.
    assert crossing(RATES, 0, 64, 64, False) == 1.0


def loaded(schedule: Schedule, **sizes: int) -> float:
    kernel = scheduled_tile(GEMM.tile_ir, sizes)
    tile = {str(name): size for name, size in (schedule.tile or {}).items()}
    asked = predict(Work(kernel, sizes), schedule, tile).tile
    return asked.operand_bytes / asked.depth


def test_pairs_ask_for_half_of_what_they_share() -> None:
    sizes = dict(M=4096, N=4096, K=4104)
    alone = Schedule(tile=dict(m=128, n=256, k=64), consumers=2)
    pairs = Schedule(tile=dict(m=128, n=256, k=64), consumers=2, cluster=dict(m=2))
    # With what is beyond the end of K.
    expected = 128 * 384 * crossing(RATES, 16, 0, 128, True)
    assert loaded(alone, **sizes) == pytest.approx(expected, rel=0.01)
    assert loaded(pairs, **sizes) < 0.85 * loaded(alone, **sizes)
    aligned = sizes | dict(K=4096)
    assert loaded(alone, **aligned) == loaded(pairs, **aligned) == 128 * 384


@pytest.mark.parametrize("n", [4096, 1000])
def test_choice(n: int) -> None:
    """Pairs ask for half of the lines."""
    crossed = GEMM.schedule(M=n, N=n, K=n + 8 if n == 4096 else n)
    assert crossed.cluster and crossed.multicast is None
    assert not GEMM.schedule(M=4096, N=4096, K=4096).cluster


def test_who_asks_for_no_multicast_gets_none() -> None:
    chosen = GEMM.schedule(Schedule(multicast=False), M=4096, N=4096, K=4104)
    assert not chosen.cluster
