"""Every kernel of the course and of `wsdsl.kernels` is lowered for cards with tensor memory; some
of each kind are assembled, with no spill.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.support import needs_ptxas
from tests.matmul_cases import Maker, every_pair
from tests.quantized.test_product import FORMATS
from tests.rows.test_proved import MODULES, call_all
from wsdsl import Kernel, Schedule
from wsdsl.cli.source_argument import import_file
from wsdsl.kernels import matmul, quantized
from wsdsl.kernels.lossless.lossless_matmul import kernel_of, sizes_of
from wsdsl.kernels.quantized.quantized_matmul import arranged
from wsdsl.kernels.rows.row_arrays import kernel_of as row_kernel
from wsdsl.lowering.pipeline import lower
from wsdsl.schedule import Arch

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9]*.py"))
SIZES = dict(M=512, N=4096, K=4096, R=4096, T=4096, B=2, H=4, S=512, D=64, L=4096, V=4096)

Sizes = Mapping[str, Any]


def of_the_course() -> Iterator[tuple[str, Kernel, Sizes]]:
    for path in EXAMPLES:
        for held in vars(import_file(path)).values():
            if isinstance(held, Kernel):
                sizes = {dim: SIZES.get(dim, 64) for dim in held.dims}
                yield f"{path.stem}/{held.name}", held, sizes


def of_rows() -> Iterator[tuple[str, Kernel, Sizes]]:
    found: dict[str, Kernel] = {}

    def noted(template: str, **parts: Any) -> Kernel:
        made = row_kernel(template, **parts)
        return found.setdefault(made.source, made)

    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "kernel_of", noted)
        call_all()
    for n, kernel in enumerate(found.values()):
        sizes = {"M": 2048, "N": 4096, "B": 128}
        yield f"rows/{kernel.name} {n}", kernel, {dim: sizes[dim] for dim in kernel.dims}


def of_weights() -> Iterator[tuple[str, Kernel, Sizes]]:
    x = np.zeros((9, 160), ml_dtypes.bfloat16)
    for form in FORMATS:
        weights = quantized.quantize(np.ones((72, 160), np.float32), **form)
        given, kernel, _ = arranged(x, weights)
        kernel = kernel._packed_for(given)
        sizes = {**kernel.resolve(given).dims, "M": 512}
        yield f"quantized/{form}", kernel, {dim: sizes[dim] for dim in kernel.dims}
    for kind in ("bytes", "exponents"):
        yield f"lossless/{kind}", kernel_of(kind, "bf16"), sizes_of(512, 4096, 4096)


def of_products() -> Iterator[tuple[str, Kernel, Sizes]]:
    """Each text once, whatever the strides are."""
    maker, seen = Maker(0, lambda x: x), set[str]()
    maker.m, maker.n = 8, 16
    for n, options in enumerate(every_pair()):
        made = maker.call(options)
        product = matmul.plan(*made.args, **made.options)
        scales = options["scales"].removeprefix("column-major ")
        if product.source not in seen:
            seen.add(product.source)
            yield f"matmul {scales} {n}", product.kernel, product.sizes


@cache
def every_kernel() -> dict[str, tuple[Kernel, Sizes]]:
    families = of_the_course, of_rows, of_weights, of_products
    return {name: (kernel, sizes) for own in families for name, kernel, sizes in own()}


def test_all_are_lowered(each: Callable[[int], int]) -> None:
    for kernel, sizes in list(every_kernel().values())[:: each(3)]:
        schedule, known = Schedule(arch="sm_100a"), tuple(sorted(sizes.items()))
        lower(dataclasses.replace(kernel.tile_ir, schedule=schedule, sizes=known), sizes=sizes)


@pytest.mark.sampled(6)
@needs_ptxas
@pytest.mark.parametrize(
    ("part", "arch"),
    [
        ("05_batched_tails/", "sm_103a"),
        ("07_attention/", "sm_103a"),
        ("matmul groups", "sm_100a"),
        ("quantized/{'dtype': 'u4', 'group': 32}", "sm_100a"),
        ("quantized/{'dtype': 'nvfp4'}", "sm_103a"),
        ("lossless/exponents", "sm_100a"),
        ("rows/softmax ", "sm_100a"),
    ],
)
def test_assembled_without_a_spill(part: str, arch: Arch) -> None:
    kernel, sizes = next(own for name, own in every_kernel().items() if part in name)
    compiled = kernel.compile(arch=arch, **sizes)
    assert compiled.certificate is not None
    assert compiled.resources is not None and not compiled.resources.spill_store_bytes
