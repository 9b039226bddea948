"""Calls of one class of sizes share a kernel, and are right at each of these."""

from typing import Any

import pytest

import wsdsl
from tests.kernels import CASES

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("n", "k"), [(1024, 512), (1000, 520), (999, 519)])
def test_sizes_of_a_class(n: int, k: int) -> None:
    gemm = wsdsl.parse(CASES["gemm"].text.replace("C: bf16", "C: f32")).gemm
    b = torch.randint(-2, 3, (n, k), device="cuda").bfloat16()
    kernels: set[int] = set()
    for m in (1, 7, 33, 40, 65, 72, 290, 511, 512, 513, 1001, 1024, 3000, 4095):
        a = torch.randint(-2, 3, (m, k), device="cuda").bfloat16()
        call = gemm.resolve((a, b))
        kernels.add(id(gemm.compiled_for(call)))
        assert torch.equal(gemm(a, b), a.float() @ b.float().T), m
    assert len(kernels) <= 12
