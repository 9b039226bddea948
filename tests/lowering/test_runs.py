"""What the model takes for the same along a row, and what it makes of that."""

from typing import Any

from wsdsl import parse
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Load
from wsdsl.lowering.cost_model.terms import Runs
from wsdsl.lowering.pipeline import scheduled_tile

TEXT = """
@kernel
def chosen(X: bf16[M, K], W: i8[N, K], at: i32[N, G], s: bf16[N, G], V: bf16[R, 64], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K, by=64):
            place = at[n, index(k) // 64]
            scaled = cast(W[n, k], bf16) * s[n, index(k) // 64]
            acc += X[m, k] @ where(place >= 0, V[place, index(k) % 64], scaled)
        Y[m, n] = acc
"""
SIZES = dict(M=16, N=128, K=256, G=4, R=8)


def runs_of(text: str = TEXT) -> tuple[Runs, dict[str, Load]]:
    own: Any
    (own,) = vars(parse(text)).values()
    kernel: Kernel = scheduled_tile(own.tile_ir, SIZES)
    return Runs(kernel), {op.tensor.name: op for op in kernel.of(Load)}


def test_what_an_index_of_blocks_gives() -> None:
    """Places and scales are the same for 64 elements, of which four threads compute one each; rows
    by an index of their own are not.
    """
    runs, loads = runs_of()
    shown = {name: runs.alike(op.result) for name, op in loads.items()}
    assert shown == dict(X=1, W=1, at=64, s=64, V=1)
    assert runs.found[loads["s"].result] == dict(n=1, k=64)
    assert runs.computed_at_once(loads["at"].result) == 16


def test_rows_that_are_chosen_are_few() -> None:
    """Of a tensor that has as many elements as R rows, for N rows of K."""
    runs, loads = runs_of()
    assert runs.seldom == {loads["V"].result}

    def size(dim: int | str) -> int:
        return dim if isinstance(dim, int) else SIZES[dim]

    assert runs.bytes_of(loads["V"], size) == 2 * 8 * 64 / (128 * 256)
    assert runs.bytes_of(loads["at"], size) == 4 / 64
    runs, loads = runs_of(TEXT.replace("place >= 0", "place >= index(k)"))
    assert not runs.seldom and runs.bytes_of(loads["V"], size) == 2
