"""Operands that are loaded while the kernel in front still runs: all others are waited for."""

import dataclasses
from typing import Any

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.kernels import matmul

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

FEW = {
    "one consumer": Schedule(tile=dict(m=64, n=224), consumers=1),
    "two consumers": Schedule(tile=dict(m=128, n=128), consumers=2, mode="cooperative"),
    "pingpong": Schedule(tile=dict(m=64, n=64), mode="pingpong"),
    "columns": Schedule(tile=dict(m=16, n=128), mma_m="n", consumers=2, mode="cooperative"),
    "cluster": Schedule(tile=dict(m=64, n=128), consumers=1, cluster=dict(n=2)),
    "split": Schedule(tile=dict(m=64, n=128), consumers=1, scheduler="split_k", splits=2),
    "chosen": Schedule(),
}
REPETITIONS = 200


def early(schedule: Schedule, *names: str) -> Schedule:
    return dataclasses.replace(schedule, pdl_independent=names)


def randn(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda").bfloat16()


def close(got: Any, want: Any, allowed: float = 2.0**-7) -> bool:
    return bool((got.double() - want).norm() <= allowed * want.norm())


@pytest.mark.parametrize("constant", [("B",), ("A",), ("A", "B")], ids=str)
@pytest.mark.parametrize("sizes", [(1, 4096, 1024), (16, 4104, 1000), (200, 136, 264), (70, 24, 0)])
@pytest.mark.parametrize("name", FEW)
def test_right(name: str, sizes: tuple[int, int, int], constant: tuple[str, ...]) -> None:
    m, n, k = sizes
    a, b = randn(m, k), randn(n, k)
    got = CASES["gemm"].kernel(a, b, schedule=early(FEW[name], *constant))
    assert close(got, a.double() @ b.double().t())


@pytest.mark.parametrize("odd", ["a", "b", "both"])
def test_copied_by_threads(odd: str) -> None:
    a = randn(16, 1003)[:, :1000] if odd != "b" else randn(16, 1000)
    b = randn(512, 1003)[:, :1000] if odd != "a" else randn(512, 1000)
    got = matmul(a, b.t(), constant=("b",))
    assert close(got, a.double() @ b.double().t())


@pytest.mark.parametrize("rows", [1, 16, 64])
@pytest.mark.parametrize("name", FEW)
def test_what_the_kernel_in_front_writes_is_waited_for(name: str, rows: int) -> None:
    """y = (x @ v) @ w, with another x each time: old values of the first product would show."""
    inner, outer, depth = 2048, 4096, 1024
    v, w = randn(depth, inner) / depth**0.5, randn(inner, outer) / inner**0.5
    xs = [randn(rows, depth) for _ in range(REPETITIONS)]
    hidden = torch.full((rows, inner), float("nan"), device="cuda").bfloat16()
    ys = [torch.empty(rows, outer, device="cuda").bfloat16() for _ in range(REPETITIONS)]
    schedule = FEW[name]
    first = [matmul.plan(x, v, out=hidden, constant=("b",)).prepare(schedule) for x in xs]
    second = [matmul.plan(hidden, w, out=y, constant=("b",)).prepare(schedule) for y in ys]
    torch.cuda.synchronize()
    for one, other in zip(first, second, strict=True):
        one()
        other()
    torch.cuda.synchronize()
    for x, y in zip(xs, ys, strict=True):
        h = (x.double() @ v.double()).bfloat16().double()
        assert close(y, h @ w.double())


def test_chains_in_which_the_weights_are_written_two_kernels_before() -> None:
    """The promise is about one kernel: what the one before it writes is there."""
    rows, size = 16, 2048
    x, other = randn(rows, size), randn(size, size) / size**0.5
    out = torch.empty(rows, size, device="cuda").bfloat16()
    made = torch.empty(size, size, device="cuda").bfloat16()
    results = torch.empty(REPETITIONS, rows, size, device="cuda").bfloat16()
    left = [randn(size, 64) for _ in range(REPETITIONS)]
    right = randn(64, size)
    writes = [matmul.plan(a, right, out=made).prepare() for a in left]
    between = matmul.plan(x, other, out=out, constant=("b",)).prepare()
    reads = [matmul.plan(x, made, out=y, constant=("b",)).prepare() for y in results]
    torch.cuda.synchronize()
    for write, read in zip(writes, reads, strict=True):
        write()
        between()
        read()
    torch.cuda.synchronize()
    for a, y in zip(left, results, strict=True):
        weights = (a.double() @ right.double()).bfloat16().double()
        assert close(y, x.double() @ weights)


def test_in_a_graph() -> None:
    rows, size = 8, 4096
    x, v, w = randn(rows, size), randn(size, size) / size**0.5, randn(size, size) / size**0.5
    hidden, y = (torch.zeros(rows, size, device="cuda").bfloat16() for _ in range(2))
    calls = [
        matmul.plan(x, v, out=hidden, constant=("b",)),
        matmul.plan(hidden, w, out=y, constant=("b",)),
    ]
    for call in calls:
        call.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            for call in calls:
                call.run()
    for _ in range(REPETITIONS // 10):
        x.copy_(randn(rows, size))
        graph.replay()
        torch.cuda.synchronize()
        h = (x.double() @ v.double()).bfloat16().double()
        assert close(y, h @ w.double())
