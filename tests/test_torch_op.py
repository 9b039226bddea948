"""Operators of torch from kernels, in the simulator."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import wsdsl
from wsdsl import WsdslError, kernels

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


SCHEMAS = (
    "squared(Tensor X, float s) -> Tensor",
    "gemm(Tensor A, Tensor B) -> Tensor",
    "add(Tensor X, Tensor(a0!) Y) -> ()",
    "moments(Tensor X) -> (Tensor, Tensor)",
    "scatter(Tensor rows, Tensor X, Tensor(a0!) Y) -> ()",
    "unpacked(Tensor X) -> Tensor",
)


@pytest.fixture
def torch(import_optional: Any) -> Any:
    module = import_optional("torch")
    module.manual_seed(0)
    return module


@cache
def operators() -> dict[str, Any]:
    back: dict[str, Any] = {
        "squared": MADE.squared_backward,
        "gemm": lambda A, B, grad_C: (grad_C.bfloat16() @ B, grad_C.bfloat16().T @ A),
        "moments": lambda grad_total, X, grad_squares: (grad_total + 2 * grad_squares * X.T).T,
    }
    names = [schema.partition("(")[0] for schema in SCHEMAS]
    return {n: getattr(MADE, n).torch_op(f"test::{n}", back.get(n)) for n in names}


def arguments(torch: Any) -> dict[str, tuple[Any, ...]]:
    x = torch.randn(6, 16)
    return {
        "squared": (x.clone().requires_grad_(), 2.0),
        "gemm": tuple(torch.randn(n, 16).bfloat16().requires_grad_() for n in (6, 8)),
        "add": (x, torch.ones(6, 16)),
        "moments": (x.clone().requires_grad_(),),
        "scatter": (torch.arange(6, dtype=torch.int32) // 2, x, torch.ones(3, 16)),
        "unpacked": (torch.randint(0, 255, (6, 8), dtype=torch.uint8),),
    }


@pytest.mark.parametrize("schema", SCHEMAS)
def test_torch_op_passes_opcheck(torch: Any, schema: str) -> None:
    name = schema.partition("(")[0]
    operator = operators()[name]
    assert str(operator.default._schema) == f"test::{schema}"
    found = torch.library.opcheck(operator, arguments(torch)[name])
    assert {*found.values()} == {"SUCCESS"} and len(found) == 4


def test_torch_op_has_gradients_of_torch(torch: Any) -> None:
    wanted: dict[str, Callable[..., Any]] = {
        "squared": lambda x, s: x * x * s,
        "gemm": lambda a, b: a.float() @ b.float().T,
        "moments": lambda x: (x.sum(1), (x * x).sum(1)),
    }
    for name, exact in wanted.items():
        given = arguments(torch)[name]
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        ours, theirs = (
            torch.autograd.grad(sum(t.sum() for t in found), tensors)
            for found in (operators()[name](*given), exact(*given))
        )
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def compiled(torch: Any, call: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch.compile(call, fullgraph=True, backend="aot_eager", **options)


def test_operators_compile_once_for_dynamic_shapes(torch: Any, import_optional: Any) -> None:
    counters, square = import_optional("torch._dynamo.utils").counters, operators()["squared"]
    weight = torch.randn(8, 16).bfloat16()
    packed, codes = kernels.lossless.pack(weight), kernels.quantized.quantize(weight, "i8")

    def layer(x: Any) -> Any:
        with torch.no_grad():
            more = kernels.lossless.matmul(x, packed) + kernels.quantized.matmul(x, codes)
        return square(kernels.softmax(kernels.matmul(x, weight.T, out_dtype="f32")), 2.0) + more

    run = compiled(torch, layer, dynamic=True)
    for rows in (3, 4, 5):
        ours, theirs = (torch.ones(rows, 16).bfloat16().requires_grad_() for _ in range(2))
        run(ours)[:, 0].sum().backward()
        layer(theirs)[:, 0].sum().backward()
        assert torch.equal(ours.grad, theirs.grad)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


@pytest.mark.parametrize("strict", [False, True])
def test_operators_export_with_dynamic_shapes(torch: Any, strict: bool) -> None:
    square = operators()["squared"]

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return square(kernels.rmsnorm(x), 2.0)

    x, shapes = torch.randn(4, 16), ({0: torch.export.Dim("rows")},)
    exported = torch.export.export(Module(), (x,), dynamic_shapes=shapes, strict=strict)
    more = torch.randn(7, 16)
    torch.testing.assert_close(exported.module()(more), 2 * kernels.rmsnorm(more) ** 2)
    assert "torch.ops.test.squared.default" in exported.graph_module.code


def test_torch_op_rejects_what_it_cannot_do(torch: Any) -> None:
    made, x = operators(), torch.randn(3, 4, 16)
    assert MADE.squared.torch_op("test::squared", MADE.squared_backward) is made["squared"]
    leaf = torch.randn(4, 16, requires_grad=True)
    partly = MADE.gemm.torch_op("test::partly", lambda A, grad_C: (A,))
    for pattern, call in (
        ("no batching rule for vmap", lambda: torch.vmap(made["add"])(x, x.clone())),
        ("has no gradient.*\n.*backward=…", lambda: made["add"](leaf, x[0])),
        ("expected namespace::name", lambda: MADE.add.torch_op("add")),
        ("registered with another", lambda: MADE.gemm.torch_op("test::add")),
        ("writes Y in place", lambda: MADE.add.torch_op("test::more", MADE.add)),
        ("no input.* has dimension N", lambda: MADE.widened.torch_op("test::widened")),
        ("test::less has no `A`", lambda: MADE.squared.torch_op("test::less", MADE.gemm)),
        ("1 gradients, expected 2", lambda: partly(*arguments(torch)["gemm"]).sum().backward()),
    ):
        with pytest.raises(WsdslError, match=pattern):
            call()
    with torch.no_grad():
        made["add"](leaf, x[0])
    with torch._subclasses.fake_tensor.FakeTensorMode():
        with pytest.raises(WsdslError, match=r"f16 of rank 2, expected .*f32\[M, N\]"):
            made["squared"](torch.ones(4, 4, dtype=torch.float16), 1.0)
        with pytest.raises(RuntimeError, match=r"argument 2 \(B\): axis 1 has size 6, expected 4"):
            made["gemm"](torch.ones(4, 4).bfloat16(), torch.ones(4, 6).bfloat16())


def test_torch_op_honors_deterministic_algorithms(torch: Any, request: Any) -> None:
    made, given = operators(), arguments(torch)
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    torch.use_deterministic_algorithms(True)
    made["add"](*given["add"])
    with pytest.raises(RuntimeError, match=r"test::scatter does not have a deterministic"):
        made["scatter"](*given["scatter"])


def layers(torch: Any, name: str) -> tuple[Any, Any]:
    f, targets = torch.nn.functional, torch.tensor([3, -100, 5])
    ours = dict(
        matmul=lambda x, w, b: kernels.matmul(x, w.T, b, "gelu", x[:, :8], scales=(2.0, None)),
        rmsnorm=lambda x, w, b: kernels.matmul(kernels.rmsnorm(x, w[0]), w.T, out_dtype="f32") + b,
        layernorm=lambda x, w, b: kernels.layernorm(x, w[0], w[1], out_dtype="f32")[:, :8] * b,
        softmax=lambda x, w, b: kernels.softmax(x)[:, :8] + kernels.log_softmax(b, torch.float32),
        cross_entropy=lambda x, w, b: kernels.cross_entropy(x, targets) * b,
    )
    theirs = dict(
        matmul=lambda x, w, b: f.gelu(2.0 * (x @ w.T) + b) + x[:, :8],
        rmsnorm=lambda x, w, b: f.rms_norm(x, (16,), w[0], 1e-6) @ w.T + b,
        layernorm=lambda x, w, b: f.layer_norm(x, (16,), w[0], w[1])[:, :8] * b,
        softmax=lambda x, w, b: x.softmax(-1)[:, :8] + b.log_softmax(-1),
        cross_entropy=lambda x, w, b: f.cross_entropy(x, targets) * b,
    )
    return ours[name], theirs[name]


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("name", ["matmul", "rmsnorm", "layernorm", "softmax", "cross_entropy"])
def test_ready_kernels_have_gradients(torch: Any, name: str, mode: str) -> None:
    ours, theirs = layers(torch, name)
    given = [torch.randn(n).bfloat16().requires_grad_() for n in ((3, 16), (8, 16), (8,))]
    wide = [x.detach().double().requires_grad_() for x in given]
    result, exact = (ours if mode == "eager" else compiled(torch, ours))(*given), theirs(*wide)
    weight = torch.randn(exact.shape)
    ((result * weight).sum() + (exact * weight).sum()).backward()
    for found, wanted in [(result, exact), *((x.grad, y.grad) for x, y in zip(given, wide))]:
        if wanted is not None:
            assert (found - wanted).abs().max() <= 2e-2 * wanted.abs().max()


def spread(scale: Any, rows: int, columns: int) -> Any:
    """Scale factors of [rows, columns]: one, or by row or blocks of 128."""
    scale = scale.reshape(-1, 1) if rows in scale.shape and scale.numel() == rows else scale
    for axis, size in ((0, rows), (1, columns)):
        if scale.dim() > 1 and scale.shape[axis] not in (1, size):
            scale = scale.repeat_interleave(128, axis).narrow(axis, 0, size)
    return scale


@pytest.mark.parametrize(
    "shapes", [((1,), (130,)), ((3, 1), (1, 130)), ((3, 2), (2, 2)), ((1, 2), (130, 2))]
)
def test_scale_factors_have_gradients(torch: Any, shapes: tuple[Any, Any]) -> None:
    given = [torch.randn(n).bfloat16().requires_grad_() for n in ((3, 160), (130, 160))]
    given += [torch.rand(n).requires_grad_() for n in shapes]
    wide = [x.detach().double().requires_grad_() for x in given]
    a, b, scale_a, scale_b = wide
    exact = ((a * spread(scale_a, 3, 160)) @ (b * spread(scale_b, 130, 160)).T).relu()
    a, b, scale_a, scale_b = given
    result = kernels.matmul(a, b.T, activation="relu", scales=(scale_a, scale_b))
    weight = torch.randn(exact.shape)
    ((result * weight).sum() + (exact * weight).sum()).backward()
    for found, wanted in [(result, exact), *((x.grad, y.grad) for x, y in zip(given, wide))]:
        assert (found - wanted).abs().max() <= 2e-2 * wanted.abs().max()


@pytest.mark.parametrize("kind", ["quantized", "lossless"])
def test_stored_weights_pass_gradients_on(torch: Any, kind: str) -> None:
    module = getattr(kernels, kind)
    values = torch.randn(64, 128).bfloat16()
    packed = module.quantize(values, "i4", group=64) if kind == "quantized" else None
    weights = packed or module.pack(values)
    w = torch.as_tensor(packed.dequantize("bf16")).double() if packed else values.double()
    x, bias = (torch.randn(n).bfloat16().requires_grad_() for n in ((2, 3, 128), (64,)))
    wide = [y.detach().double().requires_grad_() for y in (x, bias)]
    result, exact = module.matmul(x, weights), wide[0] @ w.T
    if packed:
        result = module.matmul(x, weights, bias, "silu", result.detach())
        exact = torch.nn.functional.silu(exact + wide[1]) + exact.detach()
    (result.sum() + exact.sum()).backward()
    for found, wanted in [(result, exact), (x.grad, wide[0].grad), (bias.grad, wide[1].grad)]:
        if wanted is not None:
            assert (found - wanted).abs().max() <= 3e-2 * wanted.abs().max()


def test_matmul_follows_autocast(torch: Any) -> None:
    a, b = torch.randn(4, 16, requires_grad=True), torch.randn(16, 8)
    for run in (kernels.matmul, compiled(torch, lambda a, b: kernels.matmul(a, b))):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, wanted = run(a, b), torch.mm(a, b)
            assert run(a.detach(), b).dtype == found.dtype == wanted.dtype == torch.bfloat16
        torch.testing.assert_close(found, wanted)
        (grad,) = torch.autograd.grad(found.float().sum(), a)
        torch.testing.assert_close(grad, b.sum(1).expand(4, 16), rtol=2e-2, atol=5e-2)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_page_has_blocks_that_run(import_optional: Any, name: str) -> None:
    import_optional(name)
    names: dict[str, Any] = {}
    page = (Path(__file__).parents[1] / "docs" / f"{name}.md").read_text()
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", page)
    for i, block in enumerate(blocks):
        exec(compile(block, f"{name}.md:{i}", "exec"), names)
    assert len(blocks) >= 4
