"""Generate the C launcher of an export: launcher.h and launcher.c with tables of the kernels."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from wsdsl.artifact.artifact import ON_ONE_AXIS, Artifact
from wsdsl.artifact.dispatch_table import Form, Variant
from wsdsl.artifact.signature import (
    Argument,
    MapArgument,
    NarrowingArgument,
    PointerArgument,
    ScalarArgument,
    SizeArgument,
    StrideArgument,
    WorkspaceTensor,
)
from wsdsl.export.manifest import MIN_DRIVER, VERSION
from wsdsl.ir.op import Value
from wsdsl.ir.swizzle import PACKED_SPAN
from wsdsl.ir.target import target_of
from wsdsl.ir.types import DType, Tensor
from wsdsl.runtime.tensor_map import DATA_TYPES

TYPES = ("UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64",
         "BFLOAT16")  # fmt: skip
"""CUtensorMapDataType."""
SWIZZLES = ("none", "32B", "64B", "128B")
SCHEDULERS = {"persistent": "PERSISTENT", "split_k": "SPLIT_K", "stream_k": "STREAM_K"}


def launcher(
    name: str,
    form: Form,
    kernels: Sequence[Artifact],
    files: Sequence[tuple[str, bytes]],
    manifest: str,
) -> dict[str, str]:
    """Return header and source by file name; `files`: names and contents of the cubins."""
    params = form.declaration.params
    tables = _Tables(params, kernels)
    tables.add(form)
    rows = [tables.kernel(i, file) for i, file in enumerate(files)]
    numbers = {
        "VERSION": VERSION, "NUM_PARAMETERS": len(params), "NUM_KERNELS": len(kernels),
        "MIN_DRIVER": 1000 * MIN_DRIVER[0] + 10 * MIN_DRIVER[1],
    }  # fmt: skip
    names = ", ".join(f'"{p.name}"' for p in params)
    text = "\n".join(
        [
            f"enum {{ {', '.join(f'{k} = {v}' for k, v in numbers.items())} }};",
            f"static const uint32_t CHECKSUM = {zlib.crc32(manifest.encode())}u;",
            f"static const char *const names[] = {{{names}}};",
            *tables.lines,
            _array("kernel_t", "kernels", rows),
            _array("form_t", "forms", tables.forms),
        ]
    )
    enum = ", ".join(f"{name}_arg_{p.name}" for p in params)
    source, header = (Path(__file__).with_name(f"launcher.{x}").read_text() for x in "ch")
    return {
        f"{name}.h": header.replace("PARAMETERS", enum).replace("NAME", name),
        f"{name}.c": source.replace("TABLES", text).replace("NAME", name),
    }


class _Tables:
    """Tables of forms and kernels, by index."""

    def __init__(self, params: Sequence[Value], kernels: Sequence[Artifact]) -> None:
        self.names, self.kernels = [p.name for p in params], kernels
        self.lines, self.forms = list[str](), list[str]()
        self.dims = dict[int, tuple[str, ...]]()
        """Dimensions of each kernel's form."""

    def add(self, form: Form, name: str = "") -> int:
        """Add a form and its forms; return its index."""
        index, declared = len(self.forms), form.declaration
        self.forms.append("")
        writes, dims = declared.access.writes, declared.dims
        tensors = (_tensor(p.type, dims, p.name in writes) for p in declared.params)
        self.lines.append(_array("tensor_t", f"tensors_{index}", tensors))
        variants = [self._variant(variant, dims) for variant in form.variants]
        self.lines.append(_array("variant_t", f"variants_{index}", variants or ["{0}"]))
        inner = [self.add(f, n) for f, n in zip(form.forms, declared.forms, strict=True)]
        head = len(dims), len(variants), len(inner), int(name == ON_ONE_AXIS)
        self.forms[index] = _list(*head, f"tensors_{index}", f"variants_{index}", _list(*inner, 0))
        return index

    def _variant(self, variant: Variant, dims: tuple[str, ...]) -> str:
        self.dims[variant.kernel] = dims
        spans = dict(variant.spans)
        rows = (_list(s.low, s.high, s.step, s.unlike) for s in (spans[dim] for dim in dims))
        masks = self._mask((*variant.unaligned, *variant.padded)), self._mask(variant.padded)
        return _list(variant.kernel, _capability(variant.arch), *masks, _list(*rows))

    def _mask(self, names: Iterable[str]) -> str:
        return f"{sum(1 << self.names.index(name) for name in names)}ull"

    def kernel(self, index: int, file: tuple[str, bytes]) -> str:
        artifact, dims = self.kernels[index], self.dims[index]
        own = artifact.signature
        lent = {tensor.name: i for i, tensor in enumerate(own.lent, len(self.names))}
        dims = *dims, *(str(tensor.type.dims[0]) for tensor in own.lent)
        at = {name: i for i, name in enumerate(self.names)} | lent
        types = {p.name: p.type for p in artifact.params} | {t.name: t.type for t in own.lent}
        arguments = (_argument(a, at, types, dims, artifact.access.writes) for a in own.arguments)
        name = f"arguments_{index}"
        self.lines.append(_array("argument_t", name, arguments))
        extents = (_list(*(_list(dims.index(d), n) for d, n in x)) if x else "{{0}}"
                   for x in (own.tiles, own.contraction))  # fmt: skip
        workspace = (_lent(t, dims) for t in own.lent)
        return _list(
            f'"{file[0]}"', f"{zlib.crc32(file[1])}u", _capability(artifact.schedule.arch),
            own.threads, own.smem_bytes, own.cluster, SCHEDULERS.get(own.scheduler, "GRID"),
            own.splits, int(own.together), own.ctas_per_sm, int(own.waits), own.widths,
            own.narrowed, len(own.tiles), len(own.contraction), len(own.lent), len(own.arguments),
            *extents, _list(*workspace) if own.lent else "{{0}}", name,
        )  # fmt: skip


def _argument(
    argument: Argument, at: dict[str, int], types: dict[str, Any], dims: Sequence[str],
    writes: frozenset[str],
) -> str:  # fmt: skip
    match argument:
        case MapArgument(tensor=name, box=box, swizzle=swizzle, narrowed=narrowed):
            dtype, packed = types[name].dtype, swizzle in PACKED_SPAN
            data_type = DATA_TYPES.get(dtype.name, f"UINT{max(8, dtype.bits)}")
            how = (0, 0) if packed else (TYPES.index(data_type), SWIZZLES.index(swizzle))
            flags = int(packed), int(name in writes and not packed), narrowed
            return _list("MAP", at[name], 0, *how, *flags, -1, _list(*box))
        case PointerArgument(tensor=name):
            return _list("POINTER", at[name])
        case StrideArgument(tensor=name, dim=dim, known=known):
            known = -1 if known is None else known
            return _list("STRIDE", at[name], dim, 0, 0, 0, 0, 0, known)
        case SizeArgument(dim=dim):
            return _list("SIZE", 0, dims.index(dim))
        case ScalarArgument(name=name, dtype=dtype):
            return _list("FLOAT" if dtype.is_float else "INTEGER", at[name])
        case NarrowingArgument():
            return _list("NARROWING")


def _lent(tensor: WorkspaceTensor, dims: Sequence[str]) -> str:
    kind = _tensor(tensor.type, dims, written=True)
    return _list(dims.index(str(tensor.type.dims[0])), int(tensor.zeroed), tensor.each, kind)


def _tensor(kind: Any, dims: Sequence[str], written: bool) -> str:
    if not isinstance(kind, Tensor):
        return "{-1}"
    sizes = (dims.index(d) if isinstance(d, str) else -1 - d for d in kind.dims)
    head = len(kind.dims), _bits(kind.dtype), int(kind.packed), int(written)
    return _list(*head, _list(*sizes))


def _bits(dtype: DType) -> int:
    return 4 if dtype.bits == 4 else 8 * dtype.bytes


def _capability(arch: str) -> int:
    major, minor = target_of(arch).capability
    return 10 * major + minor


def _list(*items: object) -> str:
    return f"{{{', '.join(map(str, items))}}}"


def _array(kind: str, name: str, rows: Iterable[str]) -> str:
    body = "".join(f"    {row},\n" for row in rows)
    return f"static const {kind} {name}[] = {{\n{body}}};"
