"""What waves of tiles cover."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.lowering.heuristics.tile_order import covered
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


def order(given: Schedule, **sizes: int) -> tuple[str | None, int | None]:
    made = CASES["gemm"].kernel.schedule(given, **sizes)
    return made.raster, made.swizzle


def test_results_are_written_along_their_rows() -> None:
    """Where they are most of what is moved, and the operand along them stays in L2."""
    assert order(Schedule(), M=8192, N=8192, K=512) == (None, 1)
    assert order(Schedule(), M=8192, N=8192, K=1024)[1] != 1  # a quarter is read
    assert order(Schedule(), M=2048, N=1 << 17, K=128)[1] != 1  # 33 MB along the rows
    assert order(Schedule(swizzle=8), M=8192, N=8192, K=512) == (None, 8)
    # Columns that are contiguous.
    made = CASES["mn_major"].kernel.schedule(Schedule(), M=8192, N=8192, K=512)
    assert (made.raster, made.swizzle) == ("m", 1)


def heights(wave: list[tuple[int, int, int]]) -> int:
    return len({row for _, row, _ in wave})


def test_square_waves_are_chosen() -> None:
    """Of 128 x 256 tiles: 16 rows of tiles by 8 columns, 132 SMs."""
    costs = {s: covered((64, 128), (32, 256), 132, s) for s in SWIZZLES}
    assert min(costs, key=costs.__getitem__) == 16
    assert costs[8] > 1.2 * costs[16]


def test_tiles_of_several_widths_leave_room_for_more_of_them() -> None:
    """One tile of rows is chosen for; other launches have many, which share the weights."""
    asked = Schedule(tile=dict(m=128, n=192), mma_m="n", consumers=1)
    sizes = dict(M=128, N=14336, K=4096)
    assert order(dataclasses.replace(asked, tile_n_variants=8), **sizes) == (None, 16)
    assert order(asked, **sizes) == (None, 1)
