"""Break each synchronising op of a proved kernel in every small way: the proof fails, or the change
is harmless for a reason that is written here.
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels import CASES
from tests.prover.random_schedules import random_kernels
from tests.simulator.kernels import run, sample
from tests.simulator.mutants import mutants
from tests.test_mutations import SMALL, objection, scheduled
from wsdsl import Schedule
from wsdsl.diagnostics import VerifyError, WsdslError
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.ops import Partition
from wsdsl.ir.rewriter import walk
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.machine.explore import Refuted, explore

SAME_TWICE = (
    "fence_mbarrier_init", "sync_cta", "mbarrier_wait", "wgmma_fence",
    "tma_store_wait", "sync_warp",
    "fence_async_proxy", "sync_cluster", "named_barrier_sync", "wgmma_wait", "semaphore_wait",
)  # fmt: skip
WAITS = ("tma_store_wait", "wgmma_wait", "sync_warp", "named_barrier_sync")
HARMLESS = {
    "no pred": "the pred was always true",
    "twice": "done twice it orders what it ordered once, and nothing waits for its count",
    "stricter": "it waits for more than it must",
    "data": "it changes what is computed, which the reference shows, not when",
    "same count": "with as many registers as at entry, giving and taking are the same",
    "apart": "no CTA reaches into another one, which might have ended",
    "itself": "the rank that is named is one's own",
    "covered": "a later fence of the same threads covers it too",
    "elsewhere": "the same warpgroups meet at another barrier, which nobody else uses",
    "redundant": "other waits order the same; the simulator finds nothing either, and right values",
}


def reaches_out(op: Op) -> bool:
    return bool(getattr(op, "cta", None) or getattr(op, "multicast", None))


def reason(what: str, kernel: Kernel) -> str:
    """Why a mutant that is still proved is harmless; empty if there is no such reason."""
    change, _, op = what.partition(" op ")
    name = op.split(": ", 1)[1].split("= ")[-1].split("(")[0]
    if change.startswith("twice"):
        if name in SAME_TWICE:
            return "twice"
        if name in ("wgmma_commit", "tma_store_commit"):
            return "stricter"  # an empty group takes the place of a full one among the pending
        if name in ("tma_store", "thread_store", "store_shared", "thread_load"):
            return "data"
    if change.startswith("barrier") and name == "named_barrier_sync":
        used = [o.barrier for o in walk(kernel.body) if isinstance(o, ops.NamedBarrierSync)]
        arrive = any(isinstance(o, ops.NamedBarrierArrive) for o in walk(kernel.body))
        return "elsewhere" if not arrive and used.count(max(used)) == 1 else ""
    if change.startswith(("delete", "pending +1")) and name in WAITS:
        return "redundant"
    if change.startswith("pending 0") or (change == "release" and "release=False" in op):
        return "stricter"
    if change.startswith("read"):
        # Ended by the end of the kernel, where the writes are over all the same.
        return "stricter" if "read=False" not in op else "data"
    if change.startswith("delete") and name == "sync_cluster":
        # The first one would be missed, by barriers that are not known to be initialised.
        return "" if any(map(reaches_out, walk(kernel.body))) else "apart"
    if change.startswith("own cta") and any(
        isinstance(o, ops.CtaRank) and f"cta=%{o.result.name}" in op for o in walk(kernel.body)
    ):
        return "itself"
    if change.startswith("swizzle") or name in (
        *("tma_store", "thread_store", "store_shared", "thread_load"),
    ):
        return "data"
    if change.startswith("increase"):
        return "same count"
    if change.startswith("num +1") and name == "advance":
        # In a "grid" a ring may come to its end once, and then nobody uses the next state.
        grids = (o.scheduler == "grid" for o in walk(kernel.body) if isinstance(o, ops.LaunchGrid))
        return "redundant" if any(grids) else ""
    if change.startswith("delete") and name == "fence_async_proxy":
        fences = sum(isinstance(o, ops.FenceAsyncProxy) for o in walk(kernel.body))
        return "covered" if fences > 0 else ""
    return ""


def missed(kernel: Kernel, objection: Callable[[Kernel], str], each: int = 1) -> list[str]:
    """What no proof fails for, of one mutant in `each`."""
    found: list[str] = []
    for what, mutant in itertools.islice(mutants(kernel), None, None, each):
        try:
            verify(mutant)
            explore(mutant)
        except Refuted as refuted:
            assert refuted.failure.kind != "unknown", refuted.failure.message
        except VerifyError:
            pass
        else:
            why = reason(what, mutant)
            if why not in HARMLESS or (why == "redundant" and objection(mutant)):
                found.append(what)
    return found


def missed_in_case(name: str, kernel: Kernel, each: int = 1) -> list[str]:
    case = CASES[name]
    sizes = dict.fromkeys(case.kernel.dims, 136) | dict(case.sizes) | dict(kernel.sizes)
    with np.errstate(all="ignore"):
        return missed(kernel, lambda mutant: objection(case, mutant, sizes), each)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("threads", [False, True], ids=["tma", "threads"])
@pytest.mark.parametrize("name", SMALL)
def test_cases(name: str, threads: bool) -> None:
    schedule, sizes, *_ = SMALL[name]
    assert missed_in_case(name, scheduled(CASES[name], schedule, sizes, threads)) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("threads", [(), ("B",)], ids=str)
def test_two_that_fill_a_slot(threads: tuple[str, ...]) -> None:
    schedule = dataclasses.replace(SMALL["gemm"][0], pdl_independent=("B",))
    kernel = CASES["gemm"].kernel._compile(schedule, {}, threads).scheduled
    assert missed_in_case("gemm", kernel) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "constant"),
    [("block_scaled", ("B", "b_scale")), ("block_scaled", ("a_scale",)), ("epilogue", ("B",))],
    ids=str,
)
def test_two_that_fill_a_slot_beside_others(
    name: str, constant: tuple[str, ...], each: Callable[[int], int]
) -> None:
    given = Schedule(tile=dict(m=64, n=32), consumers=1, stages=2, pdl_independent=constant)
    kernel = scheduled(CASES[name], given, SMALL[name][1] if name in SMALL else {}, False)
    loads = [op for op in kernel.body if isinstance(op, Partition) and op.role == "load"]
    assert [op.num_warps for op in loads[:2]] == [4, 1]
    assert missed_in_case(name, kernel, each(3)) == []


def simulated(mutant: Kernel) -> str:
    try:
        for seed in range(3):
            run(mutant, 136, 136, 200, seed, num_sms=2 + seed)
    except (WsdslError, AssertionError) as error:
        return str(error) or "wrong"
    return ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gemm_registers", "stream_k"])
def test_hand_written(name: str) -> None:
    """Those that are like what lowering makes are broken as such (`test_generated.py`)."""
    assert missed(sample(name), simulated) == []


def test_random_schedules() -> None:
    """Every fifth mutant of one here; `python -m tests.prover.test_mutants 100` takes all of a
    hundred.
    """
    for name, what, kernel in itertools.islice(random_kernels(3), 1):
        assert missed_in_case(name, kernel, each=5) == [], what


if __name__ == "__main__":
    status, seed = 0, int(sys.argv[2]) if len(sys.argv) > 2 else 3
    for name, what, kernel in itertools.islice(random_kernels(seed), int(sys.argv[1])):
        found = missed_in_case(name, kernel)
        status |= bool(found)
        print(what, found, flush=True)
    sys.exit(status)
