"""Operators of `torch.library`: kernels with a schema, a fake implementation and a gradient."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from itertools import count
from typing import Any, NoReturn

from wsdsl.diagnostics import LaunchError, WsdslError, unknown_names
from wsdsl.dispatch.dispatcher import Dispatcher
from wsdsl.ir.types import DType, Tensor, Tile, Value
from wsdsl.runtime.arrays.views import FRAMEWORK_NAMES, OF_SIX_BITS, ArrayView, adapt, dtype_named
from wsdsl.runtime.bind import positions

NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")
DEVICES = ("CPU", "CUDA")
_operators: dict[str, tuple[Any, Any]] = {}
"""By name, the identity of a kernel with its backward, and the operator."""


Gradient = tuple[Callable[[Any, Sequence[Any], Any], None], Callable[..., Any]]
"""`setup_context` and `backward` of `torch.library.register_autograd`."""


@cache
def library(namespace: str) -> Any:
    """Return the `torch.library.Library` of a namespace. Operators exist as long as it does."""
    return import_module("torch").library.Library(namespace, "FRAGMENT")


def define(
    name: str,
    schema: str,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    gradient: Gradient | None = None,
) -> Any:
    """Register an operator with `torch.library`; return the callable `torch.ops.…`.

    `run` receives plain tensors of one device. Without a gradient, arguments that require one are
    rejected at the call.
    """
    torch = import_module("torch")
    namespace, short = name.split("::")
    own = library(namespace)
    tags = torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides
    own.define(short + schema, tags=tags)

    def rejecting(call: Callable[..., Any]) -> Callable[..., Any]:
        """Autograd runs `call` without recording if the operator has a gradient."""

        def checked(*args: Any) -> Any:
            if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
                message = f"WS1100 {name} has no gradient; an argument requires it"
                hint = "register it with backward=…, or call it under torch.no_grad()"
                raise LaunchError(message, hint=hint)
            return call(*args)

        return call if gradient else checked

    def reject_vmap(*_: Any, **__: Any) -> NoReturn:
        hint = "declare the kernel with a batch dimension, or call it in a loop"
        raise LaunchError(f"WS1101 {name} has no batching rule for vmap", hint=hint)

    for device in DEVICES:
        own.impl(short, rejecting(run), device)
    torch.library.register_fake(name, rejecting(fake), lib=own)
    torch.library.register_vmap(name, reject_vmap, lib=own)
    if gradient:
        setup, backward = gradient
        torch.library.register_autograd(name, backward, setup_context=setup, lib=own)
    return getattr(getattr(torch.ops, namespace), short)


def register(kernel: Dispatcher, name: str, backward: Any = None) -> Any:
    """See `Kernel.torch_op`."""
    if not isinstance(name, str) or not NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        hint = "use letters, digits and underscores"
        raise WsdslError(f"WS1102 operator name {name!r}, expected namespace::name", hint=hint)
    identity = _identity(kernel), _identity(backward)
    if name not in _operators:
        made = _Operator(kernel, name)
        gradient = None if backward is None else made.gradient(backward)
        _operators[name] = identity, define(name, made.schema, made.run, made.fake, gradient)
    known, operator = _operators[name]
    if known != identity:
        message = f"WS1103 {name} is registered with another kernel or backward"
        raise WsdslError(message, hint="choose another name")
    return operator


def _identity(value: Any) -> Any:
    tile = getattr(value, "tile_ir", None)
    return value if tile is None else (str(tile), value._schedule)


class _Operator:
    """A kernel with its parameters by role. `results` are the tensors that it only writes."""

    def __init__(self, kernel: Dispatcher, name: str) -> None:
        access = kernel.access
        self.kernel, self.name, self.params = kernel, name, kernel.params
        self.inputs = [p for p in self.params if p.name not in access.only_written]
        self.results = [p for p in self.params if p.name in access.only_written]
        self.mutated = [p.name for p in self.inputs if p.name in access.writes]
        self.places = positions(self.params)
        self.is_deterministic = not _adds_in_any_order(kernel.tile_ir)
        tensors = [p.type for p in self.inputs if isinstance(p.type, Tensor)]
        known = {dim for tensor in tensors for dim in tensor.dims}
        if not tensors:
            raise WsdslError(f"WS1112 {kernel.name} has no tensor input, which gives the device")
        if packed := [p.name for p in self.params if getattr(p.type, "packed", False)]:
            raise WsdslError(f"WS1104 {packed[0]} is packed; operators take plain tensors")
        sizes = {d for p in self.results for d in p.as_tensor.dims if isinstance(d, str)}
        if unknown := sorted(sizes - known):
            message = f"WS1105 no input of {kernel.name} has dimension {unknown[0]} of a result"
            raise WsdslError(message, hint="add an input of this size")

    @property
    def schema(self) -> str:
        letters = count()

        def declared(param: Value) -> str:
            kind = param.type
            if isinstance(kind, Tensor):
                alias = f"(a{next(letters)}!)" if param.name in self.mutated else ""
                return f"Tensor{alias} {param.name}"
            is_float = isinstance(kind, Tile) and kind.dtype.is_float
            return f"{'float' if is_float else 'SymInt'} {param.name}"

        inputs = ", ".join(map(declared, self.inputs))
        results = ", ".join("Tensor" for _ in self.results)
        return f"({inputs}) -> {results if len(self.results) == 1 else f'({results})'}"

    def run(self, *args: Any) -> Any:
        """Run the kernel on tensors with memory."""
        if not self.is_deterministic:
            import_module("torch._prims_common").alert_not_deterministic(self.name)
        given = dict(zip([p.name for p in self.inputs], args))
        made = self.kernel(*[given.get(p.name) for p in self.params])
        if not self.mutated:
            return made
        written = [p.name for p in self.params if p.name in self.kernel.access.writes]
        by_name = dict(zip(written, made if len(written) > 1 else (made,)))
        return self._returned([by_name[p.name] for p in self.results])

    def fake(self, *args: Any) -> Any:
        """Allocate results for tensors without memory, whose sizes may be symbols."""
        tensors = [(p, x) for p, x in zip(self.inputs, args) if isinstance(p.type, Tensor)]
        dims: dict[str, Any] = {}
        # Sizes of 4-bit tensors are rounded to bytes: they are compared last.
        for param, tensor in sorted(tensors, key=lambda pair: pair[0].as_tensor.dtype.bits == 4):
            self._match(param, tensor, dims)
        _, like = tensors[0]
        return self._returned([self._allocated(p.as_tensor, like, dims) for p in self.results])

    def _match(self, param: Value, tensor: Any, dims: dict[str, Any]) -> None:
        torch = import_module("torch")
        kind, place = param.as_tensor, self.places[param.name]
        name = str(tensor.dtype).removeprefix("torch.")
        view = ArrayView(0, dtype_named(name, tensor.element_size()), (2,), (1,), "cpu")
        if adapt(view, kind.dtype).dtype != kind.dtype or tensor.dim() != len(kind.dims):
            found = f"{view.dtype} of rank {tensor.dim()}"
            raise LaunchError(f"WS1106 {place}: {found}, expected {kind}")
        for axis, (dim, size) in enumerate(zip(kind.dims, tensor.shape)):
            halved = kind.dtype.bits == 4 and axis == len(kind.dims) - 1
            known = dim if isinstance(dim, int) else dims.setdefault(dim, size * (1 + halved))
            wanted = (known + 1) // 2 if halved else known
            message = f"WS1107 {place}: axis {axis} has size {size}, expected {wanted}"
            torch._check(wanted == size, lambda message=message: message)

    def _allocated(self, kind: Tensor, like: Any, dims: Mapping[str, Any]) -> Any:
        shape = [d if isinstance(d, int) else dims[d] for d in kind.dims]
        if kind.dtype.bits == 4:
            shape[-1] = (shape[-1] + 1) // 2
        return like.new_empty(shape, dtype=torch_dtype(kind.dtype))

    def _returned(self, results: Sequence[Any]) -> Any:
        return results[0] if len(results) == 1 else tuple(results) or None

    def gradient(self, backward: Any) -> Gradient:
        """Match the parameters of a backward kernel or function by name: inputs, results and
        `grad_<result>`.
        """
        if self.mutated:
            raise WsdslError(f"WS1108 {self.name} writes {self.mutated[0]} in place: no gradient")
        inputs, results = [p.name for p in self.inputs], [p.name for p in self.results]
        tensors = [p.name for p in self.inputs if isinstance(p.type, Tensor)]
        grads = [f"grad_{name}" for name in results]
        dtypes: dict[str, DType] = {}
        made = grads_of_inputs = [f"grad_{name}" for name in tensors]
        call: Callable[..., Any] = backward
        wanted = [*signature(backward).parameters]
        if hasattr(backward, "tile_ir"):
            call = register(backward, f"{self.name}_backward")
            own = _Operator(backward, self.name)
            wanted, made = [p.name for p in own.inputs], [p.name for p in own.results]
            made += own.mutated
            dtypes = {p.name: p.type.dtype for p in own.inputs if isinstance(p.type, Tensor)}
        expected = [*inputs, *results, *grads]
        what = f"WS1111 gradient of {self.name}"
        findings = unknown_names(wanted, expected, what)
        if findings := findings or unknown_names(made, grads_of_inputs, what):
            raise WsdslError(findings)
        saved = [name for name in wanted if name in tensors or name in results]

        def setup(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
            found = dict(zip(expected, (*inputs, *(output if len(results) > 1 else (output,)))))
            ctx.save_for_backward(*(found[name] for name in saved))
            ctx.numbers = {n: x for n, x in found.items() if n in wanted and n not in saved}

        def run(ctx: Any, *found: Any) -> tuple[Any, ...]:
            values = {**ctx.numbers, **dict(zip(saved, ctx.saved_tensors))}
            for name, grad in zip(grads, found):
                dtype = dtypes.get(name)
                values[name] = (grad.to(torch_dtype(dtype)) if dtype else grad).contiguous()
            result = call(*(values[name] for name in wanted))
            result = result if isinstance(result, tuple | list) else (result,)
            if len(result) != len(made):
                message = f"WS1109 backward of {self.name} returns {len(result)} gradients"
                raise WsdslError(f"{message}, expected {len(made)}: {', '.join(made)}")
            by_name = dict(zip(made, result))
            for name, needed in zip(inputs, ctx.needs_input_grad):
                if needed and f"grad_{name}" not in by_name:
                    message = f"WS1110 backward of {self.name} has no grad_{name}"
                    raise WsdslError(message, hint=f"write it, or detach {name}")
            return tuple(by_name.get(f"grad_{name}") for name in inputs)

        return setup, run


def torch_dtype(dtype: DType) -> Any:
    """The dtype of torch for a type of the language."""
    torch = import_module("torch")
    name = "uint8" if dtype.name in OF_SIX_BITS else FRAMEWORK_NAMES[dtype.name]
    return getattr(torch, name)


def _adds_in_any_order(kernel: Any) -> bool:
    """Check whether several tiles add floats to one element, in the order of their arrival."""
    from wsdsl.ir.ops import Store
    from wsdsl.lowering.axes import is_scattered, output_nest

    loops = {loop.index for loop in output_nest(kernel)[0]}
    adds = (op for op in kernel.of(Store) if op.accumulate and op.tensor.as_tensor.dtype.is_float)
    return any(is_scattered(op) or not loops <= {*op.index} for op in adds)
