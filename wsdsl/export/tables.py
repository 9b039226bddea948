"""Generate the C launcher of an export: launcher.h and launcher.c with tables of the kernels."""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wsdsl.artifact import signature as args
from wsdsl.artifact.artifact import ON_ONE_AXIS, Artifact
from wsdsl.artifact.dispatch_table import Form
from wsdsl.export.manifest import MIN_DRIVER, VERSION
from wsdsl.ir.hardware.swizzle import PACKED_SPAN
from wsdsl.ir.hardware.target import target_of
from wsdsl.ir.types import Tensor
from wsdsl.runtime.arrays.dlpack import types_of
from wsdsl.runtime.tensor_map_encoding import DATA_TYPES, SWIZZLES

INTEGERS = ("UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64")
TYPES = (*INTEGERS, "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16")
"""CUtensorMapDataType."""
F32_MAX = 2.0**128 - 2.0**104
SCHEDULERS = {"persistent": "PERSISTENT", "split_k": "SPLIT_K", "stream_k": "STREAM_K"}


def launcher(
    form: Form, kernels: Sequence[Artifact], cubins: Sequence[tuple[str, bytes]], manifest: str
) -> dict[str, str]:
    """Return header and source by file name; `cubins`: their names and contents."""
    declared: Any = form.declaration.params
    params, name = [p.name for p in declared], kernels[0].name
    tables, forms, dims = list[str](), list[Any](), dict[int, Sequence[str]]()
    _add(form, tables, forms, dims)
    rows = [_kernel(*x, dims[i], i, tables) for i, x in enumerate(zip(kernels, cubins))]
    numbers = dict(VERSION=VERSION, NUM_PARAMETERS=len(params), NUM_KERNELS=len(kernels))
    quoted = [f'"{param}"' for param in params]
    numbers["MIN_DRIVER"] = 1000 * MIN_DRIVER[0] + 10 * MIN_DRIVER[1]
    tables += _array("kernel_t", "kernels", rows), _array("form_t", "forms", forms)
    tables.append(_array("dtype_t", "dtypes", [_dtype(p, form) for p in declared]))
    lines = (
        f"enum {{ {', '.join(f'{k} = {v}' for k, v in numbers.items())} }};",
        f"static const uint32_t CHECKSUM = {zlib.crc32(manifest.encode())}u;",
        f"static const char *const names[] = {_list(tuple(quoted))};",
        *tables,
    )
    files = "launcher.c", "launcher.h", "tvm_ffi.c"
    source, header, tvm_ffi = (Path(__file__).with_name(x).read_text() for x in files)
    header = header.replace("PARAMETERS", ", ".join(f"{name}_arg_{x}" for x in params))
    source = source.replace("TABLES", "\n".join(lines)) + tvm_ffi
    return {f"{name}.{x}": text.replace("NAME", name) for x, text in zip("ch", (source, header))}


def _add(
    form: Form,
    tables: list[str],
    forms: list[Any],
    of_kernel: dict[int, Sequence[str]],
    name: str = "",
) -> int:
    """Add the tables of a form and its forms; return its index."""
    index, declared = len(forms), form.declaration
    dims, names = declared.dims, [p.name for p in declared.params]

    def mask(tensors: Sequence[str]) -> str:
        return f"{sum(1 << names.index(x) for x in tensors)}ull"

    writes, variants = declared.access.writes, list[Any]()
    tensors = [_tensor(p.type, dims, p.name in writes) for p in declared.params]
    for each in form.variants:
        of_kernel[each.kernel] = dims
        masks, spans = (mask(each.unaligned + each.padded), mask(each.padded)), dict(each.spans)
        rows = tuple((s.low, s.high, s.step, s.unlike) for s in map(spans.__getitem__, dims))
        variants.append((each.kernel, _capability(each.arch), *masks, rows))
    tables.append(_array("tensor_t", f"tensors_{index}", tensors))
    tables.append(_array("variant_t", f"variants_{index}", variants or [()]))
    forms.append(None)
    pairs = zip(form.forms, declared.forms, strict=True)
    inner = tuple(_add(f, tables, forms, of_kernel, name) for f, name in pairs)
    head = len(dims), len(variants), len(inner), name == ON_ONE_AXIS
    forms[index] = *head, f"tensors_{index}", f"variants_{index}", inner
    return index


def _kernel(
    artifact: Artifact, cubin: tuple[str, bytes], dims: Sequence[str], i: int, tables: list[str]
) -> Any:
    own, (file, data) = artifact.signature, cubin
    types = {p.name: p.type for p in artifact.params} | {t.name: t.type for t in own.lent}
    dims, writes = [*dims, *(str(t.type.dims[0]) for t in own.lent)], artifact.access.writes
    rows = [_argument(x, types, dims, writes) for x in own.arguments]
    tables.append(_array("argument_t", f"arguments_{i}", rows))
    lent = tuple(
        (dims.index(str(t.type.dims[0])), t.zeroed, t.each, _tensor(t.type, dims, True))
        for t in own.lent
    )
    tiles, depth = (tuple((dims.index(d), n) for d, n in x) for x in (own.tiles, own.contraction))
    head = f'"{file}"', f"{zlib.crc32(data)}u", _capability(artifact.schedule.arch), own.threads
    grid = own.smem_bytes, own.cluster, SCHEDULERS.get(own.scheduler, "GRID"), own.splits
    rest = own.together, own.ctas_per_sm, own.waits, own.widths, own.narrowed
    sizes = len(tiles), len(depth), len(lent), len(rows)
    arrays = (x or ((),) for x in (tiles, depth, lent))
    return *head, *grid, *rest, *sizes, *arrays, f"arguments_{i}"


def _argument(
    x: args.Argument, types: Mapping[str, Any], dims: Sequence[str], writes: frozenset[str]
) -> Any:
    at = {name: i for i, name in enumerate(types)}
    match x:
        case args.MapArgument(tensor=name):
            dtype, packed = types[name].dtype, x.swizzle in PACKED_SPAN
            kind = DATA_TYPES.get(dtype.name, f"UINT{max(8, dtype.bits)}")
            how = (0, 0) if packed else (TYPES.index(kind), [*SWIZZLES].index(x.swizzle))
            flags = packed, name in writes and not packed, x.narrowed
            return "MAP", at[name], 0, *how, *flags, -1, x.box
        case args.PointerArgument(tensor=name):
            return "POINTER", at[name]
        case args.StrideArgument(tensor=name, known=known):
            return "STRIDE", at[name], x.dim, 0, 0, 0, 0, 0, -1 if known is None else known
        case args.SizeArgument(dim=dim):
            return "SIZE", 0, dims.index(dim)
        case args.ScalarArgument(name=name):
            return "FLOAT" if x.dtype.is_float else "INTEGER", at[name]
        case args.NarrowingArgument():
            return ("NARROWING",)


def _tensor(kind: Any, dims: Sequence[str], written: bool) -> Any:
    if not isinstance(kind, Tensor):
        return (-1,)
    sizes = tuple(dims.index(d) if isinstance(d, str) else -1 - d for d in kind.dims)
    bits = 4 if kind.dtype.bits == 4 else 8 * kind.dtype.bytes
    return len(sizes), bits, kind.packed, written, sizes


def _capability(arch: str) -> int:
    major, minor = target_of(arch).capability  # pyright: ignore[reportArgumentType]
    return 10 * major + minor


def _dtype(param: Any, form: Form) -> tuple[Any, ...]:
    dtype, positive = param.type.dtype, param.name in form.declaration.access.positive
    limits = (-F32_MAX, F32_MAX) if dtype.is_float else dtype.limits
    return f'"{dtype}"', dtype.is_float, positive, *limits, types_of(dtype)


def _list(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{{{', '.join(map(_list, value)) or '0'}}}"
    return str(int(value) if isinstance(value, bool) else value)


def _array(kind: str, name: str, rows: Sequence[Any]) -> str:
    body = ",\n    ".join(map(_list, rows))
    return f"static const {kind} {name}[] = {{\n    {body}}};"
