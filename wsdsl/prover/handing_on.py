"""Kernels whose CTAs hand sums on: what each turn does with the slot of its tile, and when.

All ways through a turn are looked at; `in_turns.py` and `in_slices.py` say what is right. The turns
are those of the tile scheduler: their sums are compared with its own (`work.py`). docs/prover.md
has the argument why this is enough.
"""

from __future__ import annotations

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import memory_ops as m
from wsdsl.ir.op import Kernel, Op, operands
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.walk import walk
from wsdsl.prover.errors import Failure, Party
from wsdsl.prover.in_slices import InSlices
from wsdsl.prover.in_turns import InTurns
from wsdsl.prover.linear import Sums
from wsdsl.prover.phases import turns_of
from wsdsl.prover.slots import Slots
from wsdsl.prover.turn import HANDING_ON, Findings, Turn


def check_handing_on(kernel: Kernel) -> None:
    """Raises Failure where sums are handed on in another way than is understood."""
    grid = next((op for op in kernel.body if isinstance(op, b.LaunchGrid)), None)
    lent = {op.result.name for op in kernel.ops if isinstance(op, m.AllocateGlobal)}
    if not lent or grid is None:
        return
    arrivals = [op for op in kernel.ops if isinstance(op, b.ArriveFlag)]
    sliced = any(op.wrap is not None for op in arrivals)
    sums, found, agent = Sums(kernel), Findings(), 0
    slots = Slots(kernel, grid.cluster, max(1, grid.splits) if sliced else 1, sums)
    walked: list[Turn] = []
    for op in kernel.body:
        used = [o for o in walk((op,)) if any(v.name in lent for v in operands(o))]
        if isinstance(op, Partition):
            if used:
                kind = InSlices if sliced else InTurns
                walked.append(kind(op, sums, slots, grid, found, agent))
                walked[-1].check(used)
            agent += op.num_warpgroups
        elif used:
            raise _fail(0, used[0], "outside of the partitions this is not understood")
    _compare(found)
    _once(walked)


def _once(walked: list[Turn]) -> None:
    """Every piece is handed on in one partition, whatever turn it comes in."""
    for turn in turns_of(w.phases for w in walked):
        for kind in zip(*(w.hands for w in walked), strict=True):
            if sum(hands[w.phases.number(turn)] for hands, w in zip(kind, walked)) != 1:
                last = walked[-1]
                raise _fail(last.agent, last.work, f"in turn {turn} a piece is not handed on once")


def _fail(agent: int, op: Op, message: str) -> Failure:
    return Failure(HANDING_ON, message, Party(agent, op))


def _compare(found: Findings) -> None:
    """Whoever comes next finds what those before have left, where they have left it."""
    for op in list(found.flags.values())[1:]:
        raise _fail(0, op, "this is another flag of the slot than elsewhere")
    for place, op in found.places.items():
        if any(place != other and place.meets(other) for other in found.places):
            raise _fail(0, op, "elsewhere other lines are taken, and these in part")
    for place, op in found.loaded.items():
        if not all(place in left for left in found.left):
            raise _fail(0, op, "a piece before this may leave nothing here")
    if len(found.middles) > 1:
        op = next(iter(found.places.values()))
        raise _fail(0, op, "some pieces wait for all in front of them, some do not")
