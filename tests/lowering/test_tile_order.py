"""What waves of tiles cover."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wsdsl.lowering.choice.tile_order import covered
from wsdsl.schedule import SWIZZLES


def walked(rows: int, columns: int, swizzle: int) -> list[tuple[int, int, int]]:
    """Group, row and column of every tile, in the order of `lower_loops`."""
    found: list[tuple[int, int, int]] = []
    for t in range(rows * columns):
        group, inside = divmod(t, swizzle * columns)
        height = min(swizzle, rows - group * swizzle)
        found.append((group, group * swizzle + inside % height, inside // height))
    return found


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50), st.sampled_from(SWIZZLES))
def test_covered(rows: int, columns: int, workers: int, swizzle: int) -> None:
    tiles = walked(rows, columns, swizzle)
    waves = [tiles[i : i + workers] for i in range(0, len(tiles), workers)][:64]
    # Columns of two groups of rows are not walked at the same time.
    expected = sum(3 * len({(g, column) for g, _, column in wave}) for wave in waves) + sum(
        2 * heights(wave) for wave in waves
    )
    assert covered((rows, 2), (columns, 3), workers, swizzle) == expected


def heights(wave: list[tuple[int, int, int]]) -> int:
    return len({row for _, row, _ in wave})


def test_square_waves_are_chosen() -> None:
    """Of 128 x 256 tiles: 16 rows of tiles by 8 columns, 132 SMs."""
    costs = {s: covered((64, 128), (32, 256), 132, s) for s in SWIZZLES}
    assert min(costs, key=costs.__getitem__) == 16
    assert costs[8] > 1.2 * costs[16]
