"""From a call's arguments to checked arrays, scalars and sizes."""

import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from wsdsl.artifact.artifact import Access
from wsdsl.diagnostics import Finding, LaunchError, unknown_names
from wsdsl.ir.types import DTYPES, DType, Tensor, Tile, Value
from wsdsl.record import record
from wsdsl.runtime.arrays.interop import allocate, count_writes, describe, host_array, is_array
from wsdsl.runtime.arrays.views import ArrayView, adapt, tma_faults
from wsdsl.runtime.bind import bind, positions

Scalar = int | float
OPTIONS = ("schedule", "stream")
"""Keyword arguments of a call in addition to the kernel's arguments."""


@record
class Call:
    """A call whose arguments fit the kernel. `outputs` are the written parameters, in order."""

    arrays: Mapping[str, Any]
    views: Mapping[str, ArrayView]
    scalars: Mapping[str, Scalar]
    dims: Mapping[str, int]
    outputs: tuple[str, ...]
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    """Which argument each parameter was given; none that has been allocated."""
    dtypes: Mapping[str, DType] = field(default_factory=dict[str, DType])
    """Of the scalars."""
    zeroed: frozenset[str] = frozenset()
    """Outputs that were allocated for the call and are written in part: on the host they hold
    zeros, on a GPU the launch fills them, in the order of its stream."""

    @property
    def device(self) -> str:
        """Where all arrays are: "cuda:0", "cpu"."""
        return next((v.device for v in self.views.values()), "cpu")

    def result(self) -> Any:
        """The output, or a tuple of several, once the call has run."""
        written = [self.views[name] for name in self.outputs]
        if tensors := [view.keepalive for view in written if view.framework == "torch"]:
            count_writes(tensors)
        found = tuple(self.arrays[name] for name in self.outputs)
        return found[0] if len(found) == 1 else found

    def on_host(self) -> dict[str, Any]:
        """The call's host arrays as NumPy arrays of the same memory; packed tensors are unpacked
        copies.
        """
        return {name: self.host(name) for name in self.arrays}

    def host(self, name: str) -> Any:
        """One of them. torch gives none of its own of bf16 and fp8, and JAX none that can be
        written.
        """
        view = self.views[name]
        view = replace(view, readonly=False) if name in self.outputs else view
        return _as_numpy(self.arrays[name], view)

    def tma_blocked(self) -> dict[str, list[str]]:
        """Tensors that no tensor map can describe, and why."""
        faults = {
            name: tma_faults(view, written=name in self.outputs)
            for name, view in self.views.items()
        }
        return {name: f for name, f in faults.items() if f}


def _as_numpy(held: Any, view: ArrayView) -> Any:
    # Of 4 bits its bytes.
    dtype = view.dtype if view.dtype.bits >= 8 else DTYPES["u8"]
    if view.packed:
        held = held.unpack()
        # A copy, since the unpacked array has no other reference.
        return host_array(replace(describe(held), dtype=dtype)).copy()
    if dtype == view.dtype and tuple(held.shape) != view.shape:
        # The array contains a tensor of another type.
        return host_array(view)
    if view.framework not in ("torch", "jax"):
        return held
    if dtype == view.dtype:
        return host_array(view)
    return host_array(replace(describe(held), dtype=dtype, readonly=view.readonly))


def in_order(
    name: str,
    params: Sequence[Value],
    access: Access,
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> tuple[Any, ...]:
    """The arguments of a call by position, None for outputs that are left out; `args` are those of
    the first parameters. LaunchError for a name that the kernel does not have, that is given twice,
    or of an input that is missing.
    """
    names = [p.name for p in params]
    if not args and set(named) == set(names):
        return tuple([named[n] for n in names])
    findings = unknown_names(named, names, f"WS0700 {name}()", OPTIONS)
    if len(args) > len(names):
        message = f"WS0701 {name}() has {len(args)} arguments, expected at most {len(names)}"
        findings.append(Finding(message, None, f"give {', '.join(names)}"))
    given = dict(zip(names, args))
    twice = [n for n in named if n in given]
    findings += [Finding(f"WS0702 {name}(): `{n}` is given by position and by name") for n in twice]
    given |= named
    missing = [n for n in names if n not in given and n not in access.only_written]
    if missing and not findings:
        message = f"WS0703 {name}(): {', '.join(f'`{n}`' for n in missing)} missing"
        findings.append(Finding(message, None, f"give {', '.join(missing)}"))
    if findings:
        raise LaunchError(findings)
    return tuple(given.get(n) for n in names)


def resolve(
    name: str,
    params: Sequence[Value],
    access: Access,
    args: Sequence[Any],
    sizes: Mapping[str, int] | None = None,
) -> Call:
    """Describe, check, and allocate the outputs that are left out (or None).

    `name` is the kernel's. LaunchError with all that is wrong. `access` of the TILE level asks
    nothing of alignment; give that of a SCHEDULED kernel to check it for that one too.
    """
    sources = match_arguments(name, params, access, args)
    given = {name: args[i] for name, i in sources.items()}
    views: dict[str, ArrayView] = {}
    scalars: dict[str, Scalar] = {}
    findings: list[Finding] = []
    where = positions(params)
    for param in params:
        if param.name not in given:
            continue
        value = given[param.name]
        try:
            if isinstance(param.type, Tensor):
                views[param.name] = adapt(describe(value), param.type.dtype)
            else:
                assert isinstance(param.type, Tile)
                scalars[param.name] = number = as_scalar(value, param.type.dtype)
                if param.name in access.positive and not number > 0:
                    message = f"WS0704 {number} is not positive; results would depend on tile sizes"
                    hint = "multiply before a maximum is taken: max(x * scale, over=t)"
                    raise LaunchError(message, hint=hint)
        except LaunchError as error:
            findings += [f.within(where[param.name]) for f in error.findings]
    if findings:
        raise LaunchError(findings)
    dims = bind(params, views, sizes, access=access)
    arrays = {n: _held(v, views[n]) for n, v in given.items() if n in views}
    missing = [p for p in params if p.name not in given]
    zeroed = frozenset(p.name for p in missing if not access.writes_whole(p.name, dims))
    for param in missing:
        arrays[param.name] = _allocate(param, views, dims, where, zeros=param.name in zeroed)
        views[param.name] = adapt(describe(arrays[param.name]), param.as_tensor.dtype)
    order = [p.name for p in params if p.name in views]
    views = {n: views[n] for n in order}
    if missing:
        allocated = frozenset(p.name for p in missing)
        dims = bind(params, views, sizes, access=access, allocated=allocated)
    outputs = tuple(n for n in order if n in access.writes)
    dtypes = {p.name: p.type.dtype for p in params if isinstance(p.type, Tile)}
    return Call(arrays, views, scalars, dims, outputs, sources, dtypes, zeroed)


def _held(value: Any, view: ArrayView) -> Any:
    """The array that runs: of a bare view on the host, a NumPy array of that memory."""
    bare = isinstance(value, ArrayView) and value.device == "cpu"
    return host_array(view) if bare else value


def match_arguments(
    name: str, params: Sequence[Value], access: Access, args: Sequence[Any]
) -> dict[str, int]:
    """Which argument each parameter is given; not those that are left out, or None. With fewer than
    all, the outputs are those left out. LaunchError where it does not come out.
    """
    optional = access.only_written
    shorter = [p for p in params if p.name not in optional]
    if len(args) == len(params):
        chosen = params
    elif len(args) == len(shorter):
        chosen = shorter
    elif len(shorter) < len(args) < len(params) and all(
        p.name in optional for p in params[len(args) :]
    ):
        chosen = params[: len(args)]
    else:
        names = ", ".join(p.name for p in params)
        without = f", or {len(shorter)} without its outputs" if shorter != list(params) else ""
        message = f"WS0705 {name}() has {len(args)} arguments, expected {len(params)} ({names})"
        message += without
        read = [p.name for p in params if p.name in access.writes - optional]
        hint = f"give {', '.join(read)}: the kernel reads it (as `+=` does)"
        raise LaunchError(message, hint=hint if read else "")
    given = {p.name: i for i, (p, arg) in enumerate(zip(chosen, args)) if arg is not None}
    where = positions(params)
    findings: list[Finding] = []
    for param in params:
        if param.name not in given and param.name not in optional:
            reason = "reads its elements" if param.name in access.writes else "only reads it"
            findings.append(Finding(f"WS0706 {where[param.name]}: it is None; the kernel {reason}"))
    if findings:
        raise LaunchError(findings)
    return given


def _allocate(
    param: Value,
    views: Mapping[str, ArrayView],
    dims: Mapping[str, int],
    where: Mapping[str, str],
    *,
    zeros: bool,
) -> Any:
    assert isinstance(param.type, Tensor)
    place = where[param.name]
    unknown = [d for d in param.type.dims if isinstance(d, str) and d not in dims]
    if unknown:
        message = f"WS0707 {place}: left out, and no other argument has the size of {unknown[0]}"
        raise LaunchError(message, hint=f"give {param.name}")
    if not views:
        message = f"WS0708 {place}: left out, and no other array has a framework and device"
        raise LaunchError(message, hint=f"give {param.name}")
    shape = [d if isinstance(d, int) else dims[d] for d in param.type.dims]
    try:
        like = next(iter(views.values()))
        return allocate(like, shape, param.type.dtype, zeros=zeros and not like.on_gpu)
    except LaunchError as error:
        raise LaunchError([f.within(place) for f in error.findings]) from None


def as_scalar(value: Any, dtype: DType) -> Scalar:
    """A number of Python or NumPy as a scalar argument of `dtype`; LaunchError if it does not fit.

    A tensor of one element is rejected: reading it would wait for the GPU.
    """
    has_elements = hasattr(value, "shape") and getattr(value, "shape", ()) != ()
    if has_elements or (is_array(value) and not hasattr(value, "__array_interface__")):
        hint = "" if has_elements else "give a number: x.item()"
        raise LaunchError(f"WS0709 an array, expected a number ({dtype})", hint=hint)
    try:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError  # float() would read it
        number = float(value) if dtype.is_float else operator.index(value)
    except (TypeError, ValueError, OverflowError):
        message = f"WS0710 {value!r} of type {type(value).__name__}, expected a number ({dtype})"
        raise LaunchError(message) from None
    if dtype.is_float and not _fits_f32(float(number)):
        hint = "give at most 3.4e38 in magnitude, or float('inf')"
        raise LaunchError(f"WS0711 {value!r} does not fit {dtype}", hint=hint)
    if dtype.is_integer:
        low, high = dtype.limits
        if not low <= number <= high:
            raise LaunchError(f"WS0712 {number} does not fit {dtype}, expected {low} to {high}")
    return number


def _fits_f32(number: float) -> bool:
    try:
        struct.pack("<f", number)
    except OverflowError:
        return False
    return True
