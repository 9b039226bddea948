"""Loops that take sums of products from tensor memory: which of their axes have whole tiles, and
which tile of an axis their loads are of.
"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_table import matmul_text
from wsdsl import Schedule, parse

OF_OUTPUTS = matmul_text(
    "made(A: bf16[M, K], B: bf16[N, K], D: f32[{dims}])", "A[m, k] @ B[n, k]", "{body}"
)
BACK_TO_BACK = """
@kernel
def made(
    Q: bf16[S, D], K: bf16[T, D], V: bf16[T, D], by_tile: f32[SB, TB], lo: i32[1], Y: f32[S, D]
):
    for q in tiles(S):
        acc, total = zeros(f32[q, D]), zeros(f32[q])
        for t in tiles({walked}):
            s = Q[q, :] @ K[t, :]
            p = {made}
            total += {added}
            acc += cast(p, bf16) @ V[t, :]
        Y[q, :] = acc + total
"""


def right(text: str, arrays: dict[str, Any], out: str, schedule: Schedule) -> None:
    """The simulator gives the result of the reference."""
    made, wanted = parse(text).made, {n: a.copy() for n, a in arrays.items()}
    made.reference(**wanted)
    made.simulate(*arrays.values(), schedule=schedule)
    np.testing.assert_allclose(arrays[out], wanted[out], rtol=1e-5)


@pytest.mark.parametrize("scheduler", ["persistent", "grid", "dynamic"])
@pytest.mark.parametrize(
    ("dims", "body", "m", "value"),
    [
        ("M, N", "D[m, n] = exp(acc) / sum(exp(acc), over=n)", 4, 0.0),
        ("M", "D[m] += sum(acc + 1.0, over=n)", 4, 0.0),
        ("M", "D[m] = max(acc, over=n)", 150, -1.0),
        ("N", "D[n] += sum(exp(acc), over=m)", 5, 0.0),
    ],
)
def test_tiles_of_the_output_are_masked_in_all_work_items(
    dims: str, body: str, m: int, value: float, scheduler: Any
) -> None:
    """A loop over work items walks none of their axes."""
    a, b = np.full((m, 16), value), np.ones((13, 16))
    shape = [dict(M=m, N=13)[dim] for dim in dims.split(", ")]
    arrays = dict(zip("AB", (x.astype(ml_dtypes.bfloat16) for x in (a, b)), strict=True))
    arrays["D"] = np.zeros(shape, np.float32)
    right(
        OF_OUTPUTS.format(dims=dims, body=body),
        arrays,
        "D",
        Schedule(arch="sm_100a", scheduler=scheduler),
    )


@pytest.mark.parametrize("arch", ["sm_100a", "sm_90a"])
@pytest.mark.parametrize(
    ("made", "walked"),
    [
        ("s * by_tile[0, index(t) // 64]", "T"),
        ("s + by_tile[1, index(t) // 64]", "T, by=64"),
        ("where(by_tile[0, index(t) // 64] > 1.0, s, 0.0)", "T"),
        ("s * by_tile[2, index(t) // 128]", "T"),
        ("where(index(q) >= index(t), s * by_tile[0, index(t) // 64], 0.0)", "T"),
        ("s * by_tile[index(q) // 64, index(t) // 64]", "lo[0] * 64, T, of=T"),
    ],
)
def test_loads_are_of_the_tile_of_their_iteration(made: str, walked: str, arch: Any) -> None:
    """Also where they are made an iteration ahead."""
    back_to_back(made, walked, "sum(p, over=t)", arch)


@pytest.mark.parametrize("walked", ["T", "lo[0], T, of=T"])
def test_products_sum_over_no_element_beyond_the_end(walked: str) -> None:
    """Of tiles in which all elements are selected, too: beyond the end they are infinite."""
    back_to_back("where(index(q) >= index(t), 1.0 / s, 1.0)", walked, "0.0", "sm_100a")


def back_to_back(made: str, walked: str, added: str, arch: Any) -> None:
    rng, (s, t) = np.random.default_rng(0), (256, 150)
    arrays: dict[str, Any] = {
        name: rng.choice((0.5, 1.0, 2.0), (rows, 16)).astype(ml_dtypes.bfloat16)
        for name, rows in zip("QKV", (s, t, t), strict=True)
    }
    arrays["by_tile"] = (2.0 ** np.arange(12, dtype=np.float32)).reshape(4, 3)
    arrays |= dict(lo=np.array([1], np.int32), Y=np.zeros((s, 16), np.float32))
    text = BACK_TO_BACK.format(made=made, walked=walked, added=added)
    tile = dict(q=64) if "by" in walked else dict(q=64, t=64)
    right(text, arrays, "Y", Schedule(arch=arch, tile=tile))


def test_sums_that_a_loop_makes_are_started_in_their_iteration() -> None:
    """The trip count of the inner loop is not known before the outer loop."""
    text = """
@kernel
def made(A: bf16[M, K], B: bf16[L, K], V: bf16[L, D], Y: f32[M, D]):
    for m in tiles(M):
        acc = zeros(f32[m, D])
        for l in tiles(L):
            s = zeros(f32[m, l])
            for k in tiles(K):
                s += A[m, k] @ B[l, k]
            acc += cast(s, bf16) @ V[l, :]
        Y[m, :] = acc
"""
    compiled = parse(text).made.compile(schedule=Schedule(arch="sm_100a"), D=64)
    assert compiled.certificate is not None
