"""`Kernel.export`: compile a kernel for given sizes, and write what launches need to a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wsdsl.artifact.artifact import Artifact
from wsdsl.artifact.dispatch_table import Form, Variant
from wsdsl.compiled import Compiled
from wsdsl.export.manifest import FILE, content_of, text_of
from wsdsl.runtime.launch_stub import shipped_code
from wsdsl.schedule import Schedule
from wsdsl.serving import Serving

MODULE = '''"""Exported kernel; `kernel` is loaded on first use."""


def __getattr__(name):
    if name != "kernel":
        raise AttributeError(name)
    from wsdsl import load_exported

    globals()["kernel"] = found = load_exported(__path__[0])
    return found
'''
"""The exported folder is a Python package."""
Variants = dict[Serving, list[Variant]]
"""Of each form of the kernel."""
FormOf = Callable[[Any, str], Serving]


def export(
    kernel: Serving,
    folder: str | Path,
    sizes: Mapping[str, int | Iterable[int]],
    schedule: Schedule | None,
    archs: Sequence[str],
    form_of: FormOf,
) -> Path:
    """Write the folder. CompileError or ScheduleError of kernels that do not compile."""
    variants, kernels = Variants(), dict[Compiled, int]()
    whole = {dim: _range(size) for dim, size in sizes.items()}
    for arch in archs or ((schedule or Schedule()).arch,):
        _add(kernel, schedule, arch, whole, variants, kernels)
    artifacts = [_artifact(compiled) for compiled in kernels]
    form = _form(kernel, variants, form_of)
    content, files = content_of(kernel.name, kernel.__doc__, form, artifacts, shipped_code())
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "__init__.py").write_text(MODULE)
    (folder / FILE).write_text(text_of(content))
    return folder


def _range(size: int | Iterable[int]) -> int | Iterable[int]:
    if isinstance(size, tuple) and len(size) == 2:
        return range(size[0], size[1] + 1)
    return size


def _add(
    kernel: Serving,
    schedule: Schedule | None,
    arch: str,
    sizes: Mapping[str, int | Iterable[int]],
    variants: Variants,
    kernels: dict[Compiled, int],
) -> None:
    """Compile for one architecture."""
    if arch != "sm_90a":
        schedule = replace(schedule or Schedule(), arch=arch)  # pyright: ignore[reportArgumentType]
    for (form, asked), (buckets, compiled) in kernel.precompiled(schedule, sizes).items():
        index = kernels.setdefault(compiled, len(kernels))
        for bucket in buckets:
            made = Variant(index, arch, bucket.spans, asked.unaligned, asked.padded)
            variants.setdefault(form, []).append(made)


def _artifact(compiled: Compiled) -> Artifact:
    _ = compiled.cubin  # CompileError without ptxas
    return compiled.artifact


def _form(kernel: Serving, variants: Variants, form_of: FormOf) -> Form:
    forms = (form_of(kernel, name) for name in kernel.declaration.forms)
    inner = tuple(_form(form, variants, form_of) for form in forms)
    return Form(kernel.declaration, tuple(variants.get(kernel, ())), inner)
