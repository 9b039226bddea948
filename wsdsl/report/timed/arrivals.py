"""Arrivals of ops at mbarriers, in this CTA and in others of the cluster."""

from wsdsl.ir.effects import Arrive
from wsdsl.ir.op import Op
from wsdsl.ir.types import Value
from wsdsl.report.timed.sm import Agent, Sm

COUNTS = {"one": 1, "warps": 4, "all": 128}
"""Arrivals of a warpgroup."""


def destinations(agent: Agent, multicast: Value | None) -> list[Sm]:
    """Return the SMs of the CTAs of a mask, or the agent's SM."""
    if multicast is None:
        return [agent.sm]
    mask = int(agent.get(multicast))
    return [other for rank, other in enumerate(agent.sm.cluster) if mask >> rank & 1]


def arrive(
    agent: Agent, op: Op, at: float, local: float = 0.0, remote: float = 0.0, to: Sm | None = None
) -> None:
    """Perform the arrivals of an op, `local` cycles after `at` in this CTA, `remote` in others.
    `to`: one of several destinations of a copy.
    """
    for effect in op.effects(agent.sm.definers):
        if not isinstance(effect, Arrive) or effect.on != "mbarrier" or effect.of is None:
            continue
        if effect.pred is not None and not agent.get(effect.pred):
            continue
        if effect.cta is not None:
            reached = [agent.sm.cluster[int(agent.get(effect.cta))]]
        elif effect.ctas > 1:
            reached = agent.sm.cluster
        else:
            reached = destinations(agent, effect.multicast) if to is None else [to]
        for sm in reached:
            later = local if sm is agent.sm else remote
            count = effect.count * COUNTS[effect.threads]
            sm.arrive(effect.of, agent.get(effect.item), at + later, count, effect.tx)
