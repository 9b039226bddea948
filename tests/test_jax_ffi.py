"""Kernels inside jax.jit, and the native handler with functions of the test as the driver's."""

import ctypes
import re
import struct
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import wsdsl
from wsdsl import LaunchError
from wsdsl.artifact.signature import MapArgument, PointerArgument, SizeArgument
from wsdsl.runtime.packed_arguments import PackedArguments

MADE = wsdsl.parse("""
@kernel
def squared(X: f32[M, N], s: f32, Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n] * X[m, n] * s
@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: f32[M, N], D: f32[M, N]):
    for m, n in tiles(M, N):
        product = A[m, :] @ B[n, :]
        C[m, n] = product
        D[m, n] += product
@kernel
def scatter(X: f32[M, N], at: i32[M], Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[at[m], n] = X[m, n]
""")
CONTEXT, KERNEL, STREAM, ERROR = 77, 1234, 99, 4321
WORD = ctypes.c_uint64
WORDS, native = ctypes.POINTER(WORD), partial(ctypes.CFUNCTYPE, WORD)


@pytest.fixture
def jax(import_optional):
    return import_optional("jax")


def test_jit_of_pointwise_kernel(jax) -> None:
    x = jax.numpy.arange(64.0).reshape(4, 16)
    layer = jax.jit(lambda x: MADE.squared(x + 1, 2.0) - 1)
    assert (layer(x) == 2 * (x + 1) ** 2 - 1).all()
    assert (jax.jit(MADE.squared, static_argnums=1)(x, 3.0) == 3 * x * x).all()
    scale = jax.grad(jax.jit(lambda w, x: (w * MADE.squared(x, 2.0)).sum()))
    assert scale(1.0, x) == (2 * x * x).sum()
    with jax.disable_jit():
        assert (layer(x[:2]) == 2 * (x[:2] + 1) ** 2 - 1).all()


def test_jit_of_gemm_with_two_outputs(jax) -> None:
    a, d = jax.numpy.ones((16, 32), "bfloat16"), jax.numpy.ones((16, 8))
    layer = jax.jit(lambda a, d: MADE.gemm(a, a[:8], D=d))
    c, total = layer(a, d)
    assert (c == 32).all() and (total == 33).all() and (d == 1).all()
    kinds = [(x.shape, x.dtype) for x in jax.eval_shape(layer, a, d)]
    assert kinds == [((16, 8), "float32")] * 2


def test_unsupported_calls_are_rejected(jax) -> None:
    x = jax.numpy.ones((4, 16))
    for trace, message in (
        (jax.grad(lambda x: MADE.squared(x, 2.0).sum()), r"no gradient.*\n.*jax.custom_vjp"),
        (jax.grad(jax.jit(lambda x: MADE.squared(x, 2.0).sum())), "no gradient"),
        (jax.vmap(lambda x: MADE.squared(x[None], 2.0)), "no batching rule"),
        (jax.jit(lambda x: MADE.squared(x, x[0, 0])), r"argument 2 \(s\): a traced value"),
        (jax.jit(lambda x: MADE.squared(x, 2.0, x)), r"argument 3 \(Y\): .*\n.*leave it out"),
        (jax.jit(lambda x: MADE.squared(x.astype("bfloat16"), 2.0)), "dtype is bf16"),
        (jax.jit(lambda x: MADE.squared(x, 2.0, stream=1)), "stream of XLA"),
    ):
        with pytest.raises(LaunchError, match=message):
            trace(x)


def write(at: Any, value: int, index: int = 0) -> int:
    at[index] = value
    return 0


class Driver:
    """Functions of CUDA's driver and of XLA; a call with a tensor map, a pointer and a size."""

    def __init__(self) -> None:
        self.launches, self.messages, self.held = list[Any](), list[bytes](), list[Any]()
        self.status, self.context = 0, CONTEXT
        text, config = self.words(int.from_bytes(b"FAILURE", "little")), self.words(11, *[0] * 6)
        self.cuCtxGetCurrent = native(WORDS)(lambda at: write(at, self.context))
        self.cuTensorMapReplaceAddress = native(WORDS, WORD)(write)
        self.cuLaunchKernelEx = native(WORDS, WORD, WORDS, WORD)(self.launch)
        self.cuGetErrorName = native(WORD, WORDS)(lambda _, at: write(at, text))
        arguments = MapArgument("X", (8,), "none"), PointerArgument("Y"), SizeArgument("M")
        self.packed = PackedArguments(arguments, [bytes(128), bytes(8), struct.pack("<i", 5)])
        kernel = SimpleNamespace(handle=KERNEL, context=SimpleNamespace(handle=CONTEXT))
        config = SimpleNamespace(getPtr=lambda at=config: at)
        self.call: Any = SimpleNamespace(kernel=kernel, config=config, packed=self.packed)

    def words(self, *values: Any) -> int:
        self.held.append((WORD * len(values))(*values))
        return ctypes.addressof(self.held[-1])

    def launch(self, config: Any, kernel: int, table: Any, _: int) -> int:
        values = (WORD.from_address(table[i]).value for i in range(3))
        self.launches.append((kernel, config[0], config[4], table[0] % 64, *values))
        return self.status

    def frame(self, *places: int) -> int:
        """An XLA_FFI_CallFrame of two arguments and a result."""
        error = native(WORDS)(lambda x: self.messages.append(ctypes.string_at(x[2])) or ERROR)
        stream = native(WORDS)(lambda x: write(x, STREAM * (x[:3] == [32, 0, 55]), 3))
        self.held += error, stream
        create, stream = (ctypes.cast(f, ctypes.c_void_p).value for f in (error, stream))
        buffers = [self.words(48, 0, 11, place) for place in places]
        given, made = self.words(*buffers[:2]), self.words(*buffers[2:])
        api = self.words(*[0] * 6, create, *[0] * 3, stream)
        return self.words(0, 0, api, 55, 3, 0, 0, 2, 0, given, 0, 0, 1, 0, made)


def test_handler_launches_at_buffers_of_frame(jax) -> None:
    from wsdsl.runtime.native.xla_handler import ARGUMENTS, RESULTS, Handler

    driver, operands = Driver(), {"X": (ARGUMENTS, 1), "Y": (RESULTS, 0)}
    address = Handler("k", [driver.call], operands, (0, 3), driver).compile()
    run, before = native(WORD)(address), bytes(driver.packed)
    assert run(driver.frame(16, 32, 48)) == 0
    for driver.status, driver.context, place in ((1, CONTEXT, 32), (0, 0, 32), (0, CONTEXT, 36)):
        assert run(driver.frame(16, place, 48)) == ERROR
    assert driver.messages == [b"WS1123 launch of k failed: FAILURE"] * 3
    assert driver.launches == [(KERNEL, 11, STREAM, 0, 32, 48, 5)] * 2
    assert bytes(driver.packed) == before
    # XLA accepts the handler's metadata, and has no stream on the CPU.
    jax.ffi.register_ffi_target("wsdsl_test", jax.ffi.pycapsule(address))
    x = jax.device_put(jax.numpy.ones(4), jax.devices("cpu")[0])
    with pytest.raises(Exception, match="GPU context is not available"):
        jax.ffi.ffi_call("wsdsl_test", x)(x, x).block_until_ready()


def test_call_for_gpu_has_aliases(jax, monkeypatch) -> None:
    driver, load = Driver(), ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda n: driver if n == "libcuda.so.1" else load(n))
    monkeypatch.setattr(jax, "local_devices", lambda **_: [SimpleNamespace(local_hardware_id=0)])
    monkeypatch.setattr(
        "wsdsl.dispatch.jax_ffi.TracedCall.prepare", lambda *_: ("code", driver.call)
    )
    traced = jax.jit(MADE.scatter).trace(jax.numpy.ones((4, 16)), jax.numpy.arange(4))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert re.search(r"custom_call @wsdsl_scatter_\w{64}\(%arg0, %arg1, %\d+\)", text)
    assert "operand_index = 2" in text
