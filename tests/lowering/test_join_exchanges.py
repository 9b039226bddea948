"""Reductions of rows that the CTAs of a cluster find out together."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wsdsl import Schedule, parse
from wsdsl.diagnostics import ProofError
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.ops import MbarrierArriveExpectTx, MbarrierWait, ReducePartials, StorePartials
from wsdsl.ir.rewriter import rewrite
from wsdsl.prover.prove import prove

HEAD = "(X: f32[M, N], Y: f32[M, N], s: f32):\n    for m, n in tiles(M, N):\n        x = X[m, n]\n"
JOINED = {
    "softmax": "e = exp(x - max(x, over=n))\n        Y[m, n] = e / sum(e, over=n)",
    "scaled": "e = exp((x - max(x, over=n)) * s)\n        Y[m, n] = e / sum(e, over=n)",
    "of products": "z = x * s\n        top = max(z, over=n)\n"
    "        Y[m, n] = z - top - log(sum(exp2((z - top) * 1.5), over=n))",
    "guarded": "top = max(x, over=n)\n        shift = where(top == -inf, 0.0, top)\n"
    "        Y[m, n] = sum(exp(x - shift), over=n) + x",
    "variance": "c = sum(x, over=n) / cast(N, f32)\n"
    "        d = x - c\n        Y[m, n] = d * rsqrt(sum(d * d, over=n) / cast(N, f32) + 1e-6)",
    "about what is no mean": "c = s + sum(x, over=n)\n        d = c - x\n"
    "        Y[m, n] = x + sum(d * d, over=n)",
    "stored in order": "top = max(x, over=n)\n        Y[m, n] = top\n        Y[m, n] = x\n"
    "        Y[m, n] += sum(exp(x - top), over=n)",
    "by themselves": "Y[m, n] = x * max(x, over=n) - sum(x, over=n) + min(x, over=n)",
}
APART = {
    "of other elements": "z = x * x\n        Y[m, n] = sum(exp(z - max(x, over=n)), over=n) + x",
    "cubes": "d = x - sum(x, over=n)\n        Y[m, n] = sum(d * d * d, over=n) + x",
    "of a sum": "Y[m, n] = sum(exp(x - sum(x, over=n)), over=n) + x",
    "about what is finite though the sum may not be": "d = x - min(sum(x, over=n), s)\n"
    "        Y[m, n] = x + sum(d * d, over=n)",
    "beside a condition": "top = max(x, over=n)\n        Y[m, n] = top\n"
    "        if s > 0.0:\n            Y[m, n] = x\n"
    "        Y[m, n] += sum(exp(x - top), over=n)",
    "of a minimum": "Y[m, n] = sum(exp(x - min(x, over=n)), over=n) + x",
}
TEAM = Schedule(tile=dict(m=1, n=256), cluster=dict(n=4))
"""Of 600 columns the third CTA has a part, and the last one nothing."""


def compiled(body: str, schedule: Schedule = TEAM, N: int = 600) -> Any:
    kernel = parse(f"@kernel\ndef rows{HEAD}        {body}\n").rows
    return kernel, kernel._compile(schedule, dict(M=5, N=N), ())


def exchanges(kernel: Kernel) -> int:
    return sum(isinstance(op, MbarrierWait) for op in kernel.ops)


def rows(N: int) -> Any:
    """One of them far from 0, one with -inf where a CTA has it, one of -inf alone."""
    x = np.random.default_rng(N).standard_normal((5, N)).astype(np.float32)
    x[1] += 300
    x[2, : N // 2] = -np.inf
    x[3] = -np.inf
    x[4, 7] = np.nan
    return x


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", JOINED | APART)
def test_exchanges_give_what_rows_do(name: str) -> None:
    kernel, made = compiled((JOINED | APART)[name])
    assert exchanges(made.scheduled) == (1 if name in JOINED else 2)
    with np.errstate(all="ignore"):
        x, s = rows(600), np.float32(0.5)
        got, want = (run(x, np.zeros_like(x), s) for run in (made.simulate, kernel.reference))
    np.testing.assert_allclose(got, want, rtol=3e-5, atol=1e-5)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(tile=dict(m=4, n=256), cluster=dict(n=2)),
        Schedule(tile=dict(m=2, n=512), consumers=2, consumer_split="n", cluster=dict(n=2)),
        Schedule(tile=dict(m=1, n=256), cluster=dict(n=4), scheduler="persistent"),
    ],
    ids=["several rows", "warpgroups share rows", "one after the other"],
)
def test_teams(schedule: Schedule) -> None:
    kernel, made = compiled(JOINED["variance"], schedule, N=500)
    assert exchanges(made.scheduled) == 1
    prove(made.scheduled)
    x = rows(500)[:2]
    np.testing.assert_allclose(
        made.simulate(x, s=1.0), kernel.reference(x, s=1.0), rtol=1e-4, atol=1e-4
    )


def test_variance_is_as_accurate_as_by_two_passes() -> None:
    """Of elements that are nearly the same, far from 0."""
    _, made = compiled(JOINED["variance"], N=1024)
    x = np.random.default_rng(3).standard_normal((5, 1024)).astype(np.float32) + 4000
    d = x.astype(np.float64) - x.astype(np.float64).mean(1, keepdims=True)
    want = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(made.simulate(x, s=1.0), want, rtol=1e-3, atol=1e-3)


def without_offsets(op: Op) -> Op:
    return replace(op, offset=0) if isinstance(op, StorePartials) and op.ctas > 1 else op


def of_the_next(op: Op) -> Op:
    """Behind the last word."""
    far = isinstance(op, ReducePartials) and op.state is not None and op.offset > 0
    return replace(op, offset=op.offset + 16) if far else op


def of_one_value(op: Op) -> Op:
    return replace(op, tx_bytes=op.tx_bytes // 2) if isinstance(op, MbarrierArriveExpectTx) else op


@pytest.mark.parametrize("change", [without_offsets, of_the_next, of_one_value])
def test_wrong_places_are_found(change: Any) -> None:
    made = compiled(JOINED["softmax"])[1].scheduled
    with pytest.raises(ProofError):
        prove(replace(made, body=rewrite(made.body, lambda op: (change(op),))))
