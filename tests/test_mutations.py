"""Take any wait, arrive or fence out of a scheduled kernel: the spec or the simulator objects."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.kernels import CASES, Case, simulated
from tests.simulator.mutants import exchange as without
from wsdsl.diagnostics import WsdslError
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.rewriter import walk
from wsdsl.ir.verify.verifier import verify
from wsdsl.schedule import Schedule

SYNCHRONISING = (
    ops.MbarrierWait, ops.MbarrierArrive, ops.MbarrierArriveExpectTx, ops.MbarrierInit,
    ops.FenceMbarrierInit, ops.SyncCta, ops.SyncWarp, ops.FenceAsyncProxy, ops.Setmaxnreg,
    ops.WgmmaFence, ops.WgmmaCommit, ops.WgmmaWait, ops.TmaStoreCommit, ops.TmaStoreWait,
)  # fmt: skip
SMALL = {
    "gemm": (
        Schedule(tile=dict(m=64, n=64), consumers=1, stages=2, scheduler="persistent"),
        dict(M=130, N=136, K=328),
    ),
    "two_products": (
        Schedule(tile=dict(n=32), stages=2, scheduler="persistent"),
        dict(M=136, N=72, K=328),
    ),
    "held_operand": (
        Schedule(tile=dict(m=64, n=32), consumers=1, stages=2, scheduler="persistent"),
        dict(M=500, N=200, D=64),
        # With one inner slot a tile, the inner ring does not hold the outer one back.
        dict(M=1000, N=20, D=64),
    ),
    "nested": (Schedule(tile=dict(n=64), stages=2), dict(M=136, N=200, K=328)),
    "product_f8e4m3": (
        Schedule(tile=dict(n=64), stages=2, scheduler="persistent"),
        dict(M=136, N=200, K=784),
    ),
    "block_scaled": (
        Schedule(tile=dict(m=64, n=32), consumers=1, stages=2, scheduler="persistent"),
        dict(M=136, N=136, K=656, NB=2, KB=8),
    ),
}

HARMLESS = {
    # The same threads write the held operand's slot and, after it, the inner one's: the fence of
    # the second covers the first, and the consumer waits for both.
    ("held_operand", True): ["fence_async_proxy"],
}


def scheduled(case: Case, schedule: Schedule, sizes: dict[str, int], threads: bool) -> Kernel:
    names = tuple(p.name for p in case.kernel.tile_ir.params) if threads else ()
    return case.kernel._compile(schedule, sizes, names).scheduled


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    for i, op in enumerate(walk(kernel.body)):
        if isinstance(op, SYNCHRONISING):
            yield f"{i} {op_name(type(op))}", without(kernel, op)


def objection(case: Case, kernel: Kernel, *several: dict[str, int]) -> str:
    """What the spec or the simulator says; empty if neither minds, for any sizes, in any of a few
    orders.
    """
    try:
        verify(kernel)
    except WsdslError as error:
        return str(error)
    for sizes, seed in itertools.product(several, range(4)):
        try:
            simulated(case, kernel, seed, num_sms=2, **sizes)
        except (WsdslError, AssertionError) as error:
            return str(error) or "wrong"
    return ""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("threads", [False, True], ids=["tma", "threads"])
@pytest.mark.parametrize("name", SMALL)
def test_every_deletion_is_noticed(name: str, threads: bool) -> None:
    case, (schedule, *sizes) = CASES[name], SMALL[name]
    kernel = scheduled(case, schedule, sizes[0], threads)
    assert objection(case, kernel, *sizes) == ""
    with np.errstate(all="ignore"):
        missed = [what for what, mutant in mutants(kernel) if not objection(case, mutant, *sizes)]
    assert [what.split()[1] for what in missed] == HARMLESS.get((name, threads), [])
