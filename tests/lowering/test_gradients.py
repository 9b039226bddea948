"""Gradients of attention's keys and values: two operands are made of products, the second also of
one that is multiplied after the first operand is.
"""

from typing import Any

import numpy as np
import pytest

from tests.case_data import right_and_proved
from tests.case_table import Case
from wsdsl import Schedule
from wsdsl.ir.ops import Partition, ProducerAcquire
from wsdsl.ir.rewriter import walk

TEXT = """
@kernel
def gradients(
    Q: bf16[S, D], K: bf16[N, D], V: bf16[N, D], R: bf16[S, D], X: bf16[N, D], Y: bf16[N, D]
):
    for n in tiles(N):
        x, y = zeros(f32[n, D]), zeros(f32[n, D])
        for s in tiles(S):
            p = relu(K[n, :] @ Q[s, :])
            x += cast(p, bf16) @ R[s, :]
            y += cast(p * (V[n, :] @ R[s, :]), bf16) @ Q[s, :]
        X[n, :] = x
        Y[n, :] = y
"""


def gradients(Q: Any, K: Any, V: Any, R: Any) -> dict[str, Any]:
    p = np.maximum(K @ Q.T, 0)
    return {"X": p @ R, "Y": (p * (V @ R.T)) @ Q}


CASE = Case(TEXT, gradients, dict(N=72, S=136, D=64))


@pytest.mark.parametrize("stages", [1, 2])
def test_an_operand_made_of_a_later_sum_has_a_slot_of_its_own(stages: int) -> None:
    asked = Schedule(arch="sm_100a", tile=dict(n=128, s=64), stages=stages)
    made = right_and_proved(CASE, asked, D=64).partitioned
    (compute,) = (p for p in made.of(Partition) if p.role == "compute")
    assert sum(isinstance(op, ProducerAcquire) for op in walk(compute.body)) == 2


def test_where_sums_leave_few_registers_few_columns_are_chosen() -> None:
    """On Hopper, of what products make and others sum over: half a line."""
    case = Case(TEXT, gradients, CASE.sizes | dict(D=128))
    chosen = case.kernel.schedule(**case.sizes)
    assert chosen.tile == dict(n=64, s=32)
    right_and_proved(case, chosen, D=128)
