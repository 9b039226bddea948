"""Compile the variants of a kernel for `Kernel.export`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wsdsl.artifact.artifact import ON_ONE_AXIS
from wsdsl.artifact.dispatch_table import Form, Variant
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.dispatcher import Dispatcher
from wsdsl.dispatch.vectorized_variants import form_of
from wsdsl.export.write import write
from wsdsl.schedule import Schedule

Variants = dict[Dispatcher, list[Variant]]
"""By form of the kernel."""


def export(
    kernel: Dispatcher,
    folder: Path,
    sizes: Mapping[str, int | Iterable[int]],
    schedule: Schedule | None,
    archs: Sequence[str],
) -> Path:
    """Write the folder. CompileError or ScheduleError of kernels that do not compile."""
    variants, kernels = Variants(), dict[Compiled, int]()
    for arch in archs or ((schedule or Schedule()).arch,):
        if arch != "sm_90a":
            schedule = replace(schedule or Schedule(), arch=arch)  # pyright: ignore[reportArgumentType]
        for (form, request), (buckets, compiled) in kernel.precompiled(schedule, sizes).items():
            _ = compiled.cubin  # CompileError without ptxas
            at = kernels.setdefault(compiled, len(kernels)), arch
            alignment = request.unaligned, request.padded
            exported = (Variant(*at, bucket.spans, *alignment) for bucket in buckets)
            variants.setdefault(form, []).extend(exported)
    artifacts = [compiled.artifact for compiled in kernels]
    form = _form(kernel, variants, bool(schedule and schedule.fixes_axes))
    return write(folder, kernel.name, kernel.__doc__, form, artifacts)


def _form(kernel: Dispatcher, variants: Variants, fixes_axes: bool) -> Form:
    declared = kernel.declaration
    names = tuple(n for n in declared.forms if n != ON_ONE_AXIS or not fixes_axes)
    inner = tuple(_form(form_of(kernel, n), variants, fixes_axes) for n in names)
    return Form(replace(declared, forms=names), tuple(variants.get(kernel, ())), inner)
