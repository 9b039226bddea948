"""Follow every way that a kernel's undecided tests allow, until nothing new comes."""

import heapq
from itertools import product

from wsdsl.ir.effects import Wait
from wsdsl.ir.op import Kernel
from wsdsl.ir.types import Sizes
from wsdsl.prover.failure import Failure, Outside, Party, Undecided
from wsdsl.prover.machine.branch_ordering import chosen
from wsdsl.prover.machine.flatten import model_of
from wsdsl.prover.machine.instructions import named_barriers
from wsdsl.prover.machine.iterations import shown_term
from wsdsl.prover.machine.machine import ENDED, NOBODY, Agent, Barrier, Machine, union
from wsdsl.prover.machine.model import MANY, Model
from wsdsl.prover.machine.state_canonicalization import Canonical, Seen
from wsdsl.prover.machine.symbolic_terms import Term, test_of
from wsdsl.prover.memory.gmem_order import check_global_order
from wsdsl.prover.memory.load_bounds import check_load_bounds
from wsdsl.prover.memory.smem_accesses import spans_of
from wsdsl.prover.protocols.cluster_groups import groups_of
from wsdsl.prover.protocols.split_k import check_split_k_protocol
from wsdsl.record import record

MAX_STATES, MAX_STEPS = 8_000, 200_000
"""Of one CTA, and of all together: some 20 s."""
MAX_AHEAD = 48
"""Iterations by which one may be ahead of another; more, and the other will never come."""
MOST_ASKED = 256
"""Decisions on a way that is followed only to see what is accessed on it."""
Decisions = tuple[tuple[Term, bool], ...]
"""Decisions and outcomes, in that order."""


@record
class Explored:
    """How far one had to look."""

    states: int
    steps: int
    ctas: int


class Refuted(Exception):  # noqa: N818 - a verdict
    """The kernel is wrong: the failure, and the decisions on the way there."""

    def __init__(self, failure: Failure, decisions: Decisions) -> None:
        super().__init__(failure.message)
        self.failure, self.decisions = failure, decisions


class TooManyError(Refuted):
    """No end was seen; with less of it forgotten there would be more states still."""


def start(model: Model) -> Machine:
    """The machine before the first op."""
    m = Machine(model)
    for cta, partition, _, rank in model.agents:
        a = Agent(len(m.agents), cta, rank, partition, model.entry_registers)
        a.slots = [None] * len(model.codes[partition].slots)
        for value in model.kernel.params:
            slot = model.codes[partition].slots.get(value.name)
            if slot is not None:
                a.slots[slot] = ("parameter", value.name)
        m.agents.append(a)
    for _ in model.ctas:
        for array in model.arrays.values():
            if array.first >= 0:
                m.barriers += [
                    Barrier(array.arrivals, pending=array.arrivals) for _ in range(array.num)
                ]
        m.pool.append(0)
    return m


def run_out(m: Machine) -> None:
    """Run as far as is decided: to the end, where all must be in order, or to Undecided."""
    if not m.run(chosen):
        raise deadlock(m)
    check_end(m)


def deadlock(m: Machine) -> Failure:
    stuck = next(a for a in m.agents if not a.ended)
    op = m.model.codes[stuck.partition].instructions[stuck.pc].op
    return Failure("deadlock", "all threads wait", Party(stuck.index, op))


def check_end(m: Machine) -> None:
    """Accesses of others to a CTA must complete before its last thread ends, and arrivals at a
    named barrier have been met."""
    for (_, number), held in m.named.items():
        if held.pending != held.arrivals:
            arrive = (
                (a, i.op)
                for a in m.agents
                for i in m.model.codes[a.partition].instructions
                if number in named_barriers(i.op)
                and not any(isinstance(e, Wait) for e in i.effects)
            )
            told = f"the kernel ends, but named barrier {number} has an incomplete arrival"
            agent, op = next(arrive)
            raise agent.fail("exit", op, told)
    for cta in m.model.ctas:
        mine = [a for a in m.agents if a.cta == cta]
        know = union(known for a in mine for known in a.know)
        for (where, _, _), spans in m.memory.items():
            for span in spans:
                if where == cta and span.write & ~know and span.writer is not None:
                    a = m.agents[span.writer.agent]
                    told = "the kernel may end while this async copy is outstanding"
                    hint = "wait for the barrier on which it counts"
                    raise a.fail("exit", span.writer.op, told, hint=hint)
        first = cta * m.model.num_barriers
        for held in m.barriers[first : first + m.model.num_barriers]:
            if held.remote & ~know:
                raise mine[0].fail(
                    "exit",
                    m.model.kernel.body[-1],
                    f"CTA {cta} of the cluster may end before the last arrival of another CTA "
                    "or an MMA at its barrier",
                    hint="end with waits for released stages, or with sync_cluster()",
                )


def explore(kernel: Kernel, sizes: Sizes | None = None) -> Explored:
    """Raises Refuted with the first failure, nearest first."""
    if sizes is None:
        try:
            check_load_bounds(kernel)
            check_global_order(kernel)
            check_split_k_protocol(kernel)
        except Failure as failure:
            raise Refuted(failure, ()) from None
    model = model_of(kernel, sizes)
    learn_borders(model)
    groups = groups_of(model)
    if len(groups) > 1:
        try:
            found = [_proved(model.of(ranks)) for ranks in groups]
        except (Outside, Refuted):
            pass
        else:
            return Explored(
                sum(each.states for each in found),
                sum(each.steps for each in found),
                sum(each.ctas for each in found),
            )
    return _proved(model)


def _proved(model: Model) -> Explored:
    try:
        return _prove(model)
    except Refuted:
        if not model.left_open:
            raise
    exact = model.counting(MANY)
    learn_borders(exact)
    return _prove(exact)


def _prove(model: Model) -> Explored:
    """Forgetting is safe, and quick; where it was too much, the kernel is looked at again with
    less of it, and at last with none."""
    anew = [(True, True)] if model.decided_anew else []
    for hurry, each_iteration in (*anew, (True, False), (False, False)):
        try:
            return _explore(model, True, hurry, each_iteration)
        except TooManyError:
            if not each_iteration:
                raise
        except Refuted as refuted:
            # Less may have been known there than in any real run: go the same way with all of it.
            failure = follow(start(model), refuted.decisions)
            if failure is not None:
                raise Refuted(failure, refuted.decisions) from None
    return _explore(model, False, False, False)


def follow(m: Machine, decisions: Decisions) -> Failure | None:
    """The failure on the way of the first decisions about each test, if there is one."""
    made = dict(reversed(decisions))
    while True:
        try:
            run_out(m)
        except Failure as failure:
            return failure
        except Undecided as open_:
            if open_.atom not in made:
                return None
            m.facts[open_.atom] = made[open_.atom]
        else:
            return None


def learn_borders(model: Model) -> None:
    """Run each loop twice, and again for each condition, where that does not hold: only to see
    which parts of SMEM are accessed apart."""
    met: set[Term] = set()
    ways: list[frozenset[Term]] = [frozenset()]
    while ways:
        denied = ways.pop()
        for condition in _asked(model, denied):
            if condition not in met:
                met.add(condition)
                ways.append(denied | {condition})


def _asked(model: Model, denied: frozenset[Term]) -> list[Term]:
    """The conditions on the way on which all of them hold, in any iteration, but for those
    that are denied."""
    m, asked = start(model), list[Term]()
    m.each_iteration = True
    for _ in range(MOST_ASKED):
        try:
            run_out(m)
        except Undecided as open_:
            atom = open_.atom
            if atom[0] == "next":
                # The second iteration has ops that an `if` leaves out of the first; of partitions
                # that alternate each has one.
                outermost = _place(m, atom[1])
                turns = len(model.partitions) - 1 if outermost else 2
                m.facts[atom] = (outermost or 1 + (not m.iterations[atom[1]].first)) < max(2, turns)
                continue
            condition = shown_term(test_of(atom), {})
            m.facts[atom] = condition not in denied
            asked += [condition] if m.facts[atom] else []
        except Failure:
            break
        else:
            break
    return asked


def _place(m: Machine, iteration: int) -> int:
    """Which iteration of its loop it is, counted from 1, if that loop is in no other; else 0."""
    for key, first in m.loops.items():
        place = 1
        while first not in (ENDED, iteration):
            first, place = m.following.get(first, ENDED), place + 1
        if key[2] == NOBODY and first == iteration:
            return place
    return 0


def _all_there(m: Machine) -> None:
    """Begin with every named barrier, and with every item cut as it will be: unused ones then look
    like the others."""
    for code in m.model.codes:
        for i in code.instructions:
            for cta, barrier in product(m.model.ctas, named_barriers(i.op)):
                num = i.op.num_warpgroups
                m.named.setdefault((cta, barrier), Barrier(num, pending=num))
    for cta in m.model.ctas:
        for array in m.model.arrays.values():
            for item in range(array.num if array.first < 0 else 0):
                m.memory[cta, array.index, item] = spans_of(m, cta, array, item)


def _explore(model: Model, widen: bool, hurry: bool, each_iteration: bool) -> Explored:
    canonical = Canonical(model, widen, hurry)
    first = start(model)
    first.each_iteration = each_iteration
    _all_there(first)
    heap: list[tuple[tuple[int, int], int, Decisions, Machine, Seen]] = []
    heap.append(((0, 0), 0, (), first, Seen([])))
    pushed, states, steps, ctas = 0, 0, 0, len(model.ctas)
    while heap:
        _, _, decisions, m, came_from = heapq.heappop(heap)
        if came_from.superseded:
            # The same way is followed from a state in which no more is known.
            continue
        before = m.steps
        try:
            run_out(m)
            steps += m.steps - before
        except Failure as failure:
            raise Refuted(failure, decisions) from None
        except Undecided as open_:
            steps += m.steps - before
            seen = canonical.new(m)
            if seen is None:
                continue
            states += 1
            many = states * ctas > MAX_STATES or steps > MAX_STEPS
            if many or (widen and len(m.following) > MAX_AHEAD):
                a = next(a for a in m.agents if not a.ended)
                op = model.codes[a.partition].instructions[a.pc].op
                told = f"the exploration exceeds {MAX_STATES} states and {MAX_STEPS} steps"
                by = "Schedule.cluster" if ctas > 1 else "optional fields of the schedule"
                hint = f"remove {by}: the prover found no fault, but too many states"
                failure = a.fail("unknown", op, told, hint=hint)
                kind = TooManyError if many else Refuted
                raise kind(failure, decisions) from None
            # Repeat loops until nothing new comes, then leave them; the agent behind goes first,
            # so that ways are joined before they are followed.
            place = (-m.next_iteration, m.steps) if widen else (m.steps, 0)
            for outcome in (True, False):
                fork = m.copy() if outcome else m
                fork.facts[open_.atom] = outcome
                pushed += 1
                way = (*decisions, (test_of(open_.atom), outcome))
                heapq.heappush(heap, (place, pushed, way, fork, seen))
    if canonical.idle & model.touched:
        return _explore(model, widen, hurry, each_iteration)
    try:
        first.visited.check(model)
    except Failure as failure:
        raise Refuted(failure, ()) from None
    return Explored(states, steps, ctas)
