"""Break a kernel on tensor memory in every small way: the spec or the prover objects, or the change
is harmless for a reason that is written here.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.case_data import simulated
from tests.case_table import Case
from tests.decoded_kernels import DECODED
from tests.kernels import CASES
from tests.scaled_kernels import SCALED
from tests.simulator.kernels import run
from tests.tensor_memory import lowered, mutants, scheduled
from wsdsl.diagnostics import ProofError, VerifyError, WsdslError
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import MbarrierWait
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.rewriter import walk
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.prove import prove
from wsdsl.schedule import Place
from wsdsl.simulator.simulation_error import SimulationError

TWICE = ("tcgen05_fence", "sync_cta", "mbarrier_wait", "fence_async_proxy")
DATA = ("twice tcgen05_mma", "half tcgen05_ld")


def name_of(what: str) -> str:
    change, _, op = what.partition(" op ")
    return f"{change} {op.split(': ', 1)[1].split(' = ')[-1].split('(')[0]}"


def harmless(kernel: Kernel) -> tuple[str, ...]:
    """Behind the wait for a slot of sums another one follows, with a fence, before a product."""
    ops = list(walk(kernel.body))
    waits = [i for i, op in enumerate(ops) if isinstance(op, MbarrierWait)]
    (at,) = (i for i in waits if getattr(ops[i], "barriers", None).name == "empty_1")
    return f"delete op {at + 1}:", f"other op {at + 1}:"


def objection(kernel: Kernel) -> str:
    try:
        verify(kernel)
        prove(kernel)
    except (VerifyError, ProofError) as error:
        return str(error)
    return ""


def unseen(kernel: Kernel, ops: tuple[str, ...], *, twice: bool = False) -> Counter[str]:
    """Changes of these ops that nobody objects to; `twice`: also what is done twice."""
    named = ((name_of(what), made) for what, made in mutants(kernel))
    return Counter(
        change
        for change, made in named
        if change.rpartition(" ")[2] in ops and (twice or not change.startswith("twice "))
        if not objection(made)
    )


def test_every_mutant_is_caught() -> None:
    kernel = scheduled("gemm")
    proved = [what for what, made in mutants(kernel) if not objection(made)]
    once = [what for what in proved if name_of(what) not in [f"twice {name}" for name in TWICE]]
    left = [what for what in once if not what.startswith(harmless(kernel))]
    assert {name_of(what) for what in left} == {*DATA}, left


FALSE = "if(cond=%false) {{ {} yield() }} {{ yield() }}"


@pytest.mark.parametrize("change", ["{}", "", "half", FALSE], ids=["none", "deleted", "half", "if"])
def test_sums_that_no_product_wrote_are_not_used(change: str) -> None:
    text = str(scheduled("gemm"))
    (line,) = (x for x in text.splitlines() if "tcgen05_mma(" in x)
    half = line.replace("columns=64", "columns=32")
    broken = parse_kernel(text.replace(line, half if change == "half" else change.format(line)))
    told = objection(broken)
    assert ("no MMA may have written" in told) == bool(told) == (change != "{}"), told


def test_accumulators_that_no_product_wrote_are_not_used() -> None:
    asked = dict[str, Any](tile=dict(m=64, n=32), consumers=1, stages=2)
    text = str(lowered(CASES["gemm"], "sm_90a", **asked))
    (line,) = (x for x in text.splitlines() if "= wgmma_mma_async(" in x)
    made, acc = line.split(":")[0].strip(), line.partition("acc=")[2].split(",")[0]
    broken = text.replace(line + "\n", "").replace(f"values=({made},", f"values=({acc},")
    assert "no MMA may have written" in objection(parse_kernel(broken))


def test_what_changes_data_alone_gives_wrong_values() -> None:
    for what, kernel in mutants(scheduled("gemm")):
        if name_of(what) in DATA:
            with pytest.raises((WsdslError, AssertionError)):
                run(kernel, 130, 130, 200)


def test_every_mutant_of_multicast_is_caught() -> None:
    kernel = lowered(CASES["gemm"], cluster=dict(m=2), tile=dict(m=128, n=64), stages=3)
    kinds = ("tcgen05_commit", "constant", "tma_load", "allocate_mbarriers")
    assert {"alone tcgen05_commit", "mask 1 constant"} <= {name_of(w) for w, _ in mutants(kernel)}
    assert not unseen(kernel, kinds, twice=True)


def test_every_mutant_of_a_pair_is_caught() -> None:
    """Of what two CTAs have to do with each other. They may meet once more, and with a fence."""
    kinds = (
        "mbarrier_arrive",
        "mbarrier_arrive_expect_tx",
        "tma_load",
        "tcgen05_commit",
        "sync_cluster",
    )
    kinds += ("if", "tcgen05_alloc", "tcgen05_dealloc", "allocate_mbarriers", "constant")
    kernel = scheduled("gemm", pair=2)
    assert sum(name_of(what).rpartition(" ")[2] in kinds for what, _ in mutants(kernel)) > 40
    left = unseen(kernel, kinds, twice=True)
    assert left.keys() == {"relaxed sync_cluster", "twice sync_cluster"}


@pytest.mark.parametrize(
    ("change", "op"),
    [
        ("own barrier", "mbarrier_arrive"),
        ("own barrier", "tma_load"),
        ("own barrier", "mbarrier_arrive_expect_tx"),
        ("alone", "tcgen05_commit"),
        ("other CTA", "if"),
    ],
)
def test_what_breaks_a_pair_is_seen_as_it_runs(change: str, op: str) -> None:
    broken = [made for what, made in mutants(scheduled("gemm", pair=2)) if _is(what, change, op)]
    assert broken
    for kernel in broken:
        with pytest.raises(SimulationError):
            run(kernel, 130, 130, 200)


def _is(what: str, change: str, op: str) -> bool:
    return name_of(what) == f"{change} {op}"


HARMLESS = {
    # In front of a product two slots are waited for, and the last fence counts for both.
    "mx": {"delete tcgen05_fence": 2, "other tcgen05_fence": 2},
    # Scales have one item, and so have sums of 256 columns.
    "mx_atoms": {
        "delete tcgen05_fence": 1,
        "other tcgen05_fence": 1,
        "scale_state tcgen05_mma": 1,
    },
}


CHAINED = (
    "tcgen05_commit",
    "mbarrier_wait",
    "mbarrier_arrive",
    "fence_async_proxy",
    "store_shared",
    "tcgen05_st",
    "tcgen05_wait_st",
    "tcgen05_fence",
)


@pytest.mark.parametrize(
    ("place", "fences", "consumers"), [("shared", 9, 1), ("tensor", 10, 1), ("tensor", 10, 2)]
)
def test_every_mutant_of_a_chain_is_caught(place: Place, fences: int, consumers: int) -> None:
    """Attention: scores are taken, and their products' operand comes back through SMEM, or tensor
    memory, and the other sum is scaled there. What may be left out are fences that another one
    follows, or whose accesses another's fence covers, as scores have two slots, and of the other
    sum nothing but threads reach what they have read last; the first of the two waits at the end;
    and the wait for stores of an operand, since products wait for what threads store behind it.
    Without a store of what is scaled its columns have what they had.
    """
    asked = dict[str, Any](tile=dict(m=128 * consumers, n=64), consumers=consumers)
    asked |= dict(stages=2, operand_transform=place)
    kernel = lowered(CASES["attention"], sizes=dict(D=64, N=256), **asked)
    harmless = {"delete mbarrier_wait": 1, "delete tcgen05_st": 2}
    harmless |= {"delete tcgen05_wait_st": 1} if place == "tensor" else {}
    harmless |= {"delete tcgen05_fence": fences, "other tcgen05_fence": fences}
    assert unseen(kernel, CHAINED) == harmless


def test_what_of_an_operand_in_tensor_memory_is_not_proved_gives_wrong_values() -> None:
    asked = dict[str, Any](tile=dict(m=128, n=64), stages=2, operand_transform="tmem")
    kernel = lowered(CASES["attention"], sizes=dict(D=64), **asked)
    kinds, seen = ("tcgen05_st", "tcgen05_mma"), set[str]()
    for what, made in mutants(kernel):
        change = name_of(what)
        if not change.endswith(kinds) or change.startswith("twice ") or objection(made):
            continue
        if change == "a_state tcgen05_mma":
            continue  # Both rings have two slots.
        seen.add(change)
        with pytest.raises((WsdslError, AssertionError)):
            attend(made)
    assert seen == {"delete tcgen05_st"}


def attend(kernel: Kernel) -> None:
    simulated(CASES["attention"], kernel, num_sms=1, M=130, N=136, D=64)


DECODING = (
    "mbarrier_arrive",
    "tcgen05_commit",
    "tcgen05_st",
    "tcgen05_wait_st",
    "tcgen05_fence",
    "tcgen05_mma",
    "mbarrier_wait",
)


def test_every_mutant_of_who_decodes_into_tensor_memory_is_caught() -> None:
    """In front of a product slots of both operands and of its sum are waited for: the last fence
    counts for all.
    """
    asked = dict[str, Any](operand_transform="tmem", mma_m="n", tile=dict(n=128, m=64), stages=2)
    kernel = lowered(DECODED["scaled"], **asked)
    assert unseen(kernel, DECODING) == {"delete tcgen05_fence": 2, "other tcgen05_fence": 2}


PART = Case(
    """
@kernel
def part(A: bf16[M, K], B: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(40, 144, of=K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
""",
    lambda A, B: {"C": A[:, 40:144] @ B[:, 40:144].T},
    dict(M=130, N=72, K=200),
)


CLEARING = ("named_barrier_sync", "fence_async_proxy", "mbarrier_wait", "tcgen05_fence")


def test_every_mutant_of_who_clears_and_multiplies_is_caught() -> None:
    """A warpgroup, of which one thread waits for slots, starts products and commits. Behind the
    meeting in front of products a fence follows in any case.
    """
    kernel = lowered(PART, tile=dict(m=128, n=64, k=64), stages=2)
    assert unseen(kernel, CLEARING) == {"delete tcgen05_fence": 2, "other tcgen05_fence": 2}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", HARMLESS)
def test_every_mutant_of_scales_is_caught(name: str) -> None:
    kernel = lowered(SCALED[name], tile=dict(n=64 if name == "mx" else 256), stages=3)
    kinds = (
        "store_scale_factors",
        "tcgen05_wait_st",
        "tcgen05_mma",
        "tcgen05_commit",
        "tcgen05_fence",
    )
    kinds += ("mbarrier_wait", "mbarrier_arrive", "allocate_mbarriers", "tcgen05_cp")
    assert unseen(kernel, kinds) == HARMLESS[name]


def test_waiting_again_for_a_phase_makes_no_new_states() -> None:
    """Moved into the loop over K, a wait is repeated for one phase any number of times."""
    text = str(scheduled("gemm"))
    wait = "        mbarrier_wait(barriers=%empty_1, state=%s_8)\n"
    head = "args=(%started: bool, %s_11: state)) {\n"
    assert text.count(wait) == text.count(head) == 1
    moved = parse_kernel(text.replace(wait, "").replace(head, head + wait))
    assert "may count in phase 0" in objection(moved)
