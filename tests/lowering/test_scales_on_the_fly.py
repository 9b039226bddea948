"""Operands that are quantized in the kernel, with the scale factors of their blocks."""

from typing import Any

import numpy as np
import pytest

from tests.case_data import expected, inputs
from tests.case_table import Case
from tests.tensor_memory import lowered
from wsdsl import CompileError, Schedule, parse
from wsdsl.ir import ops
from wsdsl.ir.ops import WgmmaMmaAsync
from wsdsl.schedule import Arch

TEXT = """
@kernel
def quantised(X: bf16[M, K], B: f8e4m3[N, K], b_scale: f8e8m0[N, KB], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            x = cast(X[m, k], f32)
            s = cast(exp2(floor(log2(max(abs(x), over=k, per=32))) - 8.0), f8e8m0)
            q = cast(x / cast(s, f32), f8e4m3)
            acc += (q * s) @ (B[n, k] * b_scale[n, index(k) // 32])
        C[m, n] = acc
"""
BOTH = """
@kernel
def both(X: bf16[M, K], W: f32[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            x, w = cast(X[m, k], f32), W[n, k]
            s = cast(exp2(floor(log2(max(abs(x), over=k, per=32))) - 8.0), f8e8m0)
            t = cast(exp2(floor(log2(max(abs(w), over=k, per=64))) - 8.0), f8e8m0)
            acc += (cast(x / cast(s, f32), f8e4m3) * s) @ (cast(w / cast(t, f32), f8e4m3) * t)
        C[m, n] = acc
"""


def wanted_of(case: Case, arrays: dict[str, Any]) -> dict[str, Any]:
    """What the text means, in NumPy: of `reference`."""
    held = {name: np.copy(array) for name, array in arrays.items()}
    case.kernel.reference(*held.values())
    return {"C": held["C"]}


FINER = TEXT.replace("per=32", "per=16")
LOADED = TEXT.replace("B: f8e4m3", "B: i8").replace("B[n, k]", "cast(B[n, k], f8e4m3)")
CASES = {
    "quantised": Case(TEXT, lambda **given: given, dict(M=130, N=72, K=400, KB=13)),
    "finer": Case(FINER, lambda **given: given, dict(M=130, N=72, K=400, KB=13)),
    "loaded": Case(LOADED, lambda **given: given, dict(M=130, N=72, K=400, KB=13)),
    "both": Case(BOTH, lambda **given: given, dict(M=72, N=130, K=272)),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "arch", "asked"),
    [
        ("quantised", "sm_100a", {}),
        ("quantised", "sm_103a", dict(mma_m="n")),
        ("quantised", "sm_100a", dict(tile=dict(k=256), stages=1)),
        ("both", "sm_100a", {}),
        ("loaded", "sm_100a", {}),
        ("finer", "sm_90a", {}),
    ],
)
def test_as_the_reference_has_it(name: str, arch: Arch, asked: dict[str, Any]) -> None:
    """Rows and blocks of zeros, too, and tails along every dimension."""
    case = CASES[name]
    arrays = inputs(case)
    arrays["X"][3], arrays["X"][:, 64:96] = 0, 0
    arrays["X"][5] *= 1024
    call = case.kernel.resolve(tuple(arrays.values()))
    compiled = case.kernel.compiled_for(call, Schedule(arch=arch, **asked))
    wanted = wanted_of(case, arrays)
    compiled.simulate_call(call)
    near = 1e-6 * float(np.abs(wanted["C"]).max())
    np.testing.assert_allclose(arrays["C"], wanted["C"], rtol=1e-5, atol=near)
    assert compiled.certificate is not None


def test_what_fits_no_instruction_is_multiplied_in_bf16() -> None:
    """Which has all bits of operands with such scales; not of those with scales of f32."""
    asked: list[tuple[str, Arch]] = [("quantised", "sm_100a"), ("quantised", "sm_90a")]
    for name, arch in asked:
        kernel = lowered(CASES[name], arch)
        assert {v.dtype for v in (*kernel.of(ops.Tcgen05Mma), *kernel.of(WgmmaMmaAsync))} == {
            "bf16"
        }
    wide = TEXT.replace("cast(exp2", "cast(1.1 * exp2").replace("f8e8m0)\n", "f32)\n")
    with pytest.raises(CompileError, match="`@` of f32"):
        parse(wide).quantised.compile(arch="sm_100a", M=128, N=128, K=512, KB=16)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_operands_of_blocks_of_their_own(arch: Arch) -> None:
    """Of 16 bits: what is divided by the largest of a block, on either card."""
    case = Case(
        """
@kernel
def even(A: bf16[M, K], B: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            a = cast(A[m, k], f32)
            acc += cast(a / (1.0 + max(abs(a), over=k, per=32)), bf16) @ B[n, k]
        C[m, n] = acc
""",
        lambda A, B: {"C": _even(A) @ B.T},
        dict(M=72, N=136, K=200),
    )
    arrays = inputs(case)
    wanted = expected(case, arrays)
    case.kernel.simulate(*arrays.values(), schedule=Schedule(arch=arch, operand_transform="smem"))
    error = np.linalg.norm(arrays["C"] - wanted["C"]) / np.linalg.norm(wanted["C"])
    assert error < 2.0**-8


def _even(a: Any) -> Any:
    blocks = [a[:, k : k + 32] for k in range(0, a.shape[1], 32)]
    return np.hstack([b / (1 + abs(b).max(1, keepdims=True)) for b in blocks])
