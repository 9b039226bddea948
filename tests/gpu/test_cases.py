"""Every kernel of the shape, on the GPU: right, all written, nothing written outside."""

from typing import Any

import numpy as np
import pytest

import wsdsl
from tests.gpu.arrays import BITS, to_device, to_host
from tests.kernels import CASES, Case, check, expected, inputs
from tests.schedules import ORDERS, SIZES_OF_TILES, WIDTHS

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def run(
    case: Case, seed: int, schedule: wsdsl.Schedule | None = None, gap: int = 0, **sizes: int
) -> None:
    """`gap`: bytes between the rows of what is only written."""
    arrays = inputs(case, seed, **sizes)
    wanted = expected(case, arrays)
    given: list[Any] = []
    buffers: dict[str, tuple[Any, Any]] = {}
    for p in case.kernel.tile_ir.params:
        held = arrays[p.name]
        if isinstance(held, np.ndarray):
            only_written = p.name in case.kernel.access.only_written and held.ndim > 1
            buffers[p.name] = to_device(held, p.type.dtype.name, gap if only_written else 0)
            held = buffers[p.name][0]
        given.append(held)
    before = {name: buffer.clone() for name, (_, buffer) in buffers.items()}
    case.kernel(*given, schedule=schedule)
    torch.cuda.synchronize()
    back = {name: to_host(inner, arrays[name]) for name, (inner, _) in buffers.items()}
    check(case, {**arrays, **back}, wanted)
    for name, (inner, buffer) in buffers.items():
        bits = getattr(torch, BITS[buffer.element_size()])
        same = buffer.view(bits) == before[name].view(bits)
        outside = same.clone()
        outside.as_strided(inner.shape, inner.stride(), inner.storage_offset()).fill_(True)
        assert bool(outside.all()), f"{name}: written outside"
        if name not in wanted:
            assert bool(same.all()), f"{name}: an input was written"


@pytest.mark.parametrize("name", CASES)
def test_odd_sizes(name: str) -> None:
    run(CASES[name], 0)


@pytest.mark.parametrize("name", CASES)
def test_larger(name: str) -> None:
    whole = CASES[name].kernel.whole_dims
    sizes = {d: s for d, s in CASES[name].sizes.items() if d in ("E", "G", "T", "D", *whole)}
    large = {"M": 1032, "N": 776, "K": 520, "L": 328}
    run(CASES[name], 1, **{d: sizes.get(d, large.get(d, 64)) for d in CASES[name].sizes})


@pytest.mark.parametrize("name", CASES)
def test_sizes_of_one(name: str) -> None:
    run(CASES[name], 2, **{d: 16 if d == "D" else 1 for d in CASES[name].sizes})


@pytest.mark.parametrize("name", CASES)
def test_strides_that_tma_cannot_take(name: str) -> None:
    run(CASES[name], 3, **{d: s | 1 for d, s in CASES[name].sizes.items()})


@pytest.mark.parametrize("gap", [1, 4, 8])
@pytest.mark.parametrize(
    "name",
    [
        "gemm", "epilogue", "mn_major", "column_major_b", "two_scales", "bytes_out", "batched",
        "product_i8", "product_tf32", "row_softmax",
    ],
)  # fmt: skip
def test_outputs_that_tma_cannot_take(name: str, gap: int) -> None:
    """By elements, and by words of four and eight bytes."""
    sizes = {d: {"M": 328, "N": 296, "K": 200}.get(d, s) for d, s in CASES[name].sizes.items()}
    run(CASES[name], 5, gap=gap, **sizes)


@pytest.mark.parametrize("gap", [2, 4])
@pytest.mark.parametrize(
    "schedule",
    [
        wsdsl.Schedule(tile=dict(m=64, n=40), consumers=1),
        wsdsl.Schedule(tile=dict(m=128, n=168), mode="pingpong"),
        wsdsl.Schedule(tile=dict(m=192, n=32), consumers=3),
        wsdsl.Schedule(tile=dict(m=256, n=128), mma_m="n", consumer_split="m"),
        wsdsl.Schedule(tile=dict(m=200, n=64), mma_m="n", consumers=1),
        wsdsl.Schedule(tile=dict(n=128), scheduler="stream_k"),
        wsdsl.Schedule(tile=dict(m=128, n=128), cluster=dict(m=2)),
    ],
    ids=repr,
)
def test_schedules_of_outputs_that_tma_cannot_take(schedule: wsdsl.Schedule, gap: int) -> None:
    run(CASES["gemm"], 6, schedule, gap=gap, M=712, N=488, K=520)


@pytest.mark.parametrize(
    "name",
    [
        "gemm", "epilogue", "nested", "two_products", "two_loops", "product_tf32", "product_f8e4m3",
        "product_i8", "block_scaled",
    ],
)  # fmt: skip
def test_no_contraction_gives_zeros(name: str) -> None:
    run(CASES[name], 4, **({"K": 0} | ({"L": 0} if name == "two_loops" else {})))


@pytest.mark.parametrize("schedule", SIZES_OF_TILES, ids=repr)
@pytest.mark.parametrize("name", ["gemm", "mn_major"])
def test_schedules(name: str, schedule: wsdsl.Schedule) -> None:
    run(CASES[name], 5, schedule, M=520, N=424, K=328)


@pytest.mark.parametrize("schedule", ORDERS, ids=repr)
@pytest.mark.parametrize("name", ["gemm", "mn_major", "batched", "two_products", "product_f8e4m3"])
@pytest.mark.parametrize(
    "sizes", [dict(M=520, N=424, K=328), dict(M=2000, N=1900, K=64), dict(K=0)]
)
def test_orders(name: str, schedule: wsdsl.Schedule, sizes: dict[str, int]) -> None:
    run(CASES[name], 8, schedule, **sizes)


FP8 = [
    wsdsl.Schedule(tile=dict(m=64, n=16, k=32), consumers=1, stages=2),
    wsdsl.Schedule(tile=dict(m=128, n=48, k=64)),
    wsdsl.Schedule(tile=dict(m=128, n=208, k=96), registers=dict(load=40, compute=232)),
    wsdsl.Schedule(tile=dict(m=256, n=64, k=256), mma_promotion_interval=256),
    wsdsl.Schedule(tile=dict(m=192, n=96), consumers=3),
    wsdsl.Schedule(tile=dict(n=256), mma_promotion_interval=0),
]


@pytest.mark.parametrize("schedule", FP8, ids=repr)
def test_schedules_of_fp8(schedule: wsdsl.Schedule) -> None:
    run(CASES["product_f8e5m2_f8e4m3"], 6, schedule, M=520, N=424, K=1000)


@pytest.mark.parametrize("name", ["product_tf32", "product_i8", "product_u8_i8"])
@pytest.mark.parametrize("k", [32, 64, 96, 128])
def test_depths(name: str, k: int) -> None:
    run(CASES[name], 7, wsdsl.Schedule(tile=dict(m=128, n=48, k=k), stages=2), M=264, K=1000)


def test_fp8_is_promoted() -> None:
    """Positive data: what the tensor cores drop of a sum is a bias."""
    torch.manual_seed(0)
    a, b = (torch.rand(256, 16384, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    want = a.double() @ b.double().t()

    def error(schedule: wsdsl.Schedule | None) -> float:
        got = CASES["product_f8e4m3"].kernel(a, b, out(), schedule=schedule).double()
        return float((got - want).norm() / want.norm())

    def out() -> Any:
        return torch.empty(256, 256, dtype=torch.bfloat16, device="cuda")

    assert error(None) <= 0.003
    assert error(wsdsl.Schedule(mma_promotion_interval=0)) > 0.01


@pytest.mark.parametrize("n", range(16, 257, 16))
@pytest.mark.parametrize("name", ["gemm", "mn_major", "column_major_a", "column_major_b"])
def test_every_width(name: str, n: int) -> None:
    run(CASES[name], 6, wsdsl.Schedule(tile=dict(n=n)), M=264, N=424, K=200)


@pytest.mark.parametrize("n", range(8, 257, 16))
@pytest.mark.parametrize("name", ["gemm", "mn_major", "column_major_a"])
def test_every_width_between(name: str, n: int) -> None:
    run(CASES[name], 6, wsdsl.Schedule(tile=dict(n=n)), M=264, N=424, K=200)


@pytest.mark.parametrize(("name", "schedule"), WIDTHS, ids=repr)
def test_widths(name: str, schedule: wsdsl.Schedule) -> None:
    scaled = name in ("block_scaled", "scaled_rows")
    run(CASES[name], 6, schedule, **({} if scaled else dict(M=520, N=424, K=720)))


@pytest.mark.parametrize("n", [16, 32, 48, 96])
@pytest.mark.parametrize("name", ["bytes_out", "reduce_narrow", "two_scales"])
def test_widths_of_stores(name: str, n: int) -> None:
    sizes = {"E": 2} if name == "reduce_narrow" else {}
    run(CASES[name], 7, wsdsl.Schedule(tile=dict(n=n)), M=272, N=208, K=72, **sizes)


def test_row_strides_of_a_view() -> None:
    """Rows of a larger tensor: any stride that is a multiple of 16 bytes."""
    wide = torch.randn(300, 1000, device="cuda").bfloat16()
    a, b = wide[:200, 8:144], wide[100:260, 400:536]
    out = torch.full((200, 320), float("nan"), device="cuda").bfloat16()
    CASES["gemm"].kernel(a, b, out[:, 16:176])
    want = a.double() @ b.double().t()
    got = out[:, 16:176].double()
    assert ((got - want).norm() / want.norm()).item() < 2**-8
    assert bool(out[:, :16].isnan().all() and out[:, 176:].isnan().all())


def test_same_bits_every_time() -> None:
    a = torch.randn(1024, 1024, device="cuda").bfloat16()
    kernel = CASES["gemm"].kernel
    first = kernel(a, a).clone()
    for _ in range(30):
        assert torch.equal(kernel(a, a).view(torch.int16), first.view(torch.int16))
