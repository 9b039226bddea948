"""Break each synchronising op of a proved kernel in every small way: the proof fails, or the change
is harmless for a reason that is written here.
"""

import dataclasses
import itertools

import pytest

from tests.kernels import CASES
from tests.prover.random_schedules import random_kernels
from tests.simulator.mutants import mutants
from tests.test_mutations import SMALL, scheduled
from wsdsl.diagnostics import VerifyError
from wsdsl.ir import barrier_ops as b
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.spec import verify
from wsdsl.ir.walk import walk
from wsdsl.prover.explore import Refuted, explore

SAME_TWICE = (
    "fence_barrier_init", "sync_cta", "wait_barrier", "wgmma_fence", "tma_store_wait", "sync_warp",
    "fence_async_proxy", "sync_cluster", "named_barrier_sync", "wgmma_wait",
)  # fmt: skip
HARMLESS = {
    "no pred": "the pred was always true",
    "twice": "done twice it orders what it ordered once, and nothing waits for its count",
    "stricter": "it waits for more than it must",
    "data": "it changes what is computed, which the reference shows, not when",
    "same count": "with as many registers as at entry, giving and taking are the same",
    "covered": "a later fence or arrival of the same threads covers it too",
}


def reason(what: str, kernel: Kernel) -> str:
    """Why a mutant that is still proved is harmless; empty if there is no such reason."""
    change, _, op = what.partition(" op ")
    name = op.split(": ", 1)[1].split("= ")[-1].split("(")[0]
    if change.startswith("twice"):
        if name in SAME_TWICE:
            return "twice"
        if name in ("wgmma_commit", "tma_store_commit"):
            return "stricter"  # an empty group takes the place of a full one among the pending
        if name in ("tma_store", "store_shared", "thread_load"):
            return "data"
    if change.startswith("pending 0"):
        return "stricter"
    if change.startswith("read"):
        # Ended by the end of the kernel, where the writes are over all the same.
        return "stricter" if "read=False" not in op else "data"
    if change.startswith("swizzle") or (name == "tma_store" and change.startswith("delete")):
        return "data"
    if change.startswith("increase"):
        return "same count"
    if change.startswith("delete") and name == "fence_async_proxy":
        fences = sum(isinstance(o, b.FenceAsyncProxy) for o in walk(kernel.body))
        return "covered" if fences > 0 else ""
    return ""


def missed(kernel: Kernel) -> list[str]:
    found: list[str] = []
    for what, mutant in mutants(kernel):
        try:
            verify(mutant)
            explore(mutant)
        except Refuted as refuted:
            assert refuted.failure.kind != "unknown", refuted.failure.message
        except VerifyError:
            pass
        else:
            if reason(what, mutant) not in HARMLESS:
                found.append(what)
    return found


@pytest.mark.parametrize("threads", [False, True], ids=["tma", "threads"])
@pytest.mark.parametrize("name", SMALL)
def test_cases(name: str, threads: bool) -> None:
    schedule, sizes, *_ = SMALL[name]
    assert missed(scheduled(CASES[name], schedule, sizes, threads)) == []


@pytest.mark.parametrize("name", ["gemm", "gemm_cluster", "gemm_pingpong", "gemm_registers"])
def test_hand_written(name: str) -> None:
    with open(f"tests/samples/{name}.scheduled.ir") as file:
        kernel = parse_kernel(file.read(), name)
    assert missed(dataclasses.replace(kernel)) == []


def test_random_schedules() -> None:
    """A few here; `python -m tests.prover.random_schedules mutants 100` takes a hundred."""
    for what, kernel in itertools.islice(random_kernels(3), 3):
        assert missed(kernel) == [], what
