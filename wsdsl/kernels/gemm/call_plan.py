"""From a call's operands to a kernel and what it is given, once for each geometry."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.ir.types import DTYPES, DType
from wsdsl.kernels.gemm.matmul_source import BATCHES, Form, Param
from wsdsl.kernels.gemm.operands import ARRAYS, Operands, Options
from wsdsl.kernels.gemm.strided import batch_axes, contiguous_last, merge_batches
from wsdsl.runtime.arrays.views import ArrayView, byte_range
from wsdsl.schedule import Schedule

OPERANDS = {"a": "A", "b": "B"}
"""The kernel's parameters, by a call's arguments."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A kernel's parameter: the argument that it is made of, and as what it is taken there.

    `low` and `high` are the first byte and the one past the last, from the address.
    """

    argument: str
    param: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int = 0
    high: int = 0

    def view(self, held: ArrayView) -> ArrayView:
        """The same memory, walked as the kernel walks it."""
        if held.strides == self.strides and held.shape == self.shape and held.dtype == self.dtype:
            return held
        return ArrayView(
            held.pointer, self.dtype, self.shape, self.strides,
            held.device, held.readonly, held.framework, held.keepalive,
        )  # fmt: skip


@dataclass(slots=True)
class Plan:
    """`shape` and `dtype` are the result's. `numbers`: the scalar parameters."""

    form: Form
    slots: tuple[Slot, ...]
    numbers: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: DType
    dims: Mapping[str, int] | None = None
    """The kernel's, once a call of these arrays' geometry has been checked."""
    compiled: dict[tuple[Schedule | None, tuple[str, ...], int, bool, bool], Compiled] = field(
        default_factory=dict
    )
    """By the schedule that was asked for, constant operands, the alignment of `out`, whether
    ptxas has seen it in any case, and whether it is for these very sizes.
    """


def make_plan(views: Mapping[str, ArrayView], options: Options) -> Plan:
    """`views` by the names in ARRAYS. LaunchError with what does not fit."""
    o = Operands(views, options)
    batch = merge_batches(o.sizes, batch_axes(len(o.batch)), o.strides.values())
    if len(batch) > len(BATCHES):
        left = " x ".join(str(o.sizes[x]) for x in batch)
        message = f"WS0814 {len(batch)} batch dimensions ({left}) are left, expected {len(BATCHES)}"
        raise LaunchError(message, hint="make the operands contiguous, or split the call")
    names = dict(zip(batch, BATCHES))
    params: dict[str, Param | None] = dict.fromkeys(ARRAYS)
    slots: list[Slot] = []
    for name in ARRAYS:
        if name in options.numbers:
            params[name] = Param(name, DTYPES["f32"])
        elif name in o.axes:
            dtype = o.out if name == "out" else o.views[name].dtype
            params[name], slot = _parameter(o, name, dtype, names)
            slots.append(slot)
    form = o.form(params, tuple(names.values()))
    return Plan(form, tuple(slots), options.numbers, o.shape, o.out)


def _parameter(
    o: Operands, name: str, dtype: DType, names: Mapping[str, str]
) -> tuple[Param, Slot]:
    """How the kernel takes a tensor: which dimensions, and the contiguous one last."""
    strides, sizes, matrix = o.strides[name], o.sizes, o.axes[name]
    if not matrix:
        return Param(name, dtype, ("1",)), _slot(name, name, dtype, (1,), (1,))
    if len(matrix) == 2:
        either = name not in ("a", "b") or dtype.bits == 16
        order = matrix if name != "b" else (matrix[1], matrix[0])
        found = contiguous_last(strides, sizes, (order[0], order[1]), either=either)
        if found is None and o.views[name].is_empty:
            found, strides = order, strides | {order[0]: 1, order[1]: 1}
        if found is None:
            raise LaunchError(_not_contiguous(name, o.views[name], dtype, either))
        matrix = found
    elif sizes[matrix[0]] > 1 and strides[matrix[0]] != 1:
        message = f"WS0815 {name} has stride {strides[matrix[0]]}, expected 1"
        raise LaunchError(message, hint="make it contiguous")
    kept = [x for x in names if x in strides or name == "out"]
    axes = (*kept, *matrix)
    title = OPERANDS.get(name, name)
    param = Param(title, dtype, tuple(names.get(x, x) for x in axes))
    shape, walked = tuple(sizes[x] for x in axes), tuple(strides.get(x, 0) for x in axes)
    return param, _slot(name, title, dtype, shape, walked)


def _slot(
    name: str, param: str, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Slot:
    low, high = byte_range(ArrayView(0, dtype, shape, strides, ""))
    return Slot(name, param, dtype, shape, strides, low, high)


def _not_contiguous(name: str, view: ArrayView, dtype: DType, either: bool) -> Finding:
    where = f"{name} has shape {view.shape} and strides {view.strides}"
    if either:
        message = f"WS0816 {where}: neither of its last two axes is contiguous"
        return Finding(message, hint="make it contiguous")
    other = {
        "a": "make it row-major",
        "b": "store b as [N, K], and give its transpose, or give it with transpose_b=True",
    }
    message = f"WS0817 {where}: tensor cores need a contiguous K of {dtype} operands"
    return Finding(message, hint=other[name])
