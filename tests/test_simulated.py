"""The scheduled kernels, run on the CPU barrier by barrier, compute what NumPy computes."""

from itertools import product

import pytest

from tests.kernels import CASES, check, expected, inputs, simulated
from tests.schedules import ORDERS, SIZES_OF_TILES, WIDTHS
from wsdsl import Schedule


def simulate(name: str, seed: int, schedule: Schedule | None = None, **sizes: int) -> None:
    simulated(CASES[name], schedule, seed, **sizes)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_odd_sizes(name: str, seed: int) -> None:
    simulate(name, seed)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_sizes_of_one(name: str) -> None:
    """Rows of one element are no multiple of 16 bytes: threads copy them."""
    simulate(name, 0, **{d: 16 if d == "D" else 1 for d in CASES[name].sizes})


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",
    ["gemm", "mn_major", "two_products", "nested", "batched", "bytes_out", "bytes_in", "quantised"],
)
def test_strides_that_tma_cannot_take(name: str) -> None:
    simulate(name, 0, **{d: s | 1 for d, s in CASES[name].sizes.items()})


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",
    [
        "gemm", "epilogue", "nested", "two_loops", "two_products", "product_tf32", "product_f8e4m3",
        "product_i8", "block_scaled",
    ],
)  # fmt: skip
def test_no_contraction_gives_zeros(name: str) -> None:
    simulate(name, 0, **{d: 0 for d in CASES[name].sizes if d in "KL"})


@pytest.mark.parametrize("name", CASES)
def test_reference(name: str) -> None:
    case = CASES[name]
    arrays = inputs(case)
    wanted = expected(case, arrays)
    case.kernel.reference(*arrays.values())
    check(case, arrays, wanted)


OF_TYPES = [
    ("product_f8e4m3", Schedule(mma_promotion_interval=0)),
    ("product_f8e4m3", Schedule(tile=dict(m=64, n=16, k=32), consumers=1, stages=2)),
    ("product_f8e4m3", Schedule(tile=dict(m=128, n=48, k=96))),
    ("product_f8e4m3", Schedule(tile=dict(m=256, n=64, k=256), mma_promotion_interval=256)),
    ("product_f8e4m3", Schedule(tile=dict(m=64, n=48, k=256), consumers=1)),
    ("product_f8e4m3", Schedule(tile=dict(m=64, n=64, k=256), mode="pingpong", stages=2)),
    ("product_f8e4m3", Schedule(tile=dict(m=64, n=128, k=256), consumer_split="n")),
    ("product_f8e4m3", Schedule(tile=dict(n=64, k=256), cluster=dict(m=2))),
    ("product_f8e4m3", Schedule(tile=dict(m=16, n=64, k=256), mma_m="n", consumers=1)),
    ("product_tf32", Schedule(tile=dict(m=64, n=32, k=8), consumers=1)),
    ("product_tf32", Schedule(tile=dict(m=64, n=32, k=24), consumers=1)),
    ("product_tf32", Schedule(tile=dict(n=64, k=256), stages=1)),
    ("product_i8", Schedule(tile=dict(n=48, k=64))),
    ("product_u8_i8", Schedule(tile=dict(n=64, k=256))),
    ("block_scaled", Schedule(tile=dict(m=64, n=32, k=32), consumers=1)),
    ("block_scaled", Schedule(tile=dict(n=208, k=64))),
    ("block_scaled", Schedule(tile=dict(m=192, n=64), consumers=3, stages=1)),
    ("scaled_rows", Schedule(tile=dict(m=256, n=48, k=32))),
]
WAYS = [
    *product(("gemm", "epilogue", "batched"), ORDERS),
    *product(("gemm", "mn_major"), SIZES_OF_TILES),
    *OF_TYPES,
    *WIDTHS,
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "schedule"), WAYS, ids=repr)
def test_schedules(name: str, schedule: Schedule) -> None:
    scaled = name in ("block_scaled", "scaled_rows")
    simulate(name, 1, schedule, **({} if scaled else dict(M=200, N=264, K=272)))


CUT = [
    Schedule(scheduler="stream_k"),
    Schedule(scheduler="split_k", splits=3),
    Schedule(scheduler="split_k", splits=2, reduction="parallel"),
    Schedule(cluster=dict(k=2)),
    Schedule(cluster=dict(k=4), scheduler="grid"),
    Schedule(cluster=dict(k=2, m=2), multicast=False),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("schedule", CUT, ids=repr)
@pytest.mark.parametrize("name", CASES)
def test_sums_in_pieces(name: str, schedule: Schedule, refusals) -> None:
    """Refused, or lowered; and of each case two ways, of each way every third case, right and
    proved.
    """
    case = CASES[name]
    together = schedule.reduction == "parallel"
    few = dict(M=64, N=16, B=1, E=1) if together else {}
    sizes = case.sizes | {d: size for d, size in few.items() if d in case.sizes}
    with refusals():
        compiled = case.kernel._compile(schedule, sizes, ())
    if (list(CASES).index(name) + CUT.index(schedule)) % 3 == 0:
        compiled.certificate  # noqa: B018
        simulate(name, 5, schedule, **sizes)
