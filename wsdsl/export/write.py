"""`Kernel.export`: compile a kernel for given sizes, and write what launches need to a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wsdsl.artifact.artifact import ON_ONE_AXIS
from wsdsl.artifact.dispatch_table import Form, Variant
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.dispatcher import Serving
from wsdsl.export.manifest import FILE, content_of, text_of
from wsdsl.export.tables import launcher
from wsdsl.runtime.native.launch_stub import shipped_code
from wsdsl.schedule import Schedule

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
    folder: Path,
    sizes: Mapping[str, int | Iterable[int]],
    schedule: Schedule | None,
    archs: Sequence[str],
    form_of: FormOf,
) -> Path:
    """Write the folder. CompileError or ScheduleError of kernels that do not compile."""
    variants, kernels = Variants(), dict[Compiled, int]()
    for arch in archs or ((schedule or Schedule()).arch,):
        if arch != "sm_90a":
            schedule = replace(schedule or Schedule(), arch=arch)  # pyright: ignore[reportArgumentType]
        for (form, asked), (buckets, compiled) in kernel.precompiled(schedule, sizes).items():
            _ = compiled.cubin  # CompileError without ptxas
            at = kernels.setdefault(compiled, len(kernels)), arch
            alignment = asked.unaligned, asked.padded
            made = (Variant(*at, bucket.spans, *alignment) for bucket in buckets)
            variants.setdefault(form, []).extend(made)
    artifacts = [compiled.artifact for compiled in kernels]
    form = _form(kernel, variants, form_of, bool(schedule and schedule.fixes_axes))
    content, files = content_of(kernel.name, kernel.__doc__, form, artifacts, shipped_code())
    text, cubins = text_of(content), [f for f in files.items() if f[0].endswith(".cubin")]
    sources = launcher(form, artifacts, cubins, text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    for name, source in {**sources, "__init__.py": MODULE, FILE: text}.items():
        (folder / name).write_text(source, encoding="utf-8")
    return folder


def _form(kernel: Serving, variants: Variants, form_of: FormOf, fixes_axes: bool) -> Form:
    declared = kernel.declaration
    names = tuple(n for n in declared.forms if n != ON_ONE_AXIS or not fixes_axes)
    inner = tuple(_form(form_of(kernel, n), variants, form_of, fixes_axes) for n in names)
    return Form(replace(declared, forms=names), tuple(variants.get(kernel, ())), inner)
