"""Operands that TMA can not take, copied to longer rows in front of a launch."""

import threading
from typing import Any

import pytest

from tests.kernels import CASES
from wsdsl.kernels import matmul
from wsdsl.lowering.heuristics import padding

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
K = 1001


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is possible, so that small operands will do."""
    from wsdsl.lowering.product_operands import multiplied_tensors

    def all_of(kernel: Any, sizes: Any, names: Any, singly: Any) -> tuple[str, ...]:
        able = {tensor.name for tensor in multiplied_tensors(kernel)} & {*names}
        return tuple(name for name in kernel.unaligned if name in able)

    monkeypatch.setattr(padding, "padded_operands", all_of)


def numbers(*shape: int) -> Any:
    """Whose products are exact."""
    return torch.randint(-3, 4, shape, device="cuda").bfloat16()


def product(a: Any, b: Any) -> Any:
    return (a.double() @ b.double()).bfloat16()


@pytest.mark.parametrize(("m", "n"), [(1, 40), (130, 77), (300, 520)])
@pytest.mark.parametrize("rows", ["first", "second", "both", "slices"])
def test_rows(rows: str, m: int, n: int) -> None:
    a, b = numbers(m, K), numbers(K, n)
    if rows != "second":
        b = b.T.contiguous().T if rows == "both" else numbers(K, 8 * n)[:, :n]
    if rows == "second":
        a, b = numbers(m, 1000), numbers(1000, n)[:, : n - 1]
    if rows == "slices":
        a, b = numbers(m + 1, K + 5)[1:, 5:], numbers(n, K + 2).T[2:]
    assert torch.equal(matmul(a, b), product(a, b))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8", "float32", "float16"])
def test_types(dtype: str) -> None:
    a, b = (numbers(size, K).to(getattr(torch, dtype)) for size in (130, 72))
    options = dict(operand_dtype="tf32") if dtype == "float32" else dict(out_dtype="f32")
    assert torch.equal(matmul(a, b.T, **options).double(), a.double() @ b.double().T)


def test_heads_and_broadcasts() -> None:
    kernel = CASES["batched"].kernel
    heads, b = numbers(200, 3, K + 1)[:, :, 1:].transpose(0, 1), numbers(72, K)
    want = product(heads, b.T)
    assert torch.equal(kernel(heads, b.expand(3, 72, K)), want)


def test_changed_between_launches() -> None:
    a, b, out = numbers(130, K), numbers(72, K), torch.empty(130, 72, device="cuda").bfloat16()
    call = matmul.plan(a, b.T, out=out, constant=("b",)).prepare()
    for _ in range(50):
        a.copy_(numbers(130, K))
        b.copy_(numbers(72, K))
        call()
        assert torch.equal(out, product(a, b.T))


def test_in_a_graph() -> None:
    """Which has memory of its own, beside launches on the same and on another stream."""
    inside, outside = ([numbers(130, K), numbers(72, K)] for _ in range(2))
    out = torch.zeros(130, 72, device="cuda").bfloat16()
    matmul(inside[0], inside[1].T, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        matmul(inside[0], inside[1].T, out=out)
    side = torch.cuda.Stream()
    for _ in range(50):
        for x in (*inside, *outside):
            x.copy_(numbers(*x.shape))
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            graph.replay()
        found = matmul(outside[0], outside[1].T)
        torch.cuda.synchronize()
        assert torch.equal(out, product(inside[0], inside[1].T))
        assert torch.equal(found, product(outside[0], outside[1].T))


def test_threads_and_streams() -> None:
    problems = [(numbers(130, K), numbers(72, K)) for _ in range(6)]
    wanted = [product(a, b.T) for a, b in problems]
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    wrong: list[int] = []

    def run(i: int) -> None:
        a, b = problems[i]
        with torch.cuda.stream(streams[i % 3]):
            found = [torch.equal(matmul(a, b.T), wanted[i]) for _ in range(100)]
        wrong.extend(i for right in found if not right)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_graphs_that_come_and_go() -> None:
    """The card's memory for graphs serves one after the other."""
    a, b, out = numbers(8, 1001), numbers(40_000, 1001), torch.zeros(8, 40_000, device="cuda")
    out = out.bfloat16()
    matmul(a, b.T, out=out)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(20):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            matmul(a, b.T, out=out)
        graph.replay()
        torch.cuda.synchronize()
        del graph
    assert torch.equal(out, product(a, b.T))
    assert before - torch.cuda.mem_get_info()[0] < 5 * b.nbytes
