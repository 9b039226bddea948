"""Calls of kernels that JAX traces: calls of XLA's FFI on GPUs, of the simulator on the CPU."""

import ctypes
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from itertools import count
from pathlib import Path
from re import findall
from typing import Any, NoReturn

from wsdsl.artifact.versions import require_compiler
from wsdsl.diagnostics import CompileError, LaunchError, ScheduleError
from wsdsl.dispatch.dispatcher import Dispatcher
from wsdsl.dispatch.execution import runs_simulated
from wsdsl.dispatch.vectorized_variants import select_variant
from wsdsl.ir.types import Tile
from wsdsl.runtime.arguments import Call, match_arguments
from wsdsl.runtime.arrays.views import FRAMEWORK_NAMES, ArrayView, contiguous_strides, dtype_named
from wsdsl.runtime.bind import positions
from wsdsl.schedule import Schedule

jax: Any = import_module("jax")
ad, batching, mlir = (import_module(f"jax.interpreters.{x}") for x in ("ad", "batching", "mlir"))
primitive: Any = import_module("jax.extend.core").Primitive("wsdsl_call")
primitive.multiple_results = True
SPAN = 1 << 36  # bytes from array to array, which have no addresses yet
NO_GRADIENT = "give it one by jax.custom_vjp, or call it on jax.lax.stop_gradient(x)"
NO_BATCH = "declare the kernel with a batch dimension, or use jax.lax.map"
HINTS = {
    "a number": "give one of Python, as by jax.jit(…, static_argnames=…), or declare an array",
    "None": "leave it out: outputs are results",
    "a JAX array": "convert it: jax.numpy.asarray(x)",
}
_registered, _lock = set[str](), threading.Lock()


def is_traced(args: Sequence[Any]) -> bool:
    return any(isinstance(x, jax.core.Tracer) for x in args)


@dataclass(frozen=True, eq=False, repr=False)
class TracedCall:
    """A call of a kernel. `operands` are the indices of its arrays, `results` their types."""

    kernel: Dispatcher
    args: tuple[Any, ...]
    schedule: Schedule | None
    exact: bool
    call: Call
    operands: dict[str, int]
    results: tuple[Any, ...]

    def simulate(self, *arrays: Any) -> Any:
        """Run the simulator on copies of arrays."""
        args = list(self.args)
        for name, i in self.operands.items():
            args[self.call.sources[name]] = import_module("numpy").array(arrays[i], order="C")
        found = self.kernel.simulate(*args, schedule=self.schedule)
        found = found if len(self.results) > 1 else (found,)
        return tuple(x.view(r.dtype) for x, r in zip(found, self.results, strict=True))

    def prepare(self, index: int) -> tuple[Any, Any]:
        """Compile for a GPU. Return all that code and grid depend on, and the launch."""
        views = {n: replace(x, device=f"cuda:{index}") for n, x in self.call.views.items()}
        call, schedule = replace(self.call, views=views), self.schedule
        kernel, call = select_variant(self.kernel, call, schedule)
        compiled = kernel.compiled_for(call, schedule, exact=self.exact)
        if compiled.signature.lent and not (schedule and schedule.scheduler):
            schedule = replace(schedule or Schedule(), scheduler="persistent")
            with suppress(ScheduleError, CompileError):
                compiled = kernel.compiled_for(call, schedule, exact=self.exact)
        prepared = compiled.prepare_call(call, 0, keepalive=False)
        launch = prepared.repeatable(filled=True)
        if launch is None or launch.is_valid is not None:
            part = "a workspace" if compiled.signature.lent else "inputs without elements"
            hint = "change the scheduler or the sizes, or call it outside jax.jit"
            raise LaunchError(f"WS1122 {kernel.name} uses {part} inside jax.jit", hint=hint)
        return (compiled.artifact.image, compiled.signature, prepared.grid), launch


def call_traced(
    kernel: Dispatcher, args: tuple[Any, ...], schedule: Schedule | None, stream: Any, exact: bool
) -> Any:
    """Trace a call of a kernel. LaunchError for arguments that the kernel does not take."""
    if stream is not None:
        message = f"WS1120 {kernel.name} inside jax.jit runs on the stream of XLA"
        raise LaunchError(message, hint="leave the stream out")
    sources = match_arguments(kernel.name, kernel.params, kernel.access, args)
    numbers = {p.name for p in kernel.params if isinstance(p.type, Tile)}
    ends, given, arrays, operands = count(SPAN, SPAN), [*args], list[Any](), dict[str, int]()

    def view(shape: Sequence[int], name: str) -> ArrayView:
        """Describe a traced array, or a result that `resolve` allocates."""
        dtype = dtype_named(name, jax.numpy.dtype(name).itemsize)
        strides = contiguous_strides(shape)
        return ArrayView(next(ends), dtype, tuple(shape), strides, "cuda:0", False, "xla", view)

    for name, i in sources.items():
        x, is_output = args[i], name in kernel.access.only_written
        wanted = "a number" if name in numbers else "None" if is_output else "a JAX array"
        if is_traced([x]) if name in numbers else is_output or not isinstance(x, jax.Array):
            kind = "a traced value" if is_traced([x]) else type(x).__name__
            message = f"WS1121 {positions(kernel.params)[name]}: {kind}, expected {wanted}"
            raise LaunchError(message, hint=HINTS[wanted])
        if name not in numbers:
            given[i], operands[name] = view(x.shape, x.dtype.name), len(arrays)
            arrays.append(x)
    call = kernel.resolve(tuple(given))
    views = [call.arrays[name] for name in call.outputs]
    kinds = ((x.shape, jax.numpy.dtype(FRAMEWORK_NAMES[x.dtype.name])) for x in views)
    results = tuple(jax.ShapeDtypeStruct(*kind) for kind in kinds)
    traced = TracedCall(kernel, tuple(given), schedule, exact, call, operands, results)
    found = primitive.bind(*arrays, traced=traced)
    return found[0] if len(results) == 1 else tuple(found)


def _simulated(*arrays: Any, traced: TracedCall) -> Any:
    runs_simulated(movable=True)
    return jax.pure_callback(traced.simulate, traced.results, *arrays)


def _launched(*arrays: Any, traced: TracedCall) -> Any:
    """Call the handler of a kernel. Outputs that the kernel reads, or writes in part, are aliases
    of operands; the latter are zeros.
    """
    if not any(x.size for x in traced.results):
        return [jax.numpy.zeros(x.shape, x.dtype) for x in traced.results]
    name, operands, aliases = _register(traced), [*arrays], dict[int, int]()
    for i, (output, x) in enumerate(zip(traced.call.outputs, traced.results, strict=True)):
        if output in traced.call.zeroed:
            aliases[len(operands)] = i
            operands.append(jax.numpy.zeros(x.shape, x.dtype))
        elif output in traced.operands:
            aliases[traced.operands[output]] = i
    return jax.ffi.ffi_call(name, traced.results, input_output_aliases=aliases)(*operands)


def _register(traced: TracedCall) -> str:
    """Register the handler of a call, by a name that depends on code and arguments alone, since
    programs may be cached on disk.
    """
    require_compiler("llvmlite")
    from wsdsl.runtime.native.xla_handler import ARGUMENTS, RESULTS, Handler

    devices = {device.local_hardware_id for device in jax.local_devices(backend="cuda")}
    codes, launches = zip(*(traced.prepare(i) for i in sorted(devices)), strict=True)
    operands = {name: (ARGUMENTS, i) for name, i in traced.operands.items()}
    operands |= {name: (RESULTS, i) for i, name in enumerate(traced.call.outputs)}
    parts = codes, [bytes(x.packed) for x in launches], operands, sorted(traced.call.zeroed)
    name = f"wsdsl_{traced.kernel.name}_{sha256(repr(parts).encode()).hexdigest()}"
    with _lock:
        if name not in _registered:
            header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text()
            version = [int(x) for x in findall(r"#define XLA_FFI_API_M\w+ (\d+)", header)]
            driver = ctypes.CDLL("libcuda.so.1")
            handler = Handler(traced.kernel.name, launches, operands, version, driver)
            capsule = jax.ffi.pycapsule(handler.compile())
            jax.ffi.register_ffi_target(name, capsule, platform="CUDA")
            _registered.add(name)
    return name


def _reject(what: str, hint: str, *_: Any, traced: TracedCall) -> NoReturn:
    raise LaunchError(f"WS1124 {traced.kernel.name} has no {what} for JAX", hint=hint)


ad.primitive_jvps[primitive] = partial(_reject, "gradient", NO_GRADIENT)
batching.primitive_batchers[primitive] = partial(_reject, "batching rule", NO_BATCH)
mlir.register_lowering(primitive, mlir.lower_fun(_simulated, True), platform="cpu")
mlir.register_lowering(primitive, mlir.lower_fun(_launched, True), platform="cuda")
primitive.def_impl(lambda *x, traced: jax.jit(partial(primitive.bind, traced=traced))(*x))
AVAL = jax.core.ShapedArray
primitive.def_abstract_eval(lambda *_, traced: [AVAL(x.shape, x.dtype) for x in traced.results])
