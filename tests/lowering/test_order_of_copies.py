"""In which order operands are copied to a slot."""

import re

import pytest

from tests.kernels import CASES
from wsdsl import Schedule


def copied(name: str, schedule: Schedule, **sizes: int) -> list[str]:
    """Tensors, in the order in which the first slot is filled."""
    text = str(CASES[name].kernel.compile(schedule, **sizes).scheduled)
    return list(dict.fromkeys(re.findall(r"tma_load\(map=%(\w+?)_map", text)))


@pytest.mark.parametrize(
    ("tile", "consumers", "mma", "expected"),
    [
        (dict(m=64, n=128), 1, "m", ["a", "b"]),
        (dict(m=128, n=64), 1, "n", ["b", "a"]),
        (dict(m=64, n=48), 1, "m", ["b", "a"]),
        # None has few lines: as they are written.
        (dict(m=128, n=96), 2, "m", ["a", "b"]),
        (dict(m=256, n=128), 2, "m", ["a", "b"]),
    ],
)
def test_the_smallest_first(
    tile: dict[str, int], consumers: int, mma: str, expected: list[str]
) -> None:
    given = Schedule(tile=tile, consumers=consumers, mma=mma)
    assert copied("gemm", given, M=512, N=512, K=512) == expected


@pytest.mark.parametrize(("n", "expected"), [(64, ["b", "a"]), (128, ["a", "b"])])
def test_what_is_summed_over_is_no_line(n: int, expected: list[str]) -> None:
    """Of B[k, n], of which TMA takes 64 rows along k."""
    given = Schedule(tile=dict(m=128, n=n), consumers=2)
    assert copied("column_major_b", given, M=512, N=512, K=512) == expected


def test_what_lies_beside_operands_is_last() -> None:
    given = Schedule(tile=dict(m=128, n=64))
    expected = ["b", "a", "a_scale", "b_scale"]
    assert copied("block_scaled", given, M=512, N=512, K=512) == expected
