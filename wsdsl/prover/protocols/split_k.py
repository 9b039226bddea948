"""Use of a tile's workspace entry by each iteration of a split-K or stream-K work loop.

All ways through an iteration are looked at; `serial_fixup.py` and `parallel_reduction.py` say
what is right. The iterations are those of the tile scheduler: their formulas are compared with its
own (`scheduler_terms.py`). docs/prover.md has the argument why this is enough.
"""

from wsdsl.ir.analysis.tensor_accesses import touches
from wsdsl.ir.op import Kernel, Op, operands, walk
from wsdsl.ir.ops import Partition, grid_of
from wsdsl.prover.failure import SPLIT_K, Failure, Party
from wsdsl.prover.machine.instructions import workspaces
from wsdsl.prover.machine.linear import Sums
from wsdsl.prover.protocols.disjoint_splits import check_pieces_apart
from wsdsl.prover.protocols.parallel_fixup import ParallelReduction
from wsdsl.prover.protocols.periodic_values import iterations_of
from wsdsl.prover.protocols.serial_fixup import SerialReduction
from wsdsl.prover.protocols.work_iteration import Findings, WorkIteration
from wsdsl.prover.protocols.workspace_slots import WorkspaceSlots


def check_split_k_protocol(kernel: Kernel) -> None:
    """Raises Failure where accumulators are forwarded in an unsupported way."""
    grid, lent = grid_of(kernel), workspaces(kernel)
    for op, touch in touches(kernel):
        if touch.flag and touch.tensor not in lent:
            raise _fail(0, op, "the prover supports only flags of workspaces")
    if not lent or grid is None:
        return
    sliced = any(getattr(op, "wrap", None) is not None for op, _ in touches(kernel))
    sums, found, agent = Sums(kernel), Findings(), 0
    slots = WorkspaceSlots(kernel, grid.cluster, max(1, grid.splits) if sliced else 1, sums)
    walked: list[WorkIteration] = []
    for op in kernel.body:
        used = [o for o in walk((op,)) if any(v.name in lent for v in operands(o))]
        if isinstance(op, Partition):
            if used:
                kind = ParallelReduction if sliced else SerialReduction
                walked.append(kind(op, sums, slots, kernel, found, agent))
                walked[-1].check(used)
                if sliced:
                    check_pieces_apart(kernel, walked[-1].work, agent, op.num_warpgroups)
            agent += op.num_warpgroups
        elif used:
            raise _fail(0, used[0], "the prover does not support this outside of the partitions")
    _compare(found)
    # Every split is forwarded in one partition, in each iteration.
    for iteration in iterations_of(w.phases for w in walked):
        for kind in zip(*(w.hands for w in walked), strict=True):
            if sum(hands[w.phases.number(iteration)] for hands, w in zip(kind, walked)) != 1:
                last = walked[-1]
                raise _fail(
                    last.agent, last.work, f"in iteration {iteration} a split is not released once"
                )


def _fail(agent: int, op: Op, message: str) -> Failure:
    return Failure(SPLIT_K, message, Party(agent, op))


def _compare(found: Findings) -> None:
    """A later split finds the accumulators of earlier ones where they stored them."""
    for op in list(found.flags.values())[1:]:
        raise _fail(0, op, "other ops use another flag for this workspace entry")
    for place, op in found.places.items():
        if any(place != other and place.meets(other) for other in found.places):
            raise _fail(0, op, "other ops access other rows, which overlap these in part")
    for place, op in found.loaded.items():
        if not all(place in left for left in found.left):
            raise _fail(0, op, "an earlier split may store nothing here")
