"""Arrays of every framework, streams, graphs, threads; and calls that are refused."""

import threading
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.export import cases, test_tvm_ffi
from tests.gpu.arrays import usual_seconds
from tests.kernels import CASES
from wsdsl import Kernel, config, load_exported
from wsdsl.diagnostics import LaunchError

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def operands(m: int = 200, n: int = 136, k: int = 264) -> tuple[Any, Any, Any]:
    a = torch.randn(m, k, device="cuda").bfloat16()
    b = torch.randn(n, k, device="cuda").bfloat16()
    return a, b, a.double() @ b.double().t()


def close(got: Any, want: Any) -> bool:
    return bool(((got.double() - want).norm() / want.norm()).item() < 2**-8)


def gemm() -> Any:
    return CASES["gemm"].fresh()


def test_torch_with_the_output_left_out() -> None:
    a, b, want = operands()
    made = gemm()(a, b)
    assert made.dtype == torch.bfloat16
    assert close(made, want)


def test_numpy_is_staged() -> None:
    a, b, want = operands()
    host = [x.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16) for x in (a, b)]
    made = gemm()(*host)
    assert isinstance(made, np.ndarray)
    assert close(torch.from_numpy(made.astype(np.float32)).cuda(), want)


def test_numpy_with_rows_of_odd_length() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((9, 7), (5, 7)))
    made = gemm()(a, b).astype(float)
    want = a.astype(float) @ b.astype(float).T
    assert np.linalg.norm(made - want) / np.linalg.norm(want) < 2**-8


def test_cupy() -> None:
    cupy: Any = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 48)).astype(np.float32)
    a, c = cupy.asarray(x), cupy.zeros((64, 48), np.float32)
    top, y = cupy.asarray(x.max(1)), c
    CASES["row_softmax"].fresh()(a, top, y)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(cupy.asnumpy(y), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_jax() -> None:
    jax: Any = pytest.importorskip("jax")
    a, b, want = operands()
    given = [jax.dlpack.from_dlpack(x) for x in (a, b)]
    made = gemm()(*given)
    assert close(torch.from_dlpack(made), want)
    with pytest.raises(LaunchError, match="immutable"):
        gemm()(*given, made)


@pytest.mark.parametrize("caller", test_tvm_ffi.CALLERS)
@pytest.mark.parametrize("name", ["gemm", "split_k", "scale"])
def test_functions_of_tvm_ffi_give_bits_of_kernel(name, caller, tmp_path, monkeypatch) -> None:
    tvm_ffi: Any = pytest.importorskip("tvm_ffi")
    monkeypatch.setattr(Kernel, "exact", False)  # as exports
    case, given = cases.CASES[name], cases.CASES[name].arguments(cases.CASES[name].calls[0])
    for param, x in given.items():
        if not isinstance(x, float):
            dtype = torch.bfloat16 if x.dtype.bits == 16 else torch.float32
            given[param] = torch.randn(x.shape, device="cuda").to(dtype)
    case.kernel.export(tmp_path, case.sizes, schedule=case.schedule)
    kernel, exported = partial(case.kernel, schedule=case.schedule), load_exported(tmp_path)
    (written,), outputs = case.kernel.access.writes, list[Any]()
    for run in (kernel, tvm_ffi.convert(exported), test_tvm_ffi.built(tvm_ffi, tmp_path, caller)):
        given[written].zero_()
        run(*given.values())
        outputs.append(given[written].view(torch.uint8).clone())
    assert all(torch.equal(outputs[0], x) for x in outputs[1:])


def test_the_callers_stream() -> None:
    a, b, want = operands(1024, 1024, 1024)
    stream = torch.cuda.Stream()
    out = torch.zeros(1024, 1024, device="cuda").bfloat16()
    kernel = gemm()
    kernel(a, b, out)
    out.zero_()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        kernel(a, b, out)
        done = torch.cuda.Event()
        done.record()
    assert not done.query()
    done.synchronize()
    assert close(out, want)
    out.zero_()
    torch.cuda.synchronize()
    kernel.prepare(a, b, out, stream=stream)()
    stream.synchronize()
    assert close(out, want)


def test_a_cuda_graph() -> None:
    a, b, want = operands()
    out = torch.zeros(200, 136, device="cuda").bfloat16()
    prepared = gemm().prepare(a, b, out)
    prepared()
    torch.cuda.synchronize()
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        prepared()
        prepared()
    assert float(out.abs().max()) == 0
    graph.replay()
    torch.cuda.synchronize()
    assert close(out, want)


def test_threads() -> None:
    kernel = gemm()
    problems = [operands(128 * i, 136, 264) for i in range(1, 5)]
    made: dict[int, Any] = {}

    def work(i: int) -> None:
        a, b, _ = problems[i]
        made[i] = kernel(a, b)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(problems))]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    torch.cuda.synchronize()
    assert all(close(made[i], problems[i][2]) for i in made)
    assert len(made) == len(problems)


def test_without_ptxas_the_driver_assembles() -> None:
    a, b, want = operands()
    with config.override(ptxas="off"):
        prepared_kernel = CASES["gemm"].fresh()
        out = torch.zeros(200, 136, device="cuda").bfloat16()
        prepared = prepared_kernel.prepare(a, b, out)
    prepared()
    torch.cuda.synchronize()
    assert close(out, want)
    assert any("assembled by the driver" in note for note in prepared.notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a, b, c: (a.float(), b, c), "dtype is f32, expected bf16"),
        (lambda a, b, c: (a, b.cpu(), c), "is on cpu"),
        (lambda a, b, c: (a, b[:, :-8], c), "K = 264"),
        (lambda a, b, c: (a.t(), b, c), "expected 1"),
        (lambda a, b, c: (a, b, a[:, :136]), "shares memory"),
    ],
)
def test_refused_before_anything_is_written(change: Any, words: str) -> None:
    a, b, _ = operands()
    c = torch.full((200, 136), 7.0, device="cuda").bfloat16()
    with pytest.raises(LaunchError, match=words):
        gemm()(*change(a, b, c))
    torch.cuda.synchronize()
    assert bool((c == 7).all())


def test_warm_calls_are_quick() -> None:
    """The launch, and a look at its arrays where it is not prepared."""
    a, b, _ = operands()
    kernel, out = gemm(), torch.empty(200, 136, device="cuda").bfloat16()
    assert usual_seconds(kernel.prepare(a, b, out)) < 20e-6
    assert usual_seconds(lambda: kernel(a, b, out)) < 30e-6


def test_arrays_that_look_the_same() -> None:
    """Elsewhere, in other roles, on another stream, with the output left out, in a graph."""
    kernel, side = gemm(), torch.cuda.Stream()
    sets = [operands(136, 136, 264) for _ in range(5)]
    for a, b, want in (*sets, *sets):
        assert close(kernel(a, b), want)
        assert close(kernel(b, a), want.t())
        out = torch.zeros(136, 136, device="cuda").bfloat16()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert kernel(a, b, out) is out
        side.synchronize()
        assert close(out, want)
    a, b, want = sets[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = kernel(a, b)
        again = kernel(b, a, None)
    graph.replay()
    torch.cuda.synchronize()
    assert close(made, want) and close(again, want.t())


def test_a_map_that_is_moved_is_as_one_that_is_encoded() -> None:
    import ctypes

    from wsdsl.artifact.signature import MapArgument
    from wsdsl.runtime.arrays.interop import describe
    from wsdsl.runtime.tensor_map_encoding import encode, replace_address, tiled_map

    here, there = (torch.zeros(4, 200, 136, device="cuda").bfloat16() for _ in range(2))
    argument = MapArgument("A", (1, 128, 64), "128B")
    encoded = [encode(tiled_map(describe(x), argument)) for x in (here, there)]
    assert encoded[0] != encoded[1]
    memory = ctypes.create_string_buffer(256)
    base = -(-ctypes.addressof(memory) // 64) * 64
    ctypes.memmove(base, encoded[0], 128)
    replace_address(base, there.data_ptr())
    assert ctypes.string_at(base, 128) == encoded[1]
