"""What is said of arrays that do not fit; nothing is written then."""

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl.codegen.launch_signature import access_of
from wsdsl.diagnostics import LaunchError
from wsdsl.ir.hardware.gmem_limits import MAX_SIZE

BF16 = ml_dtypes.bfloat16
KERNEL = CASES["gemm"].kernel


def array(*shape: int, dtype: type = BF16) -> np.ndarray:
    return np.zeros(shape, dtype)


def read_only() -> np.ndarray:
    held = array(8, 8)
    held.flags.writeable = False
    return held


SHARED = array(16, 16)
WRONG = {
    "dtype": (
        (array(8, 16, dtype=np.float32), array(8, 16), array(8, 8)),
        ["argument 1 (A): dtype is f32, expected bf16", "ml_dtypes.bfloat16"],
    ),
    "bits": (
        (array(8, 16).view(np.uint16), array(8, 16), array(8, 8)),
        ["dtype is u16, expected bf16", "its bits: .view(ml_dtypes.bfloat16); or convert"],
    ),
    "rank": ((array(8), array(8, 16), array(8, 8)), ["argument 1 (A): rank is 1", "expected 2"]),
    "sizes": (
        (array(8, 16), array(8, 24), array(8, 8)),
        ["argument 2 (B): axis 1 (K) has size 24", "K = 16"],
    ),
    "size": (
        (array(MAX_SIZE + 1, 0), array(8, 0), array(8, 8)),
        ["argument 1 (A): axis 0 has size 2147418113, expected at most 2147418112"],
    ),
    "output_shape": ((array(8, 16), array(8, 16), array(8, 9)), ["argument 3 (C)", "N = 8"]),
    "an output's dtype": (
        (array(8, 16), array(8, 16), array(8, 8, dtype=np.float32)),
        ["argument 3 (C): dtype is f32, expected bf16", "leave the output out"],
    ),
    "stride": ((array(16, 8).T, array(8, 16), array(8, 8)), ["argument 1 (A)", "expected 1"]),
    "read_only": ((array(8, 16), array(8, 16), read_only()), ["argument 3 (C)", "read-only"]),
    "overlap": (
        (SHARED[:8], array(8, 16), SHARED[:8, :8]),
        ["argument 3 (C)", "shares memory with argument 1 (A)"],
    ),
    "broadcast_output": (
        (array(8, 16), array(8, 16), np.lib.stride_tricks.as_strided(array(8), (8, 8), (0, 2))),
        ["argument 3 (C)", "elements share memory"],
    ),
    "too_few": ((array(8, 16),), ["has 1 arguments, expected 3 (A, B, C)"]),
    "no_array": (("A", array(8, 16), array(8, 8)), ["argument 1 (A)"]),
    "masked": ((np.ma.array(array(8, 16)), array(8, 16)), ["argument 1 (A): a masked", "filled"]),
    "input_left_out": ((None, array(8, 16), array(8, 8)), ["argument 1 (A)", "it is None"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused(name: str) -> None:
    args, words = WRONG[name]
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with pytest.raises(LaunchError) as caught:
        KERNEL.simulate(*args)
    for word in words:
        assert word in str(caught.value)
    for held, was in zip(args, before, strict=True):
        if isinstance(held, np.ndarray):
            assert held.tobytes() == was.tobytes()


def test_everything_at_once() -> None:
    with pytest.raises(LaunchError) as caught:
        KERNEL.simulate(array(8, 16, dtype=np.float16), array(8), array(8, 8))
    assert len(caught.value.findings) == 2


def test_a_scalar_that_does_not_fit() -> None:
    with pytest.raises(LaunchError, match="argument 3"):
        CASES["scale"].kernel.simulate(array(8, 8), array(8, 8, dtype=np.float32), "two")


def test_what_is_added_to_is_read_too() -> None:
    """By TMA as directly: such an output can not be left out."""
    case = CASES["reduce_into"]
    compiled = case.kernel._compile(None, case.sizes, ())
    assert "accumulate=True" in compiled.ir("scheduled")
    assert access_of(compiled.scheduled).only_written == frozenset()
    with pytest.raises(LaunchError, match="the kernel reads its elements"):
        case.kernel.simulate(array(1, 8, 8), array(1, 8, 8), None)


@pytest.mark.parametrize("value", ["beta * C[m, n]", "A[m, n]"])
def test_an_output_that_is_read_must_be_given(value: str) -> None:
    op = "=" if "C" in value else "+="
    kernel = wsdsl.parse(f"""
@kernel
def k(A: f32[M, N], beta: f32, C: f32[M, N]):
    for m, n in tiles(M, N):
        C[m, n] {op} A[m, n] + {value}
""").k
    x = array(8, 8, dtype=np.float32)
    with pytest.raises(LaunchError, match="give C: the kernel reads it"):
        kernel(x, 1.0)
    with pytest.raises(LaunchError, match="it is None; the kernel reads its elements"):
        kernel(x, 1.0, None)
