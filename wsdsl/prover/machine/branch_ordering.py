"""Which of several open questions is decided first: the order decides how many states there are.

An answer advances its asker. Where others are behind, and ask something else, the leader
would get further and further ahead of them, and no state would come again.
"""

from collections.abc import Mapping, Sequence

from wsdsl.prover.machine.iterations import may_enter
from wsdsl.prover.machine.machine import ENDED, NOBODY, Agent, Machine
from wsdsl.prover.machine.symbolic_terms import Term


def chosen(m: Machine, asked: Mapping[Term, Sequence[Agent]]) -> Term:
    """First tests that advance no other partition, then tests in an iteration, by which no agent
    comes to another one, then what the last ask for, and most; an agent ahead of the others is not
    driven further."""
    if len(asked) == 1:
        return next(iter(asked))
    return max(asked, key=lambda atom: _rank(m, atom, asked[atom]))


def _rank(
    m: Machine, atom: Term, asking: Sequence[Agent]
) -> tuple[float, bool, bool, tuple[int, int], int]:
    turn = max([-m.turn(agent) for agent in asking]) if m.model.work else 0
    alone, inside = any(_alone(m, agent) for agent in asking), atom[0] != "next"
    return turn, alone, inside, max([_behind(m, agent) for agent in asking]), len(asking)


def _behind(m: Machine, agent: Agent) -> tuple[int, int]:
    """How many iterations others have begun that the agent may yet come to: of its outermost loop,
    and of loops in an iteration that it is in, which it may not have entered yet."""
    own = [frame[1] for frame in agent.frames if frame[0] == "open"]
    ahead = [_following(m, iteration) for iteration in own]
    outer, inner = sum(ahead[:1]), sum(ahead[1:])
    for key, first in m.loops.items():
        parent = key[2]
        if parent in (NOBODY, *own) and may_enter(m, agent, key):
            count = 1 + _following(m, first) if first != ENDED else 0
            if parent == NOBODY and not own:
                outer += count
            else:
                inner += count
    return outer, inner


def _following(m: Machine, iteration: int) -> int:
    count = 0
    while (iteration := m.following.get(iteration, ENDED)) != ENDED:
        count += 1
    return count


def _alone(m: Machine, agent: Agent) -> bool:
    """Whether it is in or before a loop whose trip count no other partition can observe, how often
    it runs."""
    code = m.model.codes[agent.partition]
    if code.instructions[agent.pc].signature in code.own:
        return True
    inner = next((frame[1] for frame in reversed(agent.frames) if frame[0] == "open"), ENDED)
    run = m.iterations.get(inner)
    return run is not None and run.signature in code.own
