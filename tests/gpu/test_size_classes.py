"""Calls of one class of sizes share a kernel, and are right at each of these."""

from typing import Any

import pytest

import wsdsl

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
SOURCE = """
@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
"""


@pytest.mark.parametrize(("n", "k"), [(1024, 512), (1000, 520), (999, 519)])
def test_sizes_of_a_class(n: int, k: int) -> None:
    gemm = wsdsl.parse(SOURCE).gemm
    b = torch.randint(-2, 3, (n, k), device="cuda").bfloat16()
    kernels: set[int] = set()
    for m in (1, 7, 33, 40, 65, 72, 290, 511, 512, 513, 1001, 1024, 3000, 4095):
        a = torch.randint(-2, 3, (m, k), device="cuda").bfloat16()
        call = gemm.resolve((a, b))
        kernels.add(id(gemm.compiled_for(call)))
        assert torch.equal(gemm(a, b), a.float() @ b.float().T), m
    assert len(kernels) <= 12
