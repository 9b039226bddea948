"""No two items of the loop over the work store the same elements, unless tiles may overlap."""

import re

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.machine.explore import Refuted, explore

KERNEL = CASES["gemm"].kernel._compile(Schedule(tile=dict(m=64, n=32), stages=2), {}, ()).scheduled
TEXT = str(KERNEL)
STORE = re.search(r"tma_store\(map=%c_map, coordinates=\((%\w+), (%\w+)\).*", TEXT)
assert STORE is not None
ROW, COLUMN = STORE[1], STORE[2]
START = re.search(rf'{ROW}: i32 = map\(fn="min", args=\((%\w+), ', TEXT)
assert START is not None


def stored(row: str, column: str) -> str:
    """The text, with a store elsewhere."""
    before, store = TEXT[: STORE.start()], TEXT[STORE.start() :]  # type: ignore[union-attr]
    return before + store.replace(f"({ROW}, {COLUMN})", f"({row}, {column})")


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace(", overlapping=True", ""),
        stored(ROW, "%c0"),
        stored(COLUMN, COLUMN),
        TEXT.replace(f'{START[1]}: i32 = map(fn="mul"', f'{START[1]}: i32 = map(fn="add"'),
    ],
    ids=["grid", "one column", "columns twice", "rows by one"],
)
def test_items_that_store_the_same_elements_are_rejected(text: str) -> None:
    assert text != TEXT
    explore(KERNEL)
    with pytest.raises(Refuted) as refuted:
        explore(parse_kernel(text))
    assert "two work items store" in refuted.value.failure.message
