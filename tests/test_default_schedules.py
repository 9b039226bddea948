"""The compiler's own schedules compile, ptxas and proof included: `pytest --all` runs all."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

import wsdsl
from tests.corpus.entries import Entry
from tests.corpus.library import array, weight_entry
from tests.corpus.texts import entries
from tests.quantized.test_product import FORMATS
from wsdsl import kernels
from wsdsl.codegen.ptxas import find_ptxas
from wsdsl.kernels.lossless.lossless_matmul import sizes_of, source_of
from wsdsl.kernels.lossless.palette import KINDS

Built = tuple[wsdsl.Kernel, Mapping[str, int]]


def known(e: Entry) -> Built:
    return [*vars(wsdsl.parse(e.text)).values()][-1].packed(*e.packed), e.sizes


def quantized(form: dict[str, Any], m: int) -> Built:
    return known(weight_entry(form, True, m, "bf16"))


def lossless(kind: str, m: int) -> Built:
    sizes, packed = sizes_of(m, 4096, 4096), ("codes", "low")
    return known(Entry(kind, source_of(kind, "bf16"), sizes, packed=packed))


def product(kind: str, m: int) -> Built:
    made = kernels.matmul.plan(array(kind, m, 4096), array(kind, 4096, 4096).T)
    return made.kernel, made.sizes


def cases() -> Iterator[Any]:
    for e in entries():
        if not (e.schedule or e.rejected or e.padded) and e.threads == "none":
            yield pytest.param(partial(known, e), id=e.name)
    formats = (quantized, FORMATS), (lossless, KINDS), (product, ("bf16", "f16", "f8e4m3", "i8"))
    for m, (make, kinds) in itertools.product((1, 24, 200, 4096), formats):
        for kind in kinds:
            name = kind if isinstance(kind, str) else " ".join(map(str, kind.values()))
            yield pytest.param(partial(make, kind, m), id=f"{make.__name__} {name} m{m}")


@pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
@pytest.mark.sampled(32)
@pytest.mark.parametrize("build", [*cases()])
def test_default_compiles(build: Callable[[], Built]) -> None:
    kernel, sizes = build()
    made = kernel.compile(**{dim: sizes[dim] for dim in kernel.dims})
    assert made.resources.spill_store_bytes == 0
