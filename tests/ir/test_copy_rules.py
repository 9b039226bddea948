"""Copies that no hardware makes, and stores whose boxes are not what the warps have written."""

import pytest

import wsdsl
from tests.kernels import CASES
from tests.simulator.kernels import rejected
from wsdsl import Schedule
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify


@pytest.fixture(scope="module")
def text() -> str:
    given = Schedule(tile=dict(m=64, n=64), consumers=1, mma_m="n")
    return str(CASES["gemm"].kernel.compile(given, M=128, N=64, K=64).scheduled)


def test_right(text: str) -> None:
    wsdsl.compile_ir(text).prove()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("apart=2048", "apart=8192", "8192 apart, exceed an item of 8192 bytes"),
        ("apart=2048", "apart=1024", "4 boxes of 2048 bytes, 1024 apart"),
        ("apart=2048", "apart=-2048", "apart=-2048 must be 0 to"),
        ("apart=2048", "apart=2050", "multiple of 1024 bytes"),
        ("row_dim=0", "row_dim=7", "row_dim=7 is not one of 2 dimensions"),
        ("transposed=True, ", "", "joined panels need transposed"),
        ('swizzle="128B", transposed', 'swizzle="64B", transposed', "joined panels"),
    ],
)
def test_wrong(text: str, old: str, new: str, words: str) -> None:
    rejected(text, old, new, words)


BY_THREADS = """
kernel sample @ scheduled (%X: tensor<u8[M, N]>, %i: i32) {
  %smem: shared<16384 x 1> = allocate_shared(label="smem", offset=0)
  partition(role="compute") {
    %st: state = initial_state(parity=0)
    thread_load(tensor=%X, coordinates=(%i, %i), row_dim=0, rows=64, columns=256, swizzle="128B",
      shared=%smem, state=%st)
    thread_store(tensor=%X, coordinates=(%i, %i), box=(16, 128), swizzle="128B", row_dim=0,
      shared=%smem, item=%i, accumulate=False)
  }
}
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("columns=256", "columns=192", "not a multiple of the swizzle span, 128"),
        ("box=(16, 128)", "box=(16, 256)", "a row of 256 bytes"),
        ("box=(16, 128)", "box=(16,)", "extents for a tensor of 2 dimensions"),
        ("accumulate=False", "accumulate=True", "memory cannot add u8 elements"),
        ("tensor<u8", "tensor<u4", "u4 has two elements per byte, which only tma_load can copy"),
    ],
)
def test_copies_by_threads(old: str, new: str, words: str) -> None:
    verify(parse_kernel(BY_THREADS))
    rejected(BY_THREADS, old, new, words)
