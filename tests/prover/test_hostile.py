"""A few of the mutants that `python -m tests.prover.hostile N SEED` draws by the thousand."""

from tests.prover.hostile import attack


def test_whatever_does_harm_is_refused() -> None:
    ended, missed = attack(8, seed=4, most=1)
    assert missed == []
    assert ended["refused by the prover"] + ended["refused by the spec"] > 0
