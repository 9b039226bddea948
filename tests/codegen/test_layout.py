"""Where elements lie: in registers, by hopper.md 3.4; in SMEM, by the descriptors of 3.1 to 3.3."""

import pytest

from wsdsl.codegen.fragment_registers import column_offset, row_offset, source_element
from wsdsl.codegen.llvm_types import num_elements
from wsdsl.codegen.value_registers import Shape
from wsdsl.ir.analysis.smem_descriptors import layout, low_half
from wsdsl.ir.hardware.swizzle import TMA_SPAN, panel_address
from wsdsl.ir.types import ACCUMULATOR, Lanes

SHAPES = [
    *(Shape(*s) for s in ((64, 8), (64, 24), (64, 256), (64, 1), (1, 8), (1, 64))),
    *(
        Shape(rows, columns, lanes)
        for lanes in (
            Lanes(8, 16),
            Lanes(4, 32),
            Lanes(2, 32),
            Lanes(16, 2),
            Lanes(2, 32, striped=True),
            Lanes(4, 32, striped=True),
            Lanes(8, 8, tall=2),
            Lanes(16, 8, tall=4),
            Lanes(2, 32, striped=True, tall=2),
        )
        for rows, columns in ((64, 128), (64, 1), (1, 128))
    ),
]


def place(warp: int, lane: int, element: int, shape: Shape) -> tuple[int, int]:
    """(row, column), as codegen composes it."""
    vector, across, striped, tall = shape.lanes
    first = lane % across * (1 if striped else vector)
    row = 16 * warp + lane // across * tall + row_offset(element, shape) if shape.rows == 64 else 0
    return row, first + column_offset(element, shape) if shape[1] > 1 else 0


@pytest.mark.parametrize("columns", [8, 24, 256])
def test_accumulator(columns: int) -> None:
    for warp in range(4):
        for lane in range(32):
            for i in range(num_elements(64, columns)):
                row = 16 * warp + lane // 4 + 8 * ((i >> 1) & 1)
                column = 8 * (i >> 2) + 2 * (lane % 4) + (i & 1)
                assert place(warp, lane, i, Shape(64, columns)) == (row, column)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_element_is_held(shape: Shape) -> None:
    held = {
        place(warp, lane, i, shape)
        for warp in range(4)
        for lane in range(32)
        for i in range(num_elements(*shape))
    }
    assert held == {(r, c) for r in range(shape[0]) for c in range(shape[1])}


@pytest.mark.parametrize(
    "lanes", [ACCUMULATOR, Lanes(4, 16), Lanes(2, 32, striped=True), Lanes(8, 8, tall=2)]
)
@pytest.mark.parametrize("sizes", [(64, 128), (64, 1), (1, 128), (1, 1)])
def test_broadcast(sizes: tuple[int, int], lanes: Lanes) -> None:
    """The element that serves lies in the same row and column, as far as it has them."""
    shape, source = Shape(64, 128, lanes), Shape(*sizes, lanes)
    for lane in (0, 5, 31):
        for i in range(num_elements(*shape)):
            row, column = place(2, lane, i, shape)
            served = place(2, lane, source_element(i, shape, source), source)
            assert served == (row if source[0] > 1 else 0, column if source[1] > 1 else 0)


def test_known_descriptor() -> None:
    """K-major, 128B: the constant 0x4000004000010000 of every bf16 gemm."""
    held = layout(128, 64, "128B", k_major=True)
    assert held.high << 32 | low_half(held, 0) == 0x4000004000010000
    assert [step >> 4 for step in held.steps] == [0, 2, 4, 6]
    assert 64 * held.per_start >> 4 == 512
    # Bit 24 of an address is the CTA's rank in its cluster.
    assert low_half(held, 0x1000400) == 0x10040


def test_known_mn_major_descriptor() -> None:
    """V of attention, 128 deep: panels of 64 columns, 128 bytes to a k, 8 k's are 1024 bytes."""
    held = layout(128, 128, "128B", k_major=False)
    assert (held.leading, held.stride) == (128 * 128, 1024)
    assert [step >> 4 for step in held.steps] == [128 * i for i in range(8)]
    assert 64 * held.per_start == 128 * 128


@pytest.mark.parametrize("swizzle", TMA_SPAN)
@pytest.mark.parametrize("k_major", [True, False])
def test_steps_and_strides_reach_the_panels(swizzle: str, k_major: bool) -> None:
    """Steps and offsets land where `panel_address` puts the element, swizzle aside."""
    rows, columns = (64, 128) if k_major else (128, 64)
    held, span = layout(rows, columns, swizzle, k_major=k_major), TMA_SPAN[swizzle]

    def plain(row: int, column: int) -> int:
        byte = 2 * column
        return byte // span * rows * span + row * span + byte % span

    def at(mn: int, k: int) -> int:
        return plain(mn, k) if k_major else plain(k, mn)

    assert len(held.steps) == 8
    for i, step in enumerate(held.steps):
        assert step == at(0, 16 * i)
    assert held.start_unit * held.per_start == at(held.start_unit, 0)
    if k_major:
        assert held.stride == at(8, 0)
        if swizzle == "none":
            assert held.leading == at(0, 8)
    elif swizzle == "none":
        assert (held.leading, held.stride) == (at(0, 8), at(8, 0))
    else:
        assert held.stride == at(0, 8)
        if held.start_unit < 64:
            assert held.leading == at(held.start_unit, 0)


@pytest.mark.parametrize(("swizzle", "bits"), [("128B", 0x70), ("64B", 0x30), ("32B", 0x10)])
def test_swizzle_acts_within_a_line(swizzle: str, bits: int) -> None:
    """The assumption of stores to SMEM: a line's address decides, and the exchange is an xor."""
    span = TMA_SPAN[swizzle]
    for row in range(16):
        for byte in range(0, span, 2):
            start = row * span
            expected = start + (byte ^ ((start >> 3) & bits))
            assert panel_address(row, byte, 16, swizzle) == expected
