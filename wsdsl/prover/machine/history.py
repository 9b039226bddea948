"""A run with its history: which step came from which, so that only what matters is told."""

from bisect import bisect_right

from wsdsl.ir.op import Op
from wsdsl.prover.failure import Failure, Party
from wsdsl.prover.machine.instructions import BLOCKED, Instruction
from wsdsl.prover.machine.machine import Agent, Machine
from wsdsl.record import record


@record
class Step:
    """An op that an agent ran, where in its loops, and what its barrier looked like then."""

    agent: int
    op: Op
    loops: tuple[tuple[str, str], ...]
    barrier: str


class History:
    """Follows a machine. Each step is an event too, so events that an agent saw are its past."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.pasts: list[int] = []
        self.begins: list[int] = []

    def step(self, m: Machine, a: Agent, i: Instruction) -> int:
        if i.op not in m.model.effects.noticed:
            try:
                return i.run(m, a, i)
            except Failure as failure:
                failure.details["past"] = m.everything(a)
                raise
        undo = m.next_event, list(a.know), a.did
        begins = m.next_event.bit_length()
        event = m.event()
        if i.elected:
            a.know[0] |= event
        else:
            a.know = [k | event for k in a.know]
        try:
            outcome = i.run(m, a, i)
        except Failure as failure:
            failure.details["past"] = m.everything(a) & ~event
            raise
        except Exception:
            m.next_event, a.know, a.did = undo
            raise
        if outcome == BLOCKED:
            if a.named < 0:
                m.next_event, a.know, a.did = undo
            return outcome
        self.begins.append(begins)
        self.pasts.append(m.everything(a))
        self.steps.append(Step(a.index, i.op, loops_of(m, a), barrier_text(m, a, i)))
        return outcome

    def before(self, mask: int) -> set[int]:
        """The steps that the events in a mask come from, and those before them."""
        found: set[int] = set()
        work = [mask]
        while work:
            mask = work.pop()
            while mask:
                bit = mask & -mask
                mask ^= bit
                place = bisect_right(self.begins, bit.bit_length()) - 1
                if place >= 0 and place not in found:
                    found.add(place)
                    work.append(self.pasts[place])
        return found

    def last(self, party: Party) -> int:
        """The last step in which the party's op ran; -1 if it did not."""
        for place in range(len(self.steps) - 1, -1, -1):
            step = self.steps[place]
            if step.agent == party.agent and step.op is party.op:
                return place
        return -1


def loops_of(m: Machine, a: Agent) -> tuple[tuple[str, str], ...]:
    """(index, value or number of the iteration) of the loops an agent is in."""
    told: list[tuple[str, str]] = []
    code = m.model.codes[a.partition]
    open_loops: list[Op] = []
    for pc, i in enumerate(code.instructions[: a.pc + 1]):
        if i.signature >= 0:
            open_loops.append(i.op)
        elif i.backward and pc < a.pc and open_loops and open_loops[-1] is i.op:
            open_loops.pop()
    for op, frame in zip(open_loops, a.frames, strict=False):
        index = getattr(op, "index").name  # noqa: B009 - a loop, which alone opens a frame
        told.append((index, str(frame[1]) if frame[0] == "counted" else f"#{frame[1]}"))
    return tuple(told)


def barrier_text(m: Machine, a: Agent, i: Instruction) -> str:
    """The barrier of an op, as it is after it; "" of one that was left out and has none."""
    barriers, state = getattr(i.op, "barriers", None), getattr(i.op, "state", None)
    if barriers is None or state is None:
        return ""
    array = m.model.arrays[barriers.name]
    held = a.slots[i.extra[state.name]]
    if not 0 <= held.stage < array.num:
        return ""
    b = m.barriers[a.cta * m.model.num_barriers + array.first + held.stage]
    bytes_left = f", {b.tx} bytes outstanding" if b.tx else ""
    pending = f"{b.pending} of {b.arrivals} arrivals pending"
    return f"`{array.label}`[{held.stage}]: phase {b.phase}, {pending}{bytes_left}"
