"""The CTAs of a cluster that reach each other, in groups: each is looked at without the others.

Two groups only synchronize where the whole cluster does. Each runs up to there alone, so all
of them come there, as often as the text says; one CTA's facts about another group no check needs
for. That no group reaches another is seen as each is followed on all ways.
"""

from wsdsl.ir.effects import Arrive
from wsdsl.ir.op import regions, walk
from wsdsl.ir.ops import Partition
from wsdsl.prover.machine.model import Model


def groups_of(model: Model) -> list[tuple[int | None, ...]]:
    """By rank, from the pairs seen to reach each other. All are one group if the cluster waits on
    some ways only."""
    if len(model.ranks) == 1 or _meets_inside(model):
        return [model.ranks]
    of = {rank: {rank} for rank in range(model.cluster)}
    for own, other in model.reached:
        both = of[own] | of[other]
        of |= dict.fromkeys(both, both)
    return [*sorted({tuple(sorted(group)) for group in of.values()})]


def _meets_inside(model: Model) -> bool:
    body = model.kernel.body
    straight = [*body, *(op for p in body if isinstance(p, Partition) for op in p.body)]
    inside = [r for op in straight if not isinstance(op, Partition) for r in regions(op)]
    effects = (e for x in inside for op in walk(x) for e in op.effects(model.kernel.definers))
    return any(isinstance(e, Arrive) and e.on == "cluster" for e in effects)
