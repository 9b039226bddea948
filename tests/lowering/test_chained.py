"""Products of computed operands: what is masked, links of a chain, and who refuses what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.case_data import check, expected, inputs, right_and_proved
from tests.case_table import Case
from tests.chained_kernels import ATTENTION
from tests.range_kernels import CAUSAL
from wsdsl import Schedule
from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.tile_ops import If, Map
from wsdsl.ir.walk import walk

KEPT: dict[str, Case] = {}


def kept(name: str, text: str, **sizes: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(expected: Callable[..., Any]) -> Callable[..., Any]:
        KEPT[name] = Case(text, expected, sizes)
        return expected

    return keep


@kept(
    "beyond_the_end",
    """
@kernel
def beyond_the_end(A: f16[M, K], B: f16[K, N], s: f16[K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            x = A[m, k]
            if s[0] > 0:
                x = x / abs(x)
            acc += (x + s[k]) @ B[k, n]
        C[m, n] = acc
""",
    M=72, N=136, K=100,
)  # fmt: skip
def _(A: Any, B: Any, s: Any) -> Any:
    x = np.sign(A) if s[0] > 0 else A
    return {"C": (x + s).astype(np.float16).astype(np.float64) @ B}


@kept(
    "two_links",
    """
@kernel
def two_links(X: bf16[M, K], U: bf16[H, K], G: bf16[H, K], D: bf16[N, H], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for h in tiles(H):
            up, gate = zeros(f32[m, h]), zeros(f32[m, h])
            for k in tiles(K):
                up += X[m, k] @ U[h, k]
                gate += X[m, k] @ G[h, k]
            acc += cast(up * relu(gate), bf16) @ D[n, h]
        Y[m, n] = acc
""",
    M=72, N=136, K=100, H=72,
)  # fmt: skip
def _(X: Any, U: Any, G: Any, D: Any) -> Any:
    return {"Y": ((X @ U.T) * np.maximum(X @ G.T, 0)) @ D.T}


@kept(
    "lies_another_way",
    """
@kernel
def lies_another_way(A: f16[K, M], R: i8[P, K], B: f16[K, N], C: f32[M, N], D: f32[M, N]):
    for m, n in tiles(M, N):
        columns, gathered = zeros(f32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            columns += (A[k, m] + 1.0) @ B[k, n]
            gathered += cast(R[index(m) // 2, k], f16) @ B[k, n]
        C[m, n] = columns
        D[m, n] = gathered
""",
    M=72, N=136, K=96, P=36,
)  # fmt: skip
def _(A: Any, R: Any, B: Any) -> Any:
    """Neither is read from a slot as the rows' elements along the sum."""
    return {"C": (A + 1).astype(np.float16).astype(np.float64).T @ B, "D": R.repeat(2, 0) @ B}


SCHEDULES = [
    Schedule(),
    Schedule(tile=dict(m=128, n=64), consumers=2, stages=1),
    Schedule(tile=dict(m=64, n=32), mode="pingpong", scheduler="grid"),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", KEPT)
def test_right_and_proved(name: str, schedule: Schedule) -> None:
    right_and_proved(KEPT[name], schedule)


def three_links(Q: Any, K: Any, V: Any, W: Any) -> Any:
    def positive(x: Any) -> Any:
        return np.maximum(x, 0).astype(ml_dtypes.bfloat16).astype(np.float64)

    links = zip(K, V, W, strict=True)
    return {"Y": sum(positive(positive(Q @ k.T) @ v.T) @ w.T for k, v, w in links)}


THREE_LINKS = Case(
    """
@kernel
def three_links(Q: bf16[M, D], K: bf16[H, N, D], V: bf16[H, E, N], W: bf16[H, F, E], Y: f32[M, F]):
    for m, f in tiles(M, F):
        acc = zeros(f32[m, f])
        for h in each(H):
            p = cast(relu(Q[m, :] @ K[h, :, :]), bf16)
            acc += cast(relu(p @ V[h, :, :]), bf16) @ W[h, f, :]
        Y[m, f] = acc
""",
    three_links,
    dict(M=72, N=80, D=64, E=64, F=136, H=3),
)


def test_three_links_are_right_and_proved() -> None:
    arrays = inputs(THREE_LINKS)
    wanted = expected(THREE_LINKS, arrays)
    schedule = Schedule(tile=dict(m=128, f=64), consumers=2, stages=1)
    compiled = THREE_LINKS.kernel.compile(schedule=schedule, N=80, D=64, E=64)
    compiled.simulate(*arrays.values())
    check(THREE_LINKS, arrays, wanted)
    assert compiled.certificate is not None


def test_whole_rows_are_computed() -> None:
    with pytest.raises(ScheduleError, match="needs whole rows"):
        KEPT["two_links"].kernel.compile(
            schedule=Schedule(tile=dict(m=64, n=128), consumers=2, share="n")
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", [ATTENTION, CAUSAL], ids=["attention", "causal"])
def test_only_tiles_at_the_edge_are_masked(text: str) -> None:
    """Of a loop's copies of the first stage: of whole tiles in front of the diagonal, and others,
    in the first iteration and in those that follow."""
    (kernel,) = vars(wsdsl.parse(text)).values()
    scheduled = kernel.compile(Schedule(), D=64).scheduled
    masks = [
        sum(isinstance(o, Map) and o.fn == "where" for o in branch)
        for op in walk(scheduled.body)
        if isinstance(op, If)
        for branch in (op.then, op.orelse)
        if any(isinstance(o, Map) and o.fn == "exp2" for o in branch)
    ]
    first, masked, whole, others, *rest = masks
    assert first == whole == 0 < masked == others and not any(rest)
