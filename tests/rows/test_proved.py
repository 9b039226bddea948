"""Every kernel over rows compiles and is proved, of vectors or of single elements, and the page
shows the texts.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rows.expected import drawn
from wsdsl import Kernel, kernels
from wsdsl.kernels.rows import normalization, quantize, row_arrays, softmax
from wsdsl.kernels.rows.row_arrays import kernel_of

MODULES = (row_arrays, normalization, softmax, quantize)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """The kernels that calls run, in order."""
    found: list[Kernel] = []

    def noted(template: str, **parts: Any) -> Kernel:
        found.append(kernel_of(template, **parts))
        return found[-1]

    for module in MODULES:
        monkeypatch.setattr(module, "kernel_of", noted)
    return found


def call_all() -> None:
    x, w = drawn(4, 40, dtype="bf16"), drawn(40)
    y, rstd = kernels.rmsnorm_with_rstd(x, w)
    kernels.rmsnorm_backward(y, x, w, rstd)
    kernels.rmsnorm_weight_backward(y, x, w, rstd)
    y, *statistics = kernels.layernorm_with_statistics(x, w, w)
    kernels.layernorm_backward(y, x, w, *statistics)
    kernels.layernorm_weight_backward(y, x, w, *statistics)
    kernels.layernorm_bias_backward(y, w)
    kernels.softmax_backward(y, kernels.softmax(x))
    kernels.log_softmax_backward(y, kernels.log_softmax(x))
    targets = np.arange(4)
    losses, lse = kernels.cross_entropy_with_lse(x, targets)
    kernels.cross_entropy_backward(losses, x, targets, lse)
    kernels.cross_entropy_backward(losses, x, targets, lse, out=x)
    kernels.quantize(x)
    kernels.quantize(x, "i8", block=32)
    kernels.quantize(x, "mxfp8")


def test_proved(used: list[Kernel]) -> None:
    call_all()
    assert len({kernel.source for kernel in used}) == 17
    for i, kernel in enumerate(used):
        n = (4096, 4099)[i % 2]
        sizes = {dim: {"M": 2048, "N": n, "B": n // 32}[dim] for dim in kernel.dims}
        assert kernel._compiled_for(None, sizes).prove().proved, kernel.name


def test_the_page_shows_the_texts(used: list[Kernel]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    x, w = drawn(4, 40, dtype="bf16"), drawn(40, dtype="bf16")
    kernels.rmsnorm(x, w)
    kernels.softmax(x)
    for kernel in used:
        assert kernel.source in page
