"""Indices of `each` that a CTA takes one after the other."""

from typing import Any

import numpy as np
import pytest

from wsdsl import Schedule, parse
from wsdsl.diagnostics import ScheduleError

TEXT = """
@kernel
def scaled(X: f32[B, H, M, N], S: f32[M, N], b: f32[H], Y: f32[B, H, M, N]):
    for b_ in each(B):
        for h in each(H):
            for m, n in tiles(M, N):
                Y[b_, h, m, n] = X[b_, h, m, n] * S[m, n] + S[m, n] * b[h]

@kernel
def changing(X: f32[H, M, N], S: f32[M, N]):
    for h in each(H):
        for m, n in tiles(M, N):
            X[h, m, n] = X[h, m, n] * S[m, n]

@kernel
def alike(X: f32[H, M, N], Y: f32[H, M, N]):
    for h in each(H):
        for m, n in tiles(M, N):
            Y[h, m, n] = X[h, m, n] * 2.0

@kernel
def scattered(X: f32[H, M, N], S: f32[M, N], to: i32[H], Y: f32[H, M, N]):
    for h in each(H):
        for m, n in tiles(M, N):
            Y[to[h], m, n] = X[h, m, n] * S[m, n]
"""
OWN: Any = parse(TEXT)
SIZES = dict(B=2, H=64, M=4096, N=128)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def test_as_many_as_leave_enough_ctas() -> None:
    assert (OWN.scaled.schedule(**SIZES).tile or {})["h"] == 4
    assert (OWN.scaled.schedule(**(SIZES | dict(H=3))).tile or {})["h"] == 2
    assert (OWN.scaled.schedule(**(SIZES | dict(M=64))).tile or {})["h"] == 1


@pytest.mark.parametrize("turns", [1, 2, 8])
def test_values(turns: int) -> None:
    """Also of a last CTA that has fewer."""
    asked = Schedule(tile=dict(h=turns))
    x, s, b = drawn(2, 5, 9, 40), drawn(9, 40), drawn(5)
    got = OWN.scaled.simulate(x, s, b, schedule=asked)
    assert np.array_equal(got, OWN.scaled.reference(x, s, b))
    got, want = x[0].copy(), x[0].copy()
    OWN.changing.simulate(got, s, schedule=asked)
    OWN.changing.reference(want, s)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("name", ["alike", "scattered"])
def test_no_turns(name: str) -> None:
    """Nothing is the same; or turns may store to the same places, in no order of their threads."""
    with pytest.raises(ScheduleError, match="names `h`, whose indices are not tiles"):
        getattr(OWN, name).schedule(Schedule(tile=dict(h=2)), H=4, M=64, N=128)
