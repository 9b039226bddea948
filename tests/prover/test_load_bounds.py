"""What threads read of an item in SMEM lies within the bytes that they say."""

import pytest

from tests.kernels import CASES
from tests.prover.handshake import verdict
from wsdsl import Schedule
from wsdsl.ir.parser import parse_kernel

ROWS = Schedule(tile=dict(m=128, n=64))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("two_scaled", "stride=4", "stride=5"),
        ("two_scaled", '%rest: i32 = map(fn="mod"', '%rest: i32 = map(fn="add"'),
        ("scaled", "bytes=512", "bytes=256"),
    ],
)
def test_elements_beyond_the_item(name: str, old: str, new: str) -> None:
    text = str(CASES[name].kernel._compile(ROWS, {}, ()).scheduled)
    assert "load_shared" in text and old in text
    assert verdict(parse_kernel(text)) == ""
    assert verdict(parse_kernel(text.replace(old, new))) == "misuse"


def test_numbers_of_blocks_that_warpgroups_share() -> None:
    """A warpgroup's columns begin in the middle of a block of scales."""
    given = Schedule(
        tile=dict(m=64, n=192, k=64), consumers=3, consumer_split="n", mma_promotion_interval=64
    )
    compiled = CASES["block_scaled"].kernel._compile(given, {}, ())
    assert "first=%" in str(compiled.scheduled)
    assert verdict(compiled.scheduled) == ""
