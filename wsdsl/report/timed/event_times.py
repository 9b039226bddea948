"""Arrivals, commits of asynchronous groups, and waits for them, in predicted cycles."""

from collections.abc import Sequence
from typing import Any

from wsdsl.ir.effects import Access, Arrive, Wait
from wsdsl.report.timed.sm import Agent, Sm, Steps
from wsdsl.report.timed.units import Flag, Kind, Meeting

COUNTS = {"one": 1, "warps": 4, "all": 128}
"""Arrivals of a warpgroup."""
GROUPS: dict[str, Kind] = {"wgmma": "MMA", "bulk": "stores"}
MEETINGS = {
    "cta": "the CTA barrier", "cluster": "the cluster barrier", "named barrier": "other warpgroups",
}  # fmt: skip
Landed = list[tuple[Sm, float]]
"""SMs to whose SMEM an op writes asynchronously, and when the data are there."""


def targets(agent: Agent, effect: Access | Arrive) -> Sequence[Sm]:
    """Return the SMs of the CTAs that an effect reaches."""
    cluster = agent.sm.cluster
    if effect.cta is not None:
        return [cluster[int(agent.get(effect.cta))]]
    if effect.multicast is not None:
        mask = int(agent.get(effect.multicast))
        return [sm for rank, sm in enumerate(cluster) if mask >> rank & 1]
    if isinstance(effect, Access) and effect.pair:
        first = cluster.index(agent.sm)
        return cluster[first : first + 2]
    return cluster if effect.ctas > 1 else [agent.sm]


def arrive(agent: Agent, op: Any, effect: Arrive, landed: Landed) -> None:
    match effect:
        case Arrive(on="mbarrier"):
            _arrive_at_mbarriers(agent, effect, landed)
        case Arrive(on="wgmma" | "bulk" as on):
            agent.groups[on].append(agent.issued[GROUPS[on]])
            agent.decodes &= on != "wgmma"
        case Arrive(on="cta" | "cluster" | "named barrier"):
            meeting, expected = _meeting(agent, op, effect)
            agent.come(meeting, expected)
        case Arrive(on="semaphore"):
            flag, amount = _flag(agent, op), op.amount if op.by is None else int(agent.get(op.by))
            flag.added.append((agent.now, amount))
            agent.sm.wake(flag)
        case _:
            pass


def _arrive_at_mbarriers(agent: Agent, effect: Arrive, landed: Landed) -> None:
    rates, state = agent.sm.speeds.rates, agent.get(effect.item)
    assert effect.of is not None
    if effect.tx < 0:
        for sm, at in landed:
            sm = sm if effect.cta is None else targets(agent, effect)[0]
            sm.arrive(effect.of, state, at, 0, effect.tx)
        return
    if effect.pred is not None and not agent.get(effect.pred):
        return
    at = max(agent.now, agent.issued["MMA"][1]) if effect.asynchronous else agent.now
    local = 0.0 if effect.tx else rates.mbarrier_cycles
    for sm in targets(agent, effect):
        later = local if sm is agent.sm else rates.cluster_exchange_cycles
        sm.arrive(effect.of, state, at + later, effect.count * COUNTS[effect.threads], effect.tx)


def wait(agent: Agent, op: Any, effect: Wait) -> Steps:
    sm, rates = agent.sm, agent.sm.speeds.rates
    match effect:
        case Wait(on="mbarrier", item=item):
            state, name = agent.get(item), op.barriers.name
            barrier = sm.barriers[name][state.stage]
            yield from agent.awaits(barrier, lambda: barrier.over(state.parity), sm.edges[name])
        case Wait(on="wgmma" | "bulk" as on, pending=pending):
            covered = agent.groups[on][: max(0, len(agent.groups[on]) - pending)]
            agent.until(max((group[not effect.read] for group in covered), default=0.0), GROUPS[on])
            if not effect.read:
                del agent.groups[on][: len(covered)]
        case Wait(on="cta" | "cluster" | "named barrier" as on):
            meeting, own = agent.met
            more = rates.named_barrier_cycles if on == "named barrier" else 0.0
            yield from agent.awaits(meeting, lambda: meeting.over(own), MEETINGS[on], more)
        case Wait(on="semaphore"):
            flag, count = _flag(agent, op), int(agent.get(op.count))
            more = rates.hand_over_cycles if count > 0 else 0.0
            edge = "accumulators of other CTAs"
            yield from agent.awaits(flag, lambda: flag.reached(count), edge, more)
        case _:
            pass


def _meeting(agent: Agent, op: Any, effect: Arrive) -> tuple[Meeting, int]:
    """Return a barrier, and how many agents it expects."""
    if effect.on == "named barrier":
        item = 0 if effect.item is None else int(agent.get(effect.item))
        return agent.sm.meetings[effect.numbers[item]], op.num_warpgroups
    # That of a cluster is a part of what a start takes.
    sms = agent.sm.cluster if effect.on == "cluster" else [agent.sm]
    return sms[0].meetings[effect.on], sum(len(sm.agents) for sm in sms)


def _flag(agent: Agent, op: Any) -> Flag:
    return agent.sm.flags[op.tensor.name, tuple(int(agent.get(i)) for i in op.index)]
