"""Columns moved by a number, or taken modulo one, are read as vectors as far as these let them."""

import ml_dtypes
import numpy as np
import pytest

from tests.case_data import DTYPES
from wsdsl import parse
from wsdsl.ir.ops import LoadGlobal, StoreGlobal

MOVED = """
@kernel
def moved(X: {type}[M, W], Z: {type}[M, D], Y: {type}[M, W], V: {type}[M, D]):
    for m, d in tiles(M, D):
        Y[m, index(d) + {by}] = Z[m, d]
        V[m, d] = X[m, index(d) + {by}]
"""
REPEATED = """
@kernel
def repeated(X: bf16[M, N], b: bf16[D], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n] + b[index(n) % {number} + {by}]
"""


@pytest.mark.parametrize("type", ["bf16", "f32", "i8"])
@pytest.mark.parametrize(
    ("d", "width", "moved"),
    [(40, 80, 40), (36, 72, "D"), (13, 80, "D"), (100, 300, 160), (40, 80, -16), (40, 100, "D")],
)
def test_what_is_beside_the_columns_stays(d: int, width: int, moved: int | str, type: str) -> None:
    """Also where the tile goes on behind them, and the tensor does."""
    kernel = parse(MOVED.format(type=type, by=moved)).moved
    by = d if isinstance(moved, str) else moved
    rng = np.random.default_rng(0)
    x, z, y = ((rng.standard_normal((9, n)) * 50).astype(DTYPES[type]) for n in (width, d, width))
    wanted, read = y.copy(), np.zeros_like(z)
    inside = [i for i in range(d) if 0 <= i + by < width]
    wanted[:, [i + by for i in inside]] = z[:, inside]
    read[:, inside] = x[:, [i + by for i in inside]]
    v = np.ones_like(z)
    kernel.simulate(x, z, y, v)
    assert y.tobytes() == wanted.tobytes() and v.tobytes() == read.tobytes()


@pytest.mark.parametrize(
    ("number", "by", "vector"), [(12, 0, 4), (24, 16, 8), (24, 2, 2), (9, 0, 1), (128, 64, 8)]
)
def test_vectors_lie_at_multiples(number: int, by: int, vector: int) -> None:
    kernel = parse(REPEATED.format(number=number, by=by)).repeated
    b = np.arange(256).astype(ml_dtypes.bfloat16)
    x = np.zeros((9, 256), ml_dtypes.bfloat16)
    wanted = np.arange(256) % number + by
    assert np.array_equal(kernel.simulate(x, b, None)[4], wanted.astype(x.dtype))
    made = kernel._compile(None, dict(M=8192, N=8192, D=256), ())
    loads = {op.tensor.name: op.vector for op in made.scheduled.of(LoadGlobal)}
    stores = {op.tensor.name: op.vector for op in made.scheduled.of(StoreGlobal)}
    assert loads == {"X": 8, "b": vector} and stores == {"Y": 8}
    assert made.prove()


@pytest.mark.parametrize(("size", "vector"), [(4096, 8), (4100, 4), (4099, 1)])
def test_sizes_that_move_are_known(size: int, vector: int) -> None:
    kernel = parse(MOVED.format(type="bf16", by="D")).moved
    made = kernel._compile(None, dict(M=8192, D=size, W=8200), ()).scheduled
    (x,) = (op for op in made.of(LoadGlobal) if op.tensor.name == "X")
    assert x.vector == vector
