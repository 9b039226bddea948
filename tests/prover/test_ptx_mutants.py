"""A few mutants of the PTX of random kernels; many are made by tests/prover/ptx_mutants.py."""

from __future__ import annotations

from tests.prover.ptx_mutants import COMPARED, attack


def test_what_is_compared_is_caught() -> None:
    told, missed = attack(40, seed=2)
    assert missed == []
    assert {kind.__name__ for kind in COMPARED} <= {name.partition(",")[0] for name, _ in told}
