"""Stores by TMA whose boxes are not what the warps have written."""

import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.diagnostics import VerifyError


@pytest.fixture(scope="module")
def text() -> str:
    given = Schedule(tile=dict(m=64, n=64), consumers=1, mma="n")
    return str(CASES["gemm"].kernel.compile(given, M=128, N=64, K=64).scheduled)


def test_right(text: str) -> None:
    wsdsl.compile_ir(text).prove()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("apart=2048", "apart=8192", "four boxes of 2048 bytes, 8192 apart, are not in 8192 bytes"),
        ("apart=2048", "apart=1024", "four boxes of 2048 bytes, 1024 apart"),
        ("apart=2048", "apart=-2048", "four boxes of 2048 bytes"),
        ("apart=2048", "apart=2050", "multiple of 1024 bytes"),
        ("row_dim=0", "row_dim=7", "row_dim=7 of a tensor of 2 dimensions"),
        ("transposed=True, ", "", "joined panels are transposed"),
        ('swizzle="128B", transposed', 'swizzle="64B", transposed', "joined panels"),
    ],
)
def test_wrong(text: str, old: str, new: str, words: str) -> None:
    assert old in text
    with pytest.raises(VerifyError, match=words):
        wsdsl.compile_ir(text.replace(old, new))
