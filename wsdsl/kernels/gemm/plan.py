"""From a call's operands to a kernel and what it is given, once for each geometry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.ir.types import DTYPES, DType
from wsdsl.kernels.gemm.form import BATCHES, Form, Param
from wsdsl.kernels.gemm.operands import ARRAYS, Operands, Options
from wsdsl.kernels.gemm.strided import batch_axes, contiguous_last, merge_batches
from wsdsl.runtime.views import ArrayView


@dataclass(frozen=True, slots=True)
class Slot:
    """A kernel's parameter: the argument that it is made of, as what it is taken there."""

    argument: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """`shape` and `dtype` are the result's; a slot without a view's geometry is a number."""

    form: Form
    slots: tuple[Slot, ...]
    shape: tuple[int, ...]
    dtype: DType


def make_plan(views: Mapping[str, ArrayView], options: Options) -> Plan:
    """`views` by the names in ARRAYS. LaunchError with what does not fit."""
    o = Operands(views, options)
    batch = merge_batches(o.sizes, batch_axes(len(o.batch)), o.strides.values())
    if len(batch) > len(BATCHES):
        left = " x ".join(str(o.sizes[x]) for x in batch)
        message = f"{len(batch)} batch dimensions can not be walked as fewer ({left})"
        hint = f"at most {len(BATCHES)}: make the operands contiguous, or split the call"
        raise LaunchError(Finding(message, hint=hint))
    names = dict(zip(batch, BATCHES))
    params: dict[str, Param | None] = dict.fromkeys(ARRAYS)
    slots: dict[str, Slot] = {}
    for name in ARRAYS:
        if name in options.numbers:
            params[name], slots[name] = Param(name, DTYPES["f32"]), Slot(name, (), ())
        elif name in o.axes:
            dtype = o.out if name == "out" else o.views[name].dtype
            params[name], slots[name] = _parameter(o, name, dtype, names)
    form = o.form(params, tuple(names.values()))
    ordered = [x for x in ARRAYS if x in slots]
    return Plan(form, tuple(slots[x] for x in ordered), o.shape, o.out)


def _parameter(
    o: Operands, name: str, dtype: DType, names: Mapping[str, str]
) -> tuple[Param, Slot]:
    """How the kernel takes a tensor: which dimensions, and the contiguous one last."""
    strides, sizes, matrix = o.strides[name], o.sizes, o.axes[name]
    if not matrix:
        return Param(name, dtype, ("1",)), Slot(name, (1,), (1,))
    if len(matrix) == 2:
        either = name not in ("a", "b") or dtype.bits == 16
        order = matrix if name != "b" else (matrix[1], matrix[0])
        found = contiguous_last(strides, sizes, (order[0], order[1]), either=either)
        if found is None:
            raise LaunchError(_not_contiguous(name, o.views[name], dtype, either))
        matrix = found
    elif sizes[matrix[0]] > 1 and strides[matrix[0]] != 1:
        message = f"{name} has stride {strides[matrix[0]]}, expected 1"
        raise LaunchError(Finding(message, hint="make it contiguous"))
    kept = [x for x in names if x in strides or name == "out"]
    axes = (*kept, *matrix)
    title = {"a": "A", "b": "B"}.get(name, name)
    param = Param(title, dtype, tuple(names.get(x, x) for x in axes))
    shape = tuple(sizes[x] for x in axes)
    return param, Slot(name, shape, tuple(strides.get(x, 0) for x in axes))


def _not_contiguous(name: str, view: ArrayView, dtype: DType, either: bool) -> Finding:
    where = f"{name} has shape {view.shape} and strides {view.strides}"
    if either:
        return Finding(
            f"{where}: neither of its last two axes is contiguous", hint="make it contiguous"
        )
    other = {
        "a": "give it row-major",
        "b": "store b as [N, K], and give b.T of it, or it with transpose_b=True",
    }
    return Finding(
        f"{where}: of {dtype} the tensor cores take only operands whose K is contiguous",
        hint=other[name],
    )
