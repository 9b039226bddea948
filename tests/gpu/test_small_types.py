"""Elements of 4 and 6 bits and exponents on the GPU: as the reference has them."""

from typing import Any

import numpy as np
import pytest

from tests.test_small_elements import ELEMENTS, SMALL, codes, floats
from tests.test_small_elements import kernel as of_text
from tests.test_small_weights import OPERANDS, SCHEDULES, arguments, kernel
from wsdsl import Schedule

pytestmark = pytest.mark.gpu

SIZES = [(16, 128, 192), (40, 200, 192), (1, 65, 64), (130, 4160, 1088)]


def same(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32), equal_nan=True)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("sizes", SIZES, ids=repr)
@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("dtype", ["i4", "u4", "f4e2m1", "f6e2m3", "f6e3m2"])
def test_weights(dtype: str, operand: str, sizes: tuple[int, int, int], packed: bool) -> None:
    own, given = kernel(dtype, operand), arguments(dtype, operand, sizes)
    wanted = own.reference(*given, None)
    if packed:
        given[1] = own.pack(W=given[1])
    for _ in range(3):
        assert same(own(*given), wanted)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_schedules(schedule: Schedule | None, packed: bool) -> None:
    own, given = kernel("i4", "groups"), arguments("i4", "groups", (200, 456, 1088))
    wanted = own.reference(*given, None)
    if packed:
        given[1] = own.pack(W=given[1])
    assert same(own(*given, schedule=schedule), wanted)


@pytest.mark.parametrize("sizes", [(65, 138), (3, 2), (512, 1024)], ids=repr)
@pytest.mark.parametrize("name", SMALL)
def test_elements(name: str, sizes: tuple[int, int]) -> None:
    for other in "f32", "bf16":
        widened = of_text(ELEMENTS, source=name, target=other, value=f"cast(x, {other})")
        given = codes(name, *sizes)
        assert same(widened(given), widened.reference(given))
    narrowed = of_text(ELEMENTS, source="f32", target=name, value=f"cast(x, {name})")
    given = floats(*sizes)
    found, wanted = narrowed(given), narrowed.reference(given)
    assert np.array_equal(found.view(np.uint8), wanted.view(np.uint8))
