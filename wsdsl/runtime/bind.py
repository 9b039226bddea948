"""Do a call's arrays fit the kernel? All that does not is said at once, before anything runs."""

from collections.abc import Mapping, Sequence

from wsdsl.artifact.artifact import Access
from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.ir.hardware.gmem_limits import MAX_SIZE
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.types import DType, Tensor, Value
from wsdsl.runtime.arrays import views
from wsdsl.runtime.arrays.padded_copies import padded


def bind(
    params: Sequence[Value],
    arguments: Mapping[str, views.ArrayView],
    sizes: Mapping[str, int] | None = None,
    *,
    access: Access | None = None,
    allocated: frozenset[str] = frozenset(),
) -> dict[str, int]:
    """The sizes of the named dimensions; LaunchError with every finding where arrays do not fit.

    `sizes` are those that the kernel was compiled for. Without `access` no tensor counts as
    written or as accessed by TMA. Tensors in `allocated` were made for this call.
    """
    access = access or Access()
    findings: list[Finding] = []
    dims: dict[str, tuple[int, str]] = {
        name: (size, "the kernel was compiled for") for name, size in (sizes or {}).items()
    }
    where = positions(params)
    # Those of 4 bits last, so that an odd size is known from arrays that show it.
    for param in sorted(params, key=_is_packed):
        view = arguments.get(param.name)
        if isinstance(param.type, Tensor) and view is not None:
            given = param.name in access.writes - allocated
            found = [*_layout(param.type, view, given), *_dims(param, view, where, dims)]
            if given:
                found += _writable(view)
            if not found:
                found += _aligned(view, access.alignment.get(param.name, 1))
                if param.name in access.mapped:
                    faults = _map_faults(view, written=param.name in access.writes)
                    found += [Finding(f"WS0713 {m}", hint=_realign(view)) for m in faults]
            findings += [f.within(where[param.name]) for f in found]
    findings += _devices(arguments, where)
    if not findings:
        findings += _overlaps(arguments, access, where)
    if findings:
        raise LaunchError(findings)
    return {name: size for name, (size, _) in dims.items()}


def positions(params: Sequence[Value]) -> dict[str, str]:
    """How messages call each parameter: "argument 2 (B)"."""
    return {p.name: f"argument {i} ({p.name})" for i, p in enumerate(params, 1)}


def _is_packed(param: Value) -> bool:
    return isinstance(param.type, Tensor) and param.type.dtype.bits == 4


def _conversion(view: views.ArrayView, dtype: DType) -> str:
    name = views.FRAMEWORK_NAMES[dtype.name]
    if dtype.bits == 4:
        return "give a uint8 array of half the width, two elements per byte, low nibble first"
    if dtype.name in views.OF_SIX_BITS and view.framework != "numpy":
        return "give its bits as an array of uint8, one element per byte"
    if view.framework == "cupy" and dtype.name in views.OF_ML_DTYPES:
        return f"give its bits as an array of uint{dtype.bits}: .view('uint{dtype.bits}')"
    kind, convert = f'"{name}"', "astype"
    if view.framework == "torch":
        kind, convert = f"torch.{name}", "to"
    elif view.framework == "numpy" and dtype.name in views.OF_ML_DTYPES:
        kind = f"ml_dtypes.{name}"
    if view.dtype.kind == "uint" and dtype.is_float and view.dtype.bits == dtype.bits:
        return f"reinterpret its bits: .view({kind}); or convert its values: .{convert}({kind})"
    return f"convert it: .{convert}({kind})"


def _layout(tensor: Tensor, view: views.ArrayView, written: bool) -> list[Finding]:
    found: list[Finding] = []
    if view.packed != tensor.packed:
        hint = "pack it: kernel.pack(array)" if tensor.packed else "give the array: .unpack()"
        state = "packed" if view.packed else "not packed"
        return [Finding(f"WS0714 the array is {state}, expected {tensor}", hint=hint)]
    if view.dtype != tensor.dtype:
        held, wanted = view.dtype.name, tensor.dtype.name
        hint = _conversion(view, tensor.dtype)
        if written and hint.startswith("convert it"):
            # A copy would be written.
            hint = f"allocate it as {wanted}, or leave the output out"
        found.append(Finding(f"WS0715 dtype is {held}, expected {wanted}", hint=hint))
    if len(view.shape) != len(tensor.dims):
        rank, wanted = len(view.shape), len(tensor.dims)
        message = f"WS0716 rank is {rank} (shape {view.shape}), expected {wanted}: {tensor}"
        found.append(Finding(message, hint="reshape it"))
    elif view.shape and view.shape[-1] > 1 and not view.is_empty and view.strides[-1] != 1:
        message = f"WS0717 the last axis has stride {view.strides[-1]}, expected 1"
        hint = "make it contiguous"
        if view.strides[-1] > 1:
            hint += ", or declare the parameter with its axes in the other order"
        found.append(Finding(message, hint=hint))
    return found


def _dims(
    param: Value, view: views.ArrayView, where: Mapping[str, str], dims: dict[str, tuple[int, str]]
) -> list[Finding]:
    found: list[Finding] = []
    if len(view.shape) != len(param.as_tensor.dims):
        return found
    for axis, (dim, size) in enumerate(zip(param.as_tensor.dims, view.shape)):
        if _is_packed(param) and axis == len(view.shape) - 1:
            known, source = (dim, "") if isinstance(dim, int) else dims.get(dim, (size, ""))
            if known == size - 1:
                declared = f"{source} {dim} = {known}" if source else f"{dim} are declared"
                kind = param.as_tensor.dtype
                message = f"WS0718 axis {axis} has two elements of {kind} per byte, but {declared}"
                hint = f"pad all arrays to {size}: the last dimension of a 4-bit tensor is even"
                found.append(Finding(message, hint=hint))
                continue
        if size > MAX_SIZE:
            message = f"WS0719 axis {axis} has size {size}, expected at most {MAX_SIZE}"
            found.append(Finding(message, hint="split the call"))
        if isinstance(dim, int):
            if size != dim:
                message = f"WS0720 axis {axis} has size {size}, expected {dim}: {param.as_tensor}"
                found.append(Finding(message, hint="give the size that the kernel fixes"))
            continue
        known, source = dims.setdefault(dim, (size, f"axis {axis} of {where[param.name]} has"))
        if known != size:
            message = f"WS0721 axis {axis} ({dim}) has size {size}, but {source} {dim} = {known}"
            hint = f"give arrays whose sizes of {dim} agree: {param.as_tensor}"
            found.append(Finding(message, hint=hint))
    return found


def _writable(view: views.ArrayView) -> list[Finding]:
    if view.readonly and view.framework == "jax":
        hint = "leave the output out; it is allocated and returned"
        return [Finding("WS0722 the kernel writes it, but JAX arrays are immutable", hint=hint)]
    if view.readonly:
        hint = "give a writable array, or leave the output out"
        return [Finding("WS0723 the kernel writes it, but the array is read-only", hint=hint)]
    if views.overlaps_itself(view):
        geometry = f"shape {view.shape}, strides {view.strides}"
        message = f"WS0724 the kernel writes it, but its elements share memory ({geometry})"
        return [Finding(message, hint="give an array with separate elements: copy the view")]
    return []


def _aligned(view: views.ArrayView, alignment: int) -> list[Finding]:
    needed = max(alignment, view.dtype.bytes)
    found: list[Finding] = []
    if view.is_empty:
        return found
    if view.pointer % needed:
        message = f"WS0725 the address is {view.pointer:#x}, expected a multiple of {needed} bytes"
        within = needed <= view.dtype.bytes
        found.append(Finding(message, hint="copy it" if within else _realign(view)))
    for axis, stride in views.row_strides(view):
        if stride % needed:
            message = f"WS0726 the stride of axis {axis} is {stride} bytes, expected a multiple of "
            found.append(Finding(f"{message}{needed}", hint=_realign(view)))
    return found


def _realign(view: views.ArrayView) -> str:
    whole = views.normalise(view).strides == views.contiguous_strides(view.shape)
    sized = "compile it for these sizes, or " if whole and not view.pointer % TMA_ALIGN else ""
    return (
        f"{sized}call the kernel itself, which is compiled for the alignment of its arrays; or "
        "copy the array so that its rows start at multiples of 16 bytes"
    )


def _map_faults(view: views.ArrayView, *, written: bool) -> list[str]:
    """Why neither the array nor a copy of it does."""
    faults = views.tma_faults(view, written=written)
    return faults if written or not faults or padded(view) is None else []


def _devices(arguments: Mapping[str, views.ArrayView], where: Mapping[str, str]) -> list[Finding]:
    found: list[Finding] = []
    first: tuple[str, str] | None = None
    for name, view in arguments.items():
        if not view.on_gpu and view.device != "cpu":
            message = f"WS0727 {where[name]}: it is on {view.device}, expected a GPU or the CPU"
            found.append(Finding(message, hint="copy it there"))
        elif first is None:
            first = where[name], view.device
        elif view.device != first[1]:
            message = f"WS0728 {where[name]} is on {view.device}, but {first[0]} is on {first[1]}"
            found.append(Finding(message, hint="move all arrays of a call to one device"))
    return found


def _overlaps(
    arguments: Mapping[str, views.ArrayView], access: Access, where: Mapping[str, str]
) -> list[Finding]:
    found: list[Finding] = []
    names = list(arguments)
    for name in names:
        if name not in access.writes:
            continue
        for other in names:
            # Of two outputs, only the later one complains.
            second = other in access.writes and names.index(other) > names.index(name)
            if other == name or second or not views.overlap(arguments[name], arguments[other]):
                continue
            message = (
                f"WS0729 {where[name]}: the kernel writes it; it shares memory with {where[other]} "
                f"(from {arguments[name].pointer:#x} and {arguments[other].pointer:#x})"
            )
            found.append(Finding(message, hint="give the output separate memory"))
    return found
