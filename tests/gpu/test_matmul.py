"""`wsdsl.kernels.matmul` on torch tensors, against float64."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wsdsl
from tests.matmul_cases import Maker, Options, check, every_pair
from wsdsl.kernels import matmul
from wsdsl.runtime.arrays.views import FRAMEWORK_NAMES

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
DEVICE = "cuda"
BITS = {1: "int8", 2: "int16", 4: "int32"}
NAMES = {"float8_e4m3fn", "float8_e5m2", "bfloat16"}


def tensor(array: np.ndarray) -> Any:
    """The array's bits on the GPU."""
    name = array.dtype.name
    if name not in NAMES:
        return torch.from_numpy(array).to(DEVICE)
    bits = array.view(BITS[array.dtype.itemsize])
    return torch.from_numpy(bits).to(DEVICE).view(getattr(torch, name))


def error(got: Any, want: Any) -> float:
    assert got.shape == want.shape
    return float(((got.double() - want).norm() / want.norm()).detach())


def randn(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(*shape, device=DEVICE).to(dtype or torch.bfloat16)


@pytest.mark.parametrize("scale", [1, 5])
@pytest.mark.parametrize(
    "options", [*every_pair()], ids=lambda o: "-".join(v or "_" for v in o.values())
)
def test_every_option_with_every_other(options: Options, scale: int) -> None:
    made = Maker(scale, tensor, scale).call(options)
    got = matmul(*made.args, **made.options)
    assert got.dtype == getattr(torch, FRAMEWORK_NAMES[made.dtype])
    check(made, got.double().cpu().numpy(), options)


LAYOUTS: dict[str, Callable[[int, int], Any]] = {
    "rows": lambda m, n: randn(m, n),
    "columns": lambda m, n: randn(n, m).t(),
    "padded": lambda m, n: randn(m, n + 24)[:, 8 : n + 8],
    "odd": lambda m, n: randn(m, n + 3)[:, 1 : n + 1],
    "padded columns": lambda m, n: randn(n, m + 24).t()[8 : m + 8],
}


@pytest.mark.parametrize("a", LAYOUTS)
@pytest.mark.parametrize("b", LAYOUTS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (130, 201, 67), (257, 513, 1031), (640, 1, 200)])
def test_layouts(a: str, b: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    left, right = LAYOUTS[a](m, k), LAYOUTS[b](k, n)
    assert error(matmul(left, right), left.double() @ right.double()) < 2**-8


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32"])
@pytest.mark.parametrize("k", [500, 502, 501, 36, 3])
@pytest.mark.parametrize("sizes", [(300, 200), (24, 1000), (1000, 40)])
def test_rows_that_threads_copy(sizes: tuple[int, int], k: int, dtype: str) -> None:
    """In words of eight and four bytes, and by elements."""
    (m, n), kind = sizes, getattr(torch, dtype)
    a, b = randn(m, k, dtype=kind), randn(n, k, dtype=kind).t()
    options = dict(operand_dtype="tf32") if dtype == "float32" else {}
    assert error(matmul(a, b, **options), a.double() @ b.double()) < 2**-8


@pytest.mark.parametrize("n", [500, 502, 501, 36, 3])
def test_columns_that_threads_copy(n: int) -> None:
    a, b = randn(201, 300).t(), randn(201, n)
    assert error(matmul(a, b), a.double() @ b.double()) < 2**-8


@pytest.mark.parametrize("sizes", [(1000, 1000, 1000), (1500, 2504, 520), (2400, 5000, 1000)])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_lines_that_cross_those_of_l2(layout: str, sizes: tuple[int, int, int]) -> None:
    """By CTAs that load for each other."""
    m, n, k = sizes
    a, b = randn(m, k), (randn(k, n) if layout == "columns" else randn(n, k).t())
    schedule = matmul.plan(a, b).compile().schedule
    assert schedule.cluster and schedule.multicast is not False
    assert error(matmul(a, b), a.double() @ b.double()) < 2**-8


@pytest.mark.parametrize("more", ["", "bias", "accumulate", "columns"])
@pytest.mark.parametrize(
    "sizes", [(1517, 512, 3584), (4451, 1024, 1024), (318, 8192, 1024), (2393, 512, 14336)]
)
def test_columns_ride_wgmmas_m(sizes: tuple[int, int, int], more: str) -> None:
    """By one consumer in fours, in turns, by two in one wave, and in eights."""
    m, n, k = sizes
    a, b = randn(m, k), (randn(k, n) if more == "columns" else randn(n, k).t())
    want, options, given = a.double() @ b.double(), dict[str, Any](), wsdsl.Schedule(mma_m="n")
    if more == "bias":
        bias = randn(n)
        options = dict(bias=bias, activation="gelu")
        want = torch.nn.functional.gelu(want + bias.double())
    if more == "accumulate":
        out = randn(m, n)
        options, want = dict(out=out, accumulate=True), want + out.double()
    schedule = matmul.plan(a, b, **options).compile(given).schedule
    assert schedule is not None and schedule.mma_m == "n"
    assert error(matmul(a, b, schedule=given, **options), want) < 2**-7


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_nothing_is_written_outside(layout: str, accumulate: bool) -> None:
    whole = torch.full((400, 400), float("nan"), device=DEVICE).bfloat16()
    part = whole[3:203, 5:141] if layout == "rows" else whole.t()[3:203, 5:141]
    part.fill_(1.0)
    a, b = randn(200, 72), randn(72, 136)
    assert matmul(a, b, out=part, accumulate=accumulate) is part
    want = a.double() @ b.double() + (1 if accumulate else 0)
    assert error(part, want) < 2**-7
    assert int(whole.isfinite().sum()) == part.numel()


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 130, 72), (72, 40)), ((2, 3, 1, 72), (72, 40)), ((130, 72), (3, 72, 40)),
     ((2, 1, 130, 72), (3, 72, 40)), ((2, 1, 3, 40, 72), (1, 4, 3, 72, 40)), ((72,), (5, 72, 40)),
     ((5, 130, 72), (72,)), ((72,), (72,)), ((0, 72), (72, 40)), ((130, 0), (0, 40))],
)  # fmt: skip
def test_shapes_are_those_of_torch(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = randn(*a), randn(*b)
    want = torch.matmul(left.double(), right.double())
    got = matmul(left, right)
    assert got.shape == want.shape
    assert float((got.double() - want).norm()) <= 2**-8 * float(want.norm())


def test_expanded_batches() -> None:
    a, b = randn(130, 72).expand(5, 130, 72), randn(40, 72).t().expand(5, 72, 40)
    assert error(matmul(a, b), a.double() @ b.double()) < 2**-8


def test_a_linear_layer() -> None:
    layer = torch.nn.Linear(264, 136, device=DEVICE, dtype=torch.bfloat16)
    x = randn(2, 50, 264)
    with torch.no_grad():
        got = matmul(
            x, layer.weight.T, layer.bias, activation="gelu", residual=(r := randn(2, 50, 136))
        )
    want = torch.nn.functional.gelu(layer.double()(x.double())) + r.double()
    assert error(got, want) < 2**-8


def test_an_output_that_is_an_input() -> None:
    a, b, out = randn(64, 64), randn(64, 64), randn(64, 64)
    matmul(a, b, out=out)
    with pytest.raises(wsdsl.LaunchError, match="shares memory with b"):
        matmul(a, b, out=b)
    matmul(a, b, out=out)


def test_a_warm_call_costs_no_more_than_the_kernel_s() -> None:
    a, b, out = randn(64, 64), randn(64, 64), randn(64, 64)
    kernel = matmul.kernel(a, b.t())

    def seconds(call: Callable[[], Any]) -> float:
        start = time.perf_counter()
        for _ in range(50):
            call()
        spent = time.perf_counter() - start
        torch.cuda.synchronize()
        return spent / 50

    # In turn, and the quickest of each: others may be at work on the card and its host.
    calls = [lambda: matmul(a, b.t(), out=out), lambda: kernel(a, b, out)]
    ours, kernels = map(min, zip(*([seconds(call) for call in calls] for _ in range(40))))
    assert ours < 1.2 * kernels + 2e-6
