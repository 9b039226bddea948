"""Operators of torch from kernels, in the simulator."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wsdsl
from wsdsl import LaunchError, WsdslError, kernels

PAGE = Path(__file__).parents[1] / "docs" / "torch.md"
MADE = wsdsl.parse("""
@kernel
def squared(X: f32[M, N], s: f32, Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n] * X[m, n] * s

@kernel
def squared_backward(grad_Y: f32[M, N], X: f32[M, N], s: f32, grad_X: f32[M, N]):
    for m, n in tiles(M, N):
        grad_X[m, n] = 2.0 * s * grad_Y[m, n] * X[m, n]

@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc

@kernel
def add(X: f32[M, N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] += X[m, n]

@kernel
def moments(X: f32[M, N], total: f32[M], squares: f32[M]):
    for m in tiles(M):
        t, u = zeros(f32[m]), zeros(f32[m])
        for n in tiles(N):
            t += sum(X[m, n], over=n)
            u += sum(X[m, n] * X[m, n], over=n)
        total[m] = t
        squares[m] = u

@kernel
def scatter(rows: i32[M], X: f32[M, N], Y: f32[K, N]):
    for m, n in tiles(M, N):
        Y[rows[m], n] += X[m, n]

@kernel
def unpacked(X: u4[M, K], Y: f32[M, K]):
    for m, k in tiles(M, K):
        Y[m, k] = cast(X[m, k], f32)

@kernel
def widened(X: f32[M], Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m]
""")


@pytest.fixture
def torch(import_optional: Any) -> Any:
    return import_optional("torch")


def operators(torch: Any) -> dict[str, Any]:
    return {
        "squared": MADE.squared.torch_op("test::squared", MADE.squared_backward),
        "gemm": MADE.gemm.torch_op("test::gemm", gemm_backward),
        "add": MADE.add.torch_op("test::add"),
        "moments": MADE.moments.torch_op("test::moments", moments_backward),
        "scatter": MADE.scatter.torch_op("test::scatter"),
        "unpacked": MADE.unpacked.torch_op("test::unpacked"),
    }


def gemm_backward(A: Any, B: Any, grad_C: Any) -> Any:
    return grad_C.bfloat16() @ B, grad_C.bfloat16().T @ A


def moments_backward(grad_total: Any, X: Any, grad_squares: Any) -> Any:
    return grad_total[:, None] + 2 * grad_squares[:, None] * X


def arguments(torch: Any) -> dict[str, tuple[Any, ...]]:
    x = torch.randn(6, 16)
    rows = torch.tensor([0, 1, 1, 0, 2, 2], dtype=torch.int32)
    return {
        "squared": (x.clone().requires_grad_(), 2.0),
        "gemm": tuple(torch.randn(n, 16).bfloat16().requires_grad_() for n in (6, 8)),
        "add": (x, torch.ones(6, 16)),
        "moments": (x.clone().requires_grad_(),),
        "scatter": (rows, x, torch.ones(3, 16)),
        "unpacked": (torch.randint(0, 255, (6, 8), dtype=torch.uint8),),
    }


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("squared", "(Tensor X, float s) -> Tensor"),
        ("gemm", "(Tensor A, Tensor B) -> Tensor"),
        ("add", "(Tensor X, Tensor(a0!) Y) -> ()"),
        ("moments", "(Tensor X) -> (Tensor, Tensor)"),
        ("scatter", "(Tensor rows, Tensor X, Tensor(a0!) Y) -> ()"),
        ("unpacked", "(Tensor X) -> Tensor"),
    ],
)
def test_torch_op_passes_opcheck(torch: Any, name: str, schema: str) -> None:
    operator = operators(torch)[name]
    assert str(operator.default._schema) == f"test::{name}{schema}"
    found = torch.library.opcheck(operator, arguments(torch)[name])
    assert {*found.values()} == {"SUCCESS"} and len(found) == 4


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("squared", lambda x, s: x * x * s),
        ("gemm", lambda a, b: a.float() @ b.float().T),
        ("moments", lambda x: torch_sum(x.sum(1), (x * x).sum(1))),
    ],
)
def test_torch_op_has_gradients_of_torch(torch: Any, name: str, wanted: Any) -> None:
    given = arguments(torch)[name]
    result = operators(torch)[name](*given)
    torch_sum(*(result if isinstance(result, tuple) else (result,))).sum().backward()
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    expected = torch.autograd.grad(wanted(*given).sum(), tensors)
    for x, exact in zip(tensors, expected):
        torch.testing.assert_close(x.grad, exact, rtol=2e-2, atol=2e-2)


def torch_sum(*tensors: Any) -> Any:
    return sum(t * (i + 1.0) for i, t in enumerate(tensors))


def compiled(torch: Any, call: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch.compile(call, fullgraph=True, backend="aot_eager", **options)


def test_torch_op_compiles_once_for_dynamic_shapes(torch: Any, import_optional: Any) -> None:
    counters = import_optional("torch._dynamo.utils").counters
    operator = operators(torch)["squared"]
    run = compiled(torch, lambda x: operator(x + 1, 2.0) - 1, dynamic=True)
    for rows in (3, 4, 5):
        x = torch.randn(rows, 16, requires_grad=True)
        run(x).sum().backward()
        torch.testing.assert_close(x.grad, 4 * (x + 1))
    assert counters["stats"]["unique_graphs"] == 1


def test_torch_op_exports_with_dynamic_shapes(torch: Any) -> None:
    operator = operators(torch)["squared"]

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return operator(x, 2.0)

    x, rows = torch.randn(4, 16), torch.export.Dim("rows")
    exported = torch.export.export(Module(), (x,), dynamic_shapes=({0: rows},))
    assert "torch.ops.test.squared.default" in exported.graph_module.code
    more = torch.randn(7, 16)
    torch.testing.assert_close(exported.module()(more), 2 * more * more)


def test_torch_op_rejects_what_it_cannot_do(torch: Any) -> None:
    made = operators(torch)
    assert MADE.squared.torch_op("test::squared", MADE.squared_backward) is made["squared"]
    x = torch.randn(3, 4, 16)
    leaf = torch.randn(4, 16, requires_grad=True)
    for pattern, call in (
        ("no batching rule for vmap", lambda: torch.vmap(made["add"])(x, x.clone())),
        ("has no gradient.*\n.*backward=…", lambda: made["add"](leaf, x[0])),
        ("expected namespace::name", lambda: MADE.add.torch_op("add")),
        ("registered with another", lambda: MADE.gemm.torch_op("test::add")),
        ("writes Y in place", lambda: MADE.add.torch_op("test::more", MADE.add)),
        ("no input.* has dimension N", lambda: MADE.widened.torch_op("test::widened")),
        (
            "test::less has no `A`",
            lambda: MADE.squared.torch_op("test::less", MADE.gemm),
        ),
    ):
        with pytest.raises(WsdslError, match=pattern):
            call()
    with torch.no_grad():
        made["add"](leaf, x[0])
    partly = MADE.gemm.torch_op("test::partly", lambda A, grad_C: (A,))
    with pytest.raises(WsdslError, match="returns 1 gradients, expected 2: grad_A, grad_B"):
        partly(*arguments(torch)["gemm"]).sum().backward()
    fake = torch._subclasses.fake_tensor.FakeTensorMode()
    with fake, pytest.raises(LaunchError, match=r"f16 of rank 2, expected .*f32\[M, N\]"):
        made["squared"](torch.ones(4, 4, dtype=torch.float16), 1.0)
    with (
        fake,
        pytest.raises(RuntimeError, match=r"argument 2 \(B\): axis 1 has size 6, expected 4"),
    ):
        made["gemm"](torch.ones(4, 4).bfloat16(), torch.ones(4, 6).bfloat16())


def test_torch_op_honors_deterministic_algorithms(torch: Any) -> None:
    made, given = operators(torch), arguments(torch)
    torch.use_deterministic_algorithms(True)
    try:
        made["add"](*given["add"])
        with pytest.raises(RuntimeError, match=r"test::scatter does not have a deterministic"):
            made["scatter"](*given["scatter"])
    finally:
        torch.use_deterministic_algorithms(False)


def layers(torch: Any) -> dict[str, tuple[Any, Any]]:
    """Modules of ready kernels, and of torch."""
    f = torch.nn.functional
    return {
        "matmul": (
            lambda x, w, b: kernels.matmul(x, w.T, b, "gelu", x[..., :8], scales=(2.0, None)),
            lambda x, w, b: f.gelu(2.0 * (x @ w.T) + b) + x[..., :8],
        ),
        "rmsnorm": (
            lambda x, w, b: kernels.matmul(kernels.rmsnorm(x, w[0]), w.T, out_dtype="f32") + b,
            lambda x, w, b: f.rms_norm(x, x.shape[-1:], w[0], 1e-6) @ w.T + b,
        ),
        "layernorm": (
            lambda x, w, b: kernels.layernorm(x, w[0], w[1], out_dtype=torch.float32)[..., :8] * b,
            lambda x, w, b: f.layer_norm(x, x.shape[-1:], w[0], w[1])[..., :8] * b,
        ),
        "softmax": (
            lambda x, w, b: kernels.softmax(x)[..., :8] + kernels.log_softmax(b, "f32"),
            lambda x, w, b: x.softmax(-1)[..., :8] + b.log_softmax(-1),
        ),
        "cross_entropy": (
            lambda x, w, b: kernels.cross_entropy(x, torch.tensor([3, -100, 5])) * b,
            lambda x, w, b: f.cross_entropy(x, torch.tensor([3, -100, 5])) * b,
        ),
    }


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("name", ["matmul", "rmsnorm", "layernorm", "softmax", "cross_entropy"])
def test_ready_kernels_have_gradients(torch: Any, name: str, mode: str) -> None:
    ours, theirs = layers(torch)[name]
    shapes = (3, 16), (2 if name == "layernorm" else 8, 16), (8,)
    given = [torch.randn(shape).bfloat16().requires_grad_() for shape in shapes]
    wide = [x.detach().double().requires_grad_() for x in given]
    result = (ours if mode == "eager" else compiled(torch, ours))(*given)
    exact = theirs(*wide)
    weight = torch.randn(exact.shape)
    (result * weight).sum().backward()
    (exact * weight).sum().backward()
    pairs = [(result, exact), *((x.grad, y.grad) for x, y in zip(given, wide))]
    for found, wanted in pairs:
        if wanted is not None:
            assert (found - wanted).abs().max() <= 2e-2 * wanted.abs().max()


def test_ready_kernels_compile_once_for_dynamic_shapes(torch: Any, import_optional: Any) -> None:
    counters = import_optional("torch._dynamo.utils").counters
    weight = torch.randn(8, 16).bfloat16()
    run = compiled(torch, lambda x: kernels.softmax(kernels.matmul(x, weight.T)), dynamic=True)
    for rows in (3, 4, 5):
        x = torch.randn(rows, 16).bfloat16()
        assert torch.equal(run(x), kernels.softmax(kernels.matmul(x, weight.T)))
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


def test_matmul_follows_autocast(torch: Any) -> None:
    a, b = torch.randn(4, 16, requires_grad=True), torch.randn(16, 8)
    for run in (kernels.matmul, compiled(torch, lambda a, b: kernels.matmul(a, b))):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, wanted = run(a, b), torch.mm(a, b)
            assert run(a.detach(), b).dtype == found.dtype == wanted.dtype == torch.bfloat16
        torch.testing.assert_close(found, wanted)
        (grad,) = torch.autograd.grad(found.float().sum(), a)
        torch.testing.assert_close(grad, b.sum(1).expand(4, 16), rtol=2e-2, atol=5e-2)


def test_page_has_blocks_that_run(torch: Any) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE.read_text())
    for i, block in enumerate(blocks):
        exec(compile(block, f"torch.md:{i}", "exec"), names)
    assert len(blocks) >= 4
