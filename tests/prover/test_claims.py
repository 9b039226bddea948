"""Break a kernel whose clusters claim tiles in every small way: the spec or the prover objects, or
the change is harmless for a reason that is written here.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.claimed_kernels import FORMS, claimed, mutants
from tests.kernels import CASES
from tests.prover.hostile import attack
from tests.prover.hostile_kernels import scheduled as victim_by
from tests.prover.test_counterexamples import refutation, replay
from tests.prover.test_tensor_memory import name_of, objection
from tests.scaled_kernels import SCALED
from tests.tensor_memory import lowered
from wsdsl import Schedule
from wsdsl.diagnostics import ProofError, WsdslError
from wsdsl.ir.op import Op
from wsdsl.ir.ops import ClcTryCancel, ForRange, Map
from wsdsl.ir.rewriter import rewrite
from wsdsl.prover.failure import GLOBAL_ORDER
from wsdsl.prover.prove import prove

# Who waits, fences or meets once more.
TWICE = {"twice mbarrier_wait", "twice fence_async_proxy", "twice sync_warp"}
HARMLESS = {
    # What is expected may be so before or after the wait for the slot. The load partition's own
    # fence, behind its read, comes before it asks again in any case.
    "alone": {
        "swapped mbarrier_arrive_expect_tx": 1,
        "swapped clc_query_cancel": 1,
        "swapped fence_async_proxy": 1,
    },
    # All of a pair meet at the end; the first CTA's own barrier is its own.
    "pair": {"delete mbarrier_wait": 2, "own barrier mbarrier_arrive": 1},
    "cluster": {},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_mutant_is_caught(form: str) -> None:
    kernel = claimed(form)
    prove(kernel)
    broken = [(name_of(what), made) for what, made in mutants(kernel)]
    assert len(broken) > 60
    left = Counter(what for what, made in broken if what not in TWICE and not objection(made))
    assert left == HARMLESS[form]


PERSIST = ("two_loops", "nested", "each_inside", "epilogue", "scaled_rows")
SCALES = ("mx", "mx_atoms", "nvf4", "mx_experts")


@pytest.mark.parametrize("name", [*PERSIST, *SCALES])
def test_what_persists_may_claim(name: str) -> None:
    kernel = lowered(SCALED[name] if name in SCALES else CASES[name], scheduler="dynamic")
    assert kernel.of(ClcTryCancel)
    prove(kernel)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(24))
def test_no_false_alarm(seed: int) -> None:
    rng = Random(seed)
    asked = dict[str, Any](
        tile=dict(m=rng.choice((64, 128)), n=rng.choice((16, 48, 96, 128, 256))),
        stages=rng.choice((1, 2, 3, 5)),
        cluster=rng.choice((None, None, dict(m=2), dict(n=2), dict(m=2, n=2))),
        multicast=rng.choice((None, False)),
        raster=rng.choice((None, "m", "n")),
        swizzle=rng.choice((None, 1, 4)),
    )
    name = rng.choice(("gemm", "mn_major", "epilogue", "two_products", "quantised"))
    try:
        kernel = lowered(CASES[name], scheduler="dynamic", **asked)
    except WsdslError:
        return
    prove(kernel)


def test_items_are_not_left_undone() -> None:
    """A loop that ends before the grid does leaves out what its cluster has claimed."""
    kernel = claimed("alone")
    made = kernel.definers

    def shorter(op: Op) -> tuple[Op, ...]:
        if not (isinstance(op, ForRange) and op.claimed):
            return (op,)
        count = made[op.stop]
        assert isinstance(count, Map) and count.fn == "mul"
        return (dataclasses.replace(op, stop=count.args[0]),)

    body = rewrite(kernel.body, shorter)
    with pytest.raises(ProofError, match="not end at the number of items"):
        prove(dataclasses.replace(kernel, body=body))


@pytest.mark.parametrize("form", FORMS)
def test_the_simulator_goes_the_same_way(form: str, each: Callable[[int], int]) -> None:
    """The one cluster that is looked at claims all tiles, in order. (In the simulator a thread's
    arrivals land one after another.)
    """
    replayed, missed = 0, list[str]()
    for what, mutant in list(mutants(claimed(form)))[:: each(4)]:
        found = refutation(mutant)
        known = found is not None and found.kind not in (GLOBAL_ORDER, "exit")
        sizes = found.sizes if found is not None and known else None
        if found is not None and sizes and sizes["M"] and sizes["N"]:
            replayed += 1
            if not replay("gemm", mutant, found):
                missed.append(f"{what}: {found.kind}: {found.message}")
    assert missed == [] and replayed > 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
def test_what_does_harm_is_refused(form: str) -> None:
    """Of mutants of all of the kernel, as `python -m tests.prover.hostile` has them."""
    asked = Schedule(arch="sm_100a", tile=dict(m=64 if form == "cluster" else 128), **FORMS[form])
    outcome = attack([victim_by("epilogue", asked, (), Random(form))], 12, seed=1)
    assert outcome.missed == outcome.alarms == [] and outcome.harmful > 4
