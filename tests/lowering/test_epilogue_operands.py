"""An epilogue's operands in parts: where they lie, and that their slots are given back."""

import pytest

from tests.kernels import CASES, simulated
from tests.simulator.kernels import rejected
from wsdsl import Schedule, parse

CASE = CASES["epilogue"]
KERNEL = CASE.kernel


def test_single_lines_lie_by_themselves() -> None:
    """Behind the panels of each slot they would take up 1024 bytes."""
    made = KERNEL.compile(schedule=Schedule(tile=dict(m=128, n=256, k=64), stages=3)).scheduled
    assert 'shared<16384 x 3> = allocate_shared(label="part_slots"' in str(made)
    assert 'shared<256 x 3> = allocate_shared(label="part_lines"' in str(made)
    told = "an item must be a multiple of {} bytes"
    rejected(str(made), "shared<256 x 3>", "shared<192 x 3>", told.format(128))
    rejected(str(made), "shared<16384 x 3>", "shared<16256 x 3>", told.format(1024))
    # Its last chunk has 8 columns, and no swizzle.
    narrow = KERNEL.compile(schedule=Schedule(tile=dict(m=128, n=136, k=64), stages=2)).scheduled
    rejected(str(narrow), "shared<16384 x 4>", "shared<16256 x 4>", told.format(1024))


@pytest.mark.parametrize("n", [144, 192])
def test_values(n: int) -> None:
    schedule = Schedule(tile=dict(m=128, n=n, k=64), mode="pingpong")
    simulated(CASE, schedule, M=200, N=n + 40)


def test_slots_are_given_back_whatever_is_stored() -> None:
    kernel = parse("""
@kernel
def sometimes(A: f16[M, K], B: f16[N, K], flag: i32[1], R: f16[M, N], C: f16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        made = acc + cast(R[m, n], f32)
        if flag[0] > 0:
            C[m, n] = made
""").sometimes
    schedule = Schedule(tile=dict(m=128, n=64, k=64), mode="cooperative")
    kernel.compile(schedule=schedule).prove()
