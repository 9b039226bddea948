"""Tiles that ptxas has too few registers for are chosen narrower, but not against the user."""

import pytest

import wsdsl
from wsdsl import Schedule
from wsdsl.codegen.gate import SpillError
from wsdsl.codegen.ptxas import find_ptxas
from wsdsl.lowering.narrower import narrower

pytestmark = pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
HEAVY = """
@kernel
def heavy(A: bf16[M, K], B: bf16[N, K], x: f32[N], y: f32[M], R: f32[N, M], C: f16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        c = cast(C[m, n], f32)
        C[m, n] = acc * c + x[n] + R[n, m] * y[m] * c
"""
SIZES = dict(M=4096, N=4096, K=4096)
WIDE = Schedule(tile=dict(m=128, n=256))


def test_the_compiler_chooses_again() -> None:
    kernel = wsdsl.parse(HEAVY).heavy
    with pytest.raises(SpillError, match="spill"):
        kernel.compile(WIDE, **SIZES)
    compiled = kernel.compile(Schedule(tile=dict(m=128)), **SIZES)
    assert compiled.schedule.tile["n"] < 256
    assert kernel.compile(Schedule(tile=dict(m=128)), **SIZES) is compiled
    assert compiled.schedule == kernel.schedule(Schedule(tile=dict(m=128)), **SIZES)
    explained = kernel.explain(Schedule(tile=dict(m=128)), **SIZES)
    assert repr(compiled.schedule) in explained and "spill" in explained


def test_each_is_narrower_than_the_one_before() -> None:
    compiled = wsdsl.parse(HEAVY).heavy._compile(WIDE, SIZES, ())
    widths = [dict(s.tile or {}) for s in narrower(compiled.partitioned, None)]
    assert widths == [dict(n=192), dict(n=128), dict(n=64), dict(n=32)]
    assert list(narrower(compiled.partitioned, WIDE)) == []
