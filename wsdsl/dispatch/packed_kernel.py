"""`Kernel.packed` and `Kernel.pack`: kernels that take tensors in the order of fragments, or scales
in atoms.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from wsdsl.diagnostics import Finding, LaunchError, unknown_names
from wsdsl.dispatch.dispatcher import Dispatcher, DispatcherT
from wsdsl.dispatch.scale_tensors import scale_tensors, with_atoms
from wsdsl.ir.hardware.packed_layout import MAX_PACKED_RANK, packed_swizzle
from wsdsl.ir.hardware.scale_factor_atoms import BLOCKS, ROWS, SHAPE
from wsdsl.ir.op import Kernel as Tile
from wsdsl.ir.op import Value
from wsdsl.ir.rewriter import replace_operands
from wsdsl.ir.types import Tensor
from wsdsl.runtime.arrays.packed import bytes_of, contiguous, transposed, with_zeros


def packed_kernel(kernel: DispatcherT, names: Sequence[str]) -> DispatcherT:
    """Return the kernel with these tensors packed, derived on first use."""
    known: dict[tuple[str, ...], DispatcherT] = kernel.__dict__.setdefault("_packed", {})
    key = tuple(sorted({*names}))
    if key not in known:
        check(kernel, key)
        known.setdefault(key, _derive(kernel, key))
    return known[key]


def check(kernel: Dispatcher, names: Sequence[str]) -> None:
    """LaunchError for tensors that cannot be packed."""
    params = {p.name: p.type for p in kernel.params}
    findings = unknown_names(names, params, f"WS0016 {kernel.name}.packed()")
    scales = scale_tensors(kernel.tile_ir)
    for name in names:
        kind = params.get(name)
        if name in scales:
            continue
        if isinstance(kind, Tensor):
            findings += (Finding(f"WS0017 {name}: {why}") for why in _faults(kernel, name, kind))
        elif kind is not None:
            findings.append(Finding(f"WS0018 {name} is a scalar; tensors can be packed"))
    if findings:
        raise LaunchError(findings)


def _faults(kernel: Dispatcher, name: str, kind: Tensor) -> list[str]:
    found: list[str] = []
    if name in kernel.access.writes:
        found.append("the kernel writes it; inputs can be packed")
    if not packed_swizzle(kind.dtype):
        found.append(f"its elements are {kind.dtype}; those of 4, 8 and 16 bits can be packed")
    if not 2 <= len(kind.dims) <= MAX_PACKED_RANK:
        found.append(f"{kind}: tensors of 2 to {MAX_PACKED_RANK} dimensions can be packed")
    return found


def _derive(kernel: DispatcherT, names: Sequence[str]) -> DispatcherT:
    result = kernel.derived(lambda tile: _with_packed(tile, names), f"packed {', '.join(names)}")
    result._schedule = kernel._schedule  # pyright: ignore[reportPrivateUsage]
    return result


def _with_packed(tile: Tile, names: Sequence[str]) -> Tile:
    scales = {*scale_tensors(tile)} & {*names}
    tile, names = with_atoms(tile, scales), [name for name in names if name not in scales]
    changed = dict[Value, Value]()
    for param in tile.params:
        if param.name in names and isinstance(param.type, Tensor):
            changed[param] = Value(param.name, dataclasses.replace(param.type, packed=True))
    params = tuple(changed.get(p, p) for p in tile.params)
    body = tuple(replace_operands(op, changed) for op in tile.body)
    return dataclasses.replace(tile, params=params, body=body)


def packable(kernel: Dispatcher) -> list[str]:
    """Return the tensors whose transformed operands have their layout."""
    from wsdsl.lowering.packed_operands import packable_tensors

    return [v.name for v in packable_tensors(kernel.tile_ir)]


def pack_arrays(kernel: Dispatcher, arrays: Sequence[Any], named: Mapping[str, Any]) -> Any:
    from wsdsl.runtime.arrays.packed import pack

    given = dict(named)
    if arrays:
        names = packable(kernel)
        if len(names) != len(arrays):
            message = f"WS0019 {kernel.name}.pack() has {len(arrays)} arrays by position, expected "
            message += f"{len(names)}: its transformed operands are {', '.join(names) or 'none'}"
            raise LaunchError(message, hint="give them by name: pack(W=w)")
        given |= dict(zip(names, arrays, strict=True))
    check(kernel, tuple(given))
    params = {p.name: p for p in kernel.params}
    result, scales = list[Any](), scale_tensors(kernel.tile_ir)
    for name, array in given.items():
        dtype = params[name].as_tensor.dtype
        result.append(pack_scales(array) if name in scales else pack(array, dtype))
    return result[0] if len(result) == 1 else tuple(result)


# Scale factors in atoms, by operations of the framework.
def pack_scales(array: Any) -> Any:
    """Convert scale factors [rows, blocks], of one byte each, to atoms, padded with zeros."""
    if len(array.shape) < 2 or not all(array.shape) or array.itemsize != 1:
        found = f"shape {tuple(array.shape)} and {array.itemsize} bytes per element"
        raise LaunchError(f"WS0020 block scale factors have {found}, expected [rows, blocks] and 1")
    *outer, rows, blocks = array.shape
    raw = contiguous(array).view(bytes_of(array))
    raw = with_zeros(raw, [(0, -rows % ROWS), (0, -blocks % BLOCKS)])
    atoms = -(-rows // ROWS), -(-blocks // BLOCKS)
    cut = [*outer, atoms[0], BLOCKS, ROWS // BLOCKS, atoms[1], BLOCKS]
    first = len(outer)
    order = [*range(first), *(first + i for i in (0, 3, 2, 1, 4))]
    result = contiguous(transposed(raw.reshape(cut), order))
    return result.reshape([*outer, *atoms, *SHAPE]).view(array.dtype)
