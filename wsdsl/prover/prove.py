"""Prove a SCHEDULED kernel: no deadlock, no race, every phase once, for any sizes."""

import hashlib

from wsdsl.artifact.artifact import Certificate
from wsdsl.diagnostics import ProofError
from wsdsl.ir.analysis.launch_narrowing import each_width, narrowing_of
from wsdsl.ir.op import Kernel, results_of
from wsdsl.ir.ops import ClcTryCancel, Partition
from wsdsl.ir.types import Barriers
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.machine.counterexample import counterexample
from wsdsl.prover.machine.explore import Refuted, explore
from wsdsl.prover.machine.instructions import workspaces

PROVED = (
    "no reachable deadlock",
    "no SMEM stage read before it is written, or written while it may be read",
    "every mbarrier phase completes once, with its arrivals and bytes, and no wait can miss one",
    "MMAs complete before their operands are released and their accumulators are read",
    "a proxy fence wherever the async proxy reads what threads wrote",
    "accesses of each CTA to tensors that the kernel writes are ordered or disjoint",
    "no async copy or arrival outstanding when a CTA ends",
    "setmaxnreg conserves registers",
)
HANDED_ON = (
    "each workspace entry is used by one split and released once, to the split that waits for it; "
    "splits, entries and iterations are those of the tile scheduler (that its splits cover each "
    "tile, and depend only on earlier splits, is checked at the sizes of each launch)"
)
CLAIMED = (
    "in each iteration over claimed items all partitions of a cluster have the same CLC response, "
    "and no claim follows a response without an item (that the GPU starts each cluster, or gives "
    "it to one other, is assumed)"
)
HOW = (
    "every order of steps is covered: happens-before facts of a thread do not depend on it; "
    "every trip count is covered: loops are followed until no new state appears, and states that "
    "differ by a rotation of pipeline stages are one"
)


def digest(kernel: Kernel) -> str:
    """Hash the IR of a kernel, which a certificate names."""
    return hashlib.sha256(str(kernel).encode()).hexdigest()


def prove(kernel: Kernel) -> Certificate:
    """Prove a kernel. Raises ProofError with a `counterexample`, or VerifyError."""
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
    results = [v.type for op in kernel.body for v in results_of(op)]
    barriers = [kind for kind in results if isinstance(kind, Barriers)]
    claims = bool(kernel.of(ClcTryCancel))
    told = [*PROVED, *[HANDED_ON] * bool(workspaces(kernel)), *[CLAIMED] * claims]
    if found := narrowing_of(kernel):
        told.append(f"all of this holds at each of {found.widths} tile widths of launches")
    return Certificate(
        kernel.name,
        digest(kernel),
        tuple(told),
        HOW,
        ctas,
        sum(p.num_warpgroups for p in partitions) or 1,
        sum(kind.num for kind in barriers),
        states,
        steps,
    )
