"""CTAs of a cluster that reach each other, and those that do not."""

import pytest

import wsdsl
from tests.generated.test_found import PART_OF_ITS_OWN
from wsdsl import Schedule
from wsdsl.diagnostics import ProofError
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.machine import explore
from wsdsl.prover.machine.flatten import model_of
from wsdsl.prover.protocols.cluster_groups import groups_of
from wsdsl.prover.prove import prove


def scheduled(m: int, n: int) -> Kernel:
    made = wsdsl.parse(PART_OF_ITS_OWN).made
    cluster = {axis: count for axis, count in (("m", m), ("n", n)) if count > 1}
    schedule = Schedule(tile=dict(m=64, n=64, k=64), stages=2, consumers=1, cluster=cluster)
    return made._compile(schedule, {}, ()).scheduled


def test_neighbours_are_looked_at_without_the_others() -> None:
    """Two load for each other, and run as often as the other; other pairs run as often as they
    like, and all four together would be in very many states."""
    certificate = prove(scheduled(2, 2))
    assert certificate.ctas == 4
    assert certificate.states <= 60


def test_one_stands_for_all_that_share_nothing() -> None:
    certificate = prove(scheduled(8, 1))
    assert certificate.ctas == 1


PEER = '%peer: i32 = map(fn="add", args=(%rank_5, %away))'
WRONG = {
    "loads for CTAs of another group": ("args=(%c3_2, %base)", "args=(%c3_2, %place_4)"),
    "gives slots back to another group": (PEER, PEER.replace("rank", "place")),
    "nobody else of the group gives it back": ("cta=%peer)", "cta=%rank_5)"),
    "too few give it back": ('label="empty", arrivals=2', 'label="empty", arrivals=1'),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_or_between_groups_is_found(name: str) -> None:
    right, wrong = WRONG[name]
    text = str(scheduled(2, 2))
    assert right in text
    with pytest.raises(ProofError):
        prove(parse_kernel(text.replace(right, wrong)))


def test_groups_that_are_taken_too_small_are_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is reached from outside his group is looked at with those who do."""
    kernel = scheduled(1, 4)
    monkeypatch.setattr(explore, "groups_of", lambda model: [(r,) for r in model.ranks])
    assert explore.explore(kernel).ctas == 4


def test_who_meets_on_some_ways_only_is_one_group() -> None:
    text = str(scheduled(2, 2))
    meets = "  sync_cluster(relaxed=True)\n"
    assert groups_of(model_of(parse_kernel(text))) == [(0,), (1,), (2,), (3,)]
    inside = text.replace(meets, f"  elect() {{\n  {meets}  }}\n")
    assert groups_of(model_of(parse_kernel(inside))) == [(0, 1, 2, 3)]
