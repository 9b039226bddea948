"""The scheduled kernels, run on the CPU barrier by barrier, compute what NumPy computes."""

import pytest

import wsdsl
from tests.kernels import CASES, check, expected, inputs

ONES = {"M": 1, "N": 1, "K": 1, "L": 1, "E": 1, "G": 1, "D": 16, "T": 1, "NB": 1}


def simulate(name: str, seed: int, schedule: wsdsl.Schedule | None = None, **sizes: int) -> None:
    case = CASES[name]
    arrays = inputs(case, seed, **sizes)
    wanted = expected(case, arrays)
    case.kernel.simulate(*arrays.values(), schedule=schedule, seed=seed)
    check(case, arrays, wanted)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_odd_sizes(name: str, seed: int) -> None:
    simulate(name, seed)


@pytest.mark.parametrize("name", CASES)
def test_sizes_of_one(name: str) -> None:
    """Rows of one element are no multiple of 16 bytes: threads copy them."""
    simulate(name, 0, **{d: ONES[d] for d in CASES[name].sizes})


@pytest.mark.parametrize(
    "name",
    ["gemm", "mn_major", "two_products", "nested", "batched", "bytes_out", "bytes_in", "quantised"],
)
def test_strides_that_tma_cannot_take(name: str) -> None:
    simulate(name, 0, **{d: s | 1 for d, s in CASES[name].sizes.items()})


@pytest.mark.parametrize("name", ["gemm", "epilogue", "nested", "two_loops", "two_products"])
def test_no_contraction_gives_zeros(name: str) -> None:
    sizes = {"K": 0} | ({"L": 0} if name == "two_loops" else {})
    simulate(name, 0, **sizes)


@pytest.mark.parametrize("name", CASES)
def test_reference(name: str) -> None:
    case = CASES[name]
    arrays = inputs(case)
    wanted = expected(case, arrays)
    case.kernel.reference(*arrays.values())
    check(case, arrays, wanted)


@pytest.mark.parametrize(
    "schedule",
    [
        wsdsl.Schedule(tile=dict(m=64, n=16, k=16), consumers=1, stages=1),
        wsdsl.Schedule(tile=dict(m=64, n=48, k=32), consumers=1, stages=3),
        wsdsl.Schedule(tile=dict(m=256, n=80, k=128), stages=2),
        wsdsl.Schedule(tile=dict(m=192, n=32), consumers=3),
        wsdsl.Schedule(tile=dict(n=208), swizzle=1),
        wsdsl.Schedule(tile=dict(n=128), scheduler="grid", swizzle=2),
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", ["gemm", "mn_major"])
def test_schedules(name: str, schedule: wsdsl.Schedule) -> None:
    simulate(name, 1, schedule)
