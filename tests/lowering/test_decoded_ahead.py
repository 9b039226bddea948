"""Operands decoded in registers while the tensor cores have the products of the last half step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_data import right_and_proved
from tests.case_table import Case, matmul_text
from tests.decoded_kernels import DECODED
from tests.simulator.mutants import exchange
from wsdsl import Schedule
from wsdsl.diagnostics import WsdslError
from wsdsl.ir.op import Kernel, Op, Region
from wsdsl.ir.ops import ConvertLayout, ForRange, WgmmaMmaAsync, WgmmaWait
from wsdsl.ir.rewriter import with_regions
from wsdsl.prover.prove import prove

ONE = [name for name in DECODED if name not in ("both", "eight_bits", "normalised")]
"""A product has one operand in registers, of 16 bits, which lies as the other values do."""
SCHEDULES = [
    Schedule(operand_transform="registers", tile=dict(k=64)),
    Schedule(operand_transform="registers", tile=dict(k=32), stages=2),
    Schedule(operand_transform="registers", tile=dict(k=128), stages=2),
    Schedule(operand_transform="registers", tile=dict(k=96), stages=3),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "schedule"),
    [(name, SCHEDULES[j]) for i, name in enumerate(ONE) for j in range(4) if (i + j) % 2],
)
def test_right_and_proved(name: str, schedule: Schedule) -> None:
    right_and_proved(DECODED[name], schedule)


def _scheduled(k: int = 64, name: str = "scaled", stages: int = 2) -> Kernel:
    schedule = Schedule(
        tile=dict(m=64, n=64, k=k),
        consumers=1,
        stages=stages,
        mode="cooperative",
        scheduler="grid",
        operand_transform="registers",
    )
    case = DECODED[name]
    return case.kernel._compile(schedule, case.sizes, ()).scheduled


def _loop(kernel: Kernel) -> ForRange:
    """The one with the products."""
    loops = [op for op in kernel.of(ForRange) if any(isinstance(o, WgmmaMmaAsync) for o in op.body)]
    return loops[-1]


def spread(X: Any, s: Any) -> Any:
    w = np.repeat(s * 2, 64, 1)[:, : X.shape[1]].astype(ml_dtypes.bfloat16)
    return {"Y": X @ w.astype(np.float64).T}


def test_a_factor_of_rows_is_the_same_in_both_halves() -> None:
    """Its registers are, so nothing is left in flight, which ptxas would serialise."""
    text = matmul_text(
        "spread(X: bf16[M, K], s: f32[N, B], Y: f32[M, N])",
        "X[m, k] @ cast(s[n, index(k) // 64] * 2.0, bf16)",
        "Y[m, n] = acc",
    )
    case = Case(text, spread, dict(M=72, N=136, K=112, B=2))
    schedule = Schedule(operand_transform="registers", tile=dict(k=64))
    assert right_and_proved(case, schedule, **case.sizes).cubin


def test_an_operand_of_two_products_is_made_once() -> None:
    case = Case(
        text="""
@kernel
def twice(X: bf16[M, K], Z: bf16[M, K], W: i8[N, K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        a, c = zeros(f32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            w = cast(W[n, k], bf16)
            a += X[m, k] @ w
            c += Z[m, k] @ w
        Y[m, n] = a * c
""",
        expected=lambda X, Z, W: {"Y": (X @ W.T) * (Z @ W.T)},
        sizes=dict(M=72, N=136, K=112),
    )
    right_and_proved(case, Schedule(operand_transform="registers"))


Change = Callable[[WgmmaWait], Op]
CHANGES: dict[str, Change] = {
    "leaves one more in flight": lambda op: dataclasses.replace(op, pending=op.pending + 1),
    "keeps no registers": lambda op: dataclasses.replace(op, fragments=()),
}


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("what", CHANGES)
def test_each_wait_is_needed(what: str, at: int) -> None:
    kernel = _scheduled()
    prove(kernel)
    waits = [op for op in _loop(kernel).body if isinstance(op, WgmmaWait)]
    with pytest.raises(WsdslError):
        prove(exchange(kernel, waits[at], CHANGES[what](waits[at])))


def test_a_half_is_not_decoded_before_its_registers_are_free() -> None:
    kernel = _scheduled()
    waits = [op for op in _loop(kernel).body if isinstance(op, WgmmaWait)]

    def late(region: Region) -> Region:
        """The first wait behind what makes the second half."""
        if waits[0] not in region:
            return tuple(with_regions(op, late) for op in region)
        rest = [op for op in region if op is not waits[0]]
        made = [i for i, op in enumerate(rest) if isinstance(op, ConvertLayout)]
        return (*rest[: made[1] + 1], waits[0], *rest[made[1] + 1 :])

    with pytest.raises(WsdslError, match=r"may be overwritten|still read"):
        prove(dataclasses.replace(kernel, body=late(kernel.body)))
