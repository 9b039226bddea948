"""Classes of sizes are arithmetic: every member says the same of who belongs to its class."""

import random

import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl.artifact.shape_bucket import alignments, beside_rows, is_round, row_parts, shape_bucket

SOURCE = f"""{CASES["gemm"].text.replace("C: bf16", "C: f32")}
@kernel
def summed(X: f32[M, N], Y: f32[M]):
    for m in tiles(M):
        x = X[m, :]
        Y[m] = sum(x, over=N)
"""
KERNELS = wsdsl.parse(SOURCE)
GEMM = KERNELS.gemm.declaration


def test_what_a_class_depends_on() -> None:
    assert GEMM.rows == "M"
    assert alignments(GEMM) == {"K": (64, 8, 2, 1), "N": (32, 4, 1)}
    assert KERNELS.summed.declaration.rows == "M"
    assert str(shape_bucket(KERNELS.summed.declaration, dict(M=3, N=77))) == "M 0 to 8, N = 77"


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((1041, 4096, 4096), "M 1025 to 1056, K = 4096, N 4064 to 4096 in multiples of 32"),
        ((4096, 1024, 4096), "M = 4096, K = 4096, N = 1024"),
        (
            (4095, 1024, 4104),
            "M 4033 to 4095, K 4104 to 5112 in multiples of 8, not of 64, N = 1024",
        ),
        ((1, 11008, 4096), "M 0 to 8, K = 4096, N 10784 to 11008 in multiples of 32"),
        ((4000, 1024, 1), "M 3969 to 4032, K = 1, N = 1024"),
    ],
)
def test_how_they_are_told(sizes: tuple[int, int, int], told: str) -> None:
    assert str(shape_bucket(GEMM, dict(zip("MNK", sizes, strict=True)))) == told


def test_members_of_a_class_say_the_same() -> None:
    draw = random.Random(0)
    for _ in range(500):
        sizes = {dim: draw.randint(0, draw.choice([64, 5000, 10**6])) for dim in "MNK"}
        found = shape_bucket(GEMM, sizes)
        assert sizes in found and found.sizes in found
        assert hash(found) == hash(shape_bucket(GEMM, found.sizes))
        for _ in range(5):
            other = {dim: draw.randint(span.low, span.high) for dim, span in found.spans}
            assert (shape_bucket(GEMM, other) == found) == (other in found)


def test_what_is_summed_over_is_alike_in_an_octave() -> None:
    found = [
        shape_bucket(GEMM, dict(M=77, K=k, N=1024)) for k in (2112, 3008, 4096, 2056, 4032, 4097)
    ]
    beside = [beside_rows(GEMM, each) for each in found]
    assert GEMM.outer == ("M", "N")
    assert [each["K"] for each in beside] == [4096, 4096, 4096, 4088, 4096, 8191]
    assert {each["N"] for each in beside} == {1024} and not any("M" in each for each in beside)


def test_parts_have_every_number_of_rows_once() -> None:
    fixed = dict(N=4096, K=4096)
    for low, high in ((0, 64), (64, 512), (512, 4096)):
        rows = [range(first, last + 1) for first, last in row_parts(low, high)]
        assert [x for part in rows for x in part] == [*range(low + 1, high + 1)]
        for part in rows:
            own = {str(shape_bucket(GEMM, dict(M=m, **fixed))) for m in part if not is_round(m)}
            assert len(own) == 1
