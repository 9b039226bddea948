"""Arrays of torch and JAX on the CPU: gradients are never dropped in silence, torch learns of each
write, and nothing runs in the simulator unnoticed.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wsdsl
from tests.case_data import rejects
from wsdsl import LaunchError, config, kernels
from wsdsl.diagnostics import warn_once
from wsdsl.runtime import recent

DOUBLED = wsdsl.parse("""
@kernel
def doubled(X: f32[M, N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n] * 2.0
""").doubled
SHAPE = 4, 128


@pytest.fixture
def torch(import_optional: Any) -> Any:
    return import_optional("torch")


def ways(torch: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """Of each thing that runs: from an input and an output to its result. The last three take no
    output.
    """
    x = torch.randn(SHAPE).to(torch.bfloat16)
    packed = kernels.lossless.pack(torch.nn.Parameter(x))
    codes = kernels.quantized.quantize(torch.nn.Parameter(x), "i8")
    return {
        "call": DOUBLED,
        "simulate": DOUBLED.simulate,
        "reference": DOUBLED.reference,
        "compiled": DOUBLED.compile(M=4, N=128),
        "matmul": lambda a, out: kernels.matmul(
            a, torch.ones(128, 128).T, operand_dtype="tf32", out=out
        ),
        "rmsnorm": lambda a, out: kernels.rmsnorm(a, out=out),
        "softmax": lambda a, out: kernels.softmax(a, out=out),
        "quantize": lambda a, out: kernels.quantize(a),
        "quantized": lambda a, out: kernels.quantized.matmul(a.bfloat16(), codes),
        "lossless": lambda a, out: kernels.lossless.matmul(a.bfloat16(), packed),
    }


def test_a_gradient_that_would_be_lost(torch: Any) -> None:
    leaf, forward = torch.ones(SHAPE, requires_grad=True), torch.autograd.forward_ad
    for i, run in enumerate(ways(torch).values()):
        for given in ((leaf, torch.empty(SHAPE)), (torch.ones(SHAPE), leaf))[
            : 2 * (i < 7) + (i == 7)
        ]:
            rejects(r"(?s)records its gradient.*no_grad.*detach", run, *given)
        with torch.no_grad():
            run(leaf, torch.empty(SHAPE))
        with forward.dual_level(), pytest.raises(LaunchError, match="records its gradient"):
            run(forward.make_dual(torch.ones(SHAPE), torch.ones(SHAPE)), torch.empty(SHAPE))


def test_what_autograd_has_saved_is_overwritten(torch: Any) -> None:
    for run in [*ways(torch).values()][:7]:
        x, saved = torch.ones(SHAPE, requires_grad=True), torch.ones(SHAPE)
        given = torch.ones(SHAPE)
        product = (x * saved).sum()
        run(given, saved)
        assert (saved._version, given._version) == (1, 0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
        with torch.inference_mode():
            run(torch.ones(SHAPE), torch.empty(SHAPE))


def test_tensors_without_memory(torch: Any, import_optional: Any) -> None:
    fake = import_optional("torch._subclasses.fake_tensor")
    make_fx = import_optional("torch.fx.experimental.proxy_tensor").make_fx
    with fake.FakeTensorMode():
        x = torch.ones(SHAPE)
    for run in (
        lambda: DOUBLED(x),
        lambda: kernels.matmul(x.bfloat16(), x.T.bfloat16()),
        lambda: torch.func.vmap(DOUBLED)(torch.ones(2, *SHAPE)),
        lambda: torch.func.grad(lambda x: DOUBLED(x).sum())(torch.ones(SHAPE)),
        lambda: torch.func.functionalize(DOUBLED)(torch.ones(SHAPE)),
        lambda: torch.jit.trace(kernels.softmax, (torch.ones(SHAPE),)),
        lambda: make_fx(DOUBLED)(torch.ones(SHAPE)),
    ):
        rejects(r"has no memory", run)
    negated = torch._neg_view(torch.ones(SHAPE))
    rejects("resolve_neg", DOUBLED, negated)
    assert (DOUBLED(negated.resolve_neg()) == -2).all()
    rejects("a Proxy is not an array", torch.fx.symbolic_trace, lambda x: kernels.softmax(x))


def test_call_under_a_trace_is_not_repeated(torch: Any, monkeypatch: Any) -> None:
    calls, looks = recent.Recent(), list[Any]()
    monkeypatch.setattr(recent, "current_context_id", lambda: 1)

    def look(x: Any) -> Any:
        looks.append(calls.look((x,), None, None, None))
        return x

    torch.jit.trace(look, (look(torch.ones(SHAPE)),), check_trace=False)
    assert [x is None for x in looks] == [False, True]


@pytest.mark.parametrize("name", ["call", "compiled", "plan", "rmsnorm", "weights"])
def test_dynamo_does_not_follow(torch: Any, import_optional: Any, name: str) -> None:
    utils = import_optional("torch._dynamo.utils")
    run = {
        **ways(torch),
        "plan": lambda a, out: kernels.matmul.plan(a, a.T, operand_dtype="tf32").run(),
        "weights": lambda a, out: kernels.quantized.quantize(a.bfloat16(), "i8").scales,
    }[name]

    def around(x: Any) -> Any:
        given = x + 1, torch.empty_like(x)
        return (run(X=given[0], Y=given[1]) if name == "call" else run(*given)) - 1

    x = torch.ones(SHAPE)
    wanted = around(x)
    torch._dynamo.reset()
    utils.counters.clear()
    assert torch.equal(torch.compile(around, backend="eager")(x), wanted)
    assert utils.counters["frames"]["total"] < 12
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"a wsdsl kernel is already compiled"):
        torch.compile(around, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
def test_beside_a_gpu(import_optional: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("wsdsl.runtime.device.gpu_available", lambda: True)
    monkeypatch.setattr("wsdsl.runtime.staging.run_staged", lambda *_: None)
    x, host = import_optional(name).ones(SHAPE), np.ones(SHAPE, np.float32)
    with config.override(ptxas="off"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        product = kernels.matmul.plan(x, x, operand_dtype="tf32", transpose_b=True)
        for way in (DOUBLED, DOUBLED.compile(M=4, N=128), kernels.softmax, lambda _: product.run()):
            rejects(r'to the GPU, or use.*backend="simulator"', way, x)
        DOUBLED(host)
        with config.override(backend="simulator"):
            assert (np.asarray(DOUBLED(x)) == 2).all() and (
                np.asarray(DOUBLED.simulate(x)) == 2
            ).all()


def test_without_a_gpu(import_optional: Any) -> None:
    warn_once.cache_clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        DOUBLED(np.ones(SHAPE, np.float32))
        assert not seen
        for name in ("torch", "jax.numpy", "torch"):
            kernels.softmax(import_optional(name).ones(SHAPE))
    (one,) = seen
    assert "no supported GPU" in str(one.message) and one.filename == __file__
