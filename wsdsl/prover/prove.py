"""Prove a SCHEDULED kernel: no deadlock, no race, every phase once, for any sizes."""

from __future__ import annotations

import hashlib

from wsdsl.artifact.artifact import Certificate
from wsdsl.diagnostics import ProofError
from wsdsl.ir.barrier_ops import AllocateBarriers, ClaimCluster
from wsdsl.ir.memory_ops import AllocateGlobal
from wsdsl.ir.narrowing import each_width, narrowing_of
from wsdsl.ir.op import Kernel
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.printer import print_kernel
from wsdsl.ir.spec import verify
from wsdsl.prover.counterexample import counterexample
from wsdsl.prover.explore import Refuted, explore

PROVED = (
    "no reachable deadlock",
    "no SMEM slot read before it is written, or written while it may be read",
    "every mbarrier phase completes once, with its arrivals and bytes, and no wait can miss one",
    "products over before their operands are released and their sums are read",
    "a proxy fence wherever the async proxy reads what threads wrote",
    "in each CTA, accesses to what the kernel writes in order, or elsewhere",
    "no copy or arrival in flight when a CTA ends",
    "setmaxnreg conserves registers",
)
HANDED_ON = (
    "a slot is used by its piece alone, and handed on once, to whoever waits for that; pieces, "
    "slots and iterations are the tile scheduler's (that its pieces cover each tile, and need only "
    "who comes before, is checked at each launch's sizes)"
)
CLAIMED = (
    "in each turn of the loops over items all partitions of a cluster have the same answer, and "
    "nobody asks again behind one that claims nothing (that the card lets each cluster start, or "
    "gives it to one other, is taken for granted)"
)
HOW = (
    "every order of steps is covered: what each thread knows to be over does not depend on it; "
    "every trip count is covered: loops are followed until no new state comes, states that differ "
    "by a rotation of a ring being one"
)


def digest(kernel: Kernel) -> str:
    """Of the kernel's text: what a certificate is for."""
    return hashlib.sha256(print_kernel(kernel).encode()).hexdigest()


def prove(kernel: Kernel) -> Certificate:
    """Raises ProofError, whose `counterexample` tells how the kernel goes wrong, or VerifyError."""
    verify(kernel)
    ctas, states, steps = 0, 0, 0
    for each in each_width(kernel):
        try:
            explored = explore(each)
        except Refuted as refuted:
            told = counterexample(each, refuted)
            raise ProofError(told.findings(), told) from None
        ctas, states, steps = explored.ctas, states + explored.states, steps + explored.steps
    partitions = [op for op in kernel.body if isinstance(op, Partition)]
    barriers = [op.result.type for op in kernel.of(AllocateBarriers)]
    lends = any(isinstance(op, AllocateGlobal) for op in kernel.body)
    claims = any(isinstance(op, ClaimCluster) for op in kernel.ops)
    told = [*PROVED, *[HANDED_ON] * lends, *[CLAIMED] * claims]
    if found := narrowing_of(kernel):
        told.append(f"all of this at each of {found.widths} widths of tiles that a launch may have")
    return Certificate(
        kernel.name,
        digest(kernel),
        tuple(told),
        HOW,
        ctas,
        sum(p.num_warpgroups for p in partitions) or 1,
        sum(getattr(kind, "num", 0) for kind in barriers),
        states,
        steps,
    )
