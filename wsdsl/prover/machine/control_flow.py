"""Scalars, pipeline states and control: steps of an agent by itself.

A loop's iterations belong to all agents that run it: the first to test for another one
decides, the others follow. Two loops are the same if they start in the same iteration of the same
enclosing loop with equal bounds; how often they run is then left open, but it is equally often.
"""

from dataclasses import replace
from typing import Any

from wsdsl.ir.effects import accesses
from wsdsl.ir.op import Op
from wsdsl.ir.verify.threads import misplaced
from wsdsl.prover.failure import Undecided
from wsdsl.prover.machine.carried_scalars import name_carried
from wsdsl.prover.machine.instructions import LOCAL, SEEN, Instruction
from wsdsl.prover.machine.machine import ENDED, HELD, NOBODY, Agent, Iterations, Machine
from wsdsl.prover.machine.symbolic_terms import Term, apply, is_test


def settled(m: Machine, test: Term, looks: str) -> Term:
    """The test, or its outcome where that was decided: its holder need not test it again."""
    if not is_test(test):
        return test
    if test[0] in ("and", "or", "not"):
        return apply(test[0], tuple([settled(m, x, looks) for x in test[1:]]))
    m.looks = looks
    try:
        return truth(m, test)
    except Undecided:
        return test
    finally:
        m.looks = ""


def settle_tests(m: Machine) -> None:
    """Hold outcomes in place of tests that are decided, but for those of all iterations."""
    for a in m.agents:
        code, m.running = m.model.codes[a.partition], a
        for slot in code.live[a.pc]:
            if slot not in code.constant:
                a.slots[slot] = settled(m, a.slots[slot], HELD)


def truth(m: Machine, term: Term) -> bool:
    """Is the bool term true? Raises Undecided where that is open."""
    if isinstance(term, int):
        return bool(term)
    match term:
        case ("not", x):
            return not truth(m, x)
        case ("and", x, y):
            return truth(m, x) and truth(m, y)
        case ("or", x, y):
            return truth(m, x) or truth(m, y)
        case ("lt", x, y):
            return less(m, x, y)
        case ("gt", x, y):
            return less(m, y, x)
        case ("le", x, y):
            return not less(m, y, x)
        case ("ge", x, y):
            return not less(m, x, y)
        case ("ne", x, y):
            return not _equal(m, x, y)
        case ("eq", x, y):
            return _equal(m, x, y)
        case _:
            return m.decide(term)


def _equal(m: Machine, x: Term, y: Term) -> bool:
    if x == y:
        return True
    for index, other in ((x, y), (y, x)):
        match index:
            case ("index", int(i)) if i in m.iterations and m.iterations[i].start == other:
                return _first(m, i)
            case _:
                pass
    return m.decide(("eq", *sorted((x, y), key=repr)))


def less(m: Machine, x: Term, y: Term) -> bool:
    if isinstance(x, int) and isinstance(y, int):
        return x < y
    if x == y:
        return False
    match x:
        case ("index", int(i)) if i in m.iterations:
            if m.iterations[i].start == y:
                return False
            if m.iterations[i].stop == y:
                return True
        case ("add", ("index", int(i)), step) if i in m.iterations:
            run = m.iterations[i]
            if run.stop == y and run.step == step:
                return _another(m, i)
        case _:
            pass
    match y:
        case ("index", int(i)) if i in m.iterations and m.iterations[i].start == x:
            return not _first(m, i)
        case _:
            return m.decide(("lt", x, y))


def _first(m: Machine, iteration: int) -> bool:
    """Is it the first one of its loop?"""
    run = m.iterations[iteration]
    if m.looks:
        raise Undecided(("first", ("index", iteration)))
    m.model.ask_for_first.add(run.signature)
    return m.decide(("first", ("index", iteration))) if run.first is None else run.first


def _another(m: Machine, iteration: int) -> bool:
    """Does the loop go on after this iteration?"""
    following = m.following.get(iteration)
    if following is not None:
        return following != ENDED
    atom = ("next", iteration)
    held = None if m.looks else m.facts.get(atom)
    if held is None:
        raise Undecided(atom)
    del m.facts[atom]
    if not held:
        m.following[iteration] = ENDED
        return False
    m.following[iteration] = _iteration(m, replace(m.iterations[iteration], first=False))
    return True


def _iteration(m: Machine, run: Iterations) -> int:
    made = m.next_iteration
    m.next_iteration += 1
    m.iterations[made] = run
    return made


def _move(a: Agent, moves: tuple[tuple[int, int], ...]) -> None:
    if moves:
        held = [a.slots[of] for _, of in moves]
        for (to, _), value in zip(moves, held, strict=True):
            a.slots[to] = value


def loop_enter(m: Machine, a: Agent, i: Instruction) -> int:
    op: Any = i.op
    start, stop, step = (a.slots[s] for s in i.uses)
    if op.claimed and m.model.sizes is not None:
        step = 1  # One cluster that is looked at claims all.
    if isinstance(step, int) and step <= 0:
        raise a.fail("misuse", op, f"the loop has a step of {step}")
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        if len(range(start, stop, step)) <= m.model.counted or m.model.sizes is not None:
            if start < stop:
                _move(a, i.moves)
                a.frames.append(("counted", start, stop, step, i.defines[0]))
                a.slots[i.defines[0]] = start
            else:
                _move(a, i.exit_moves)
                a.next = i.target
            return LOCAL
        m.model.left_open = True
    parent = next((frame[1] for frame in reversed(a.frames) if frame[0] == "open"), NOBODY)
    bounds = (parent, start, stop, step)
    counted = (*bounds, i.extra)
    key = (i.signature, a.counts.get(counted, 0), *bounds)
    if key not in m.loops:
        if less(m, start, stop):
            # Of what is claimed nothing says how far it is from the last one.
            apart = ("claimed", step) if op.claimed else step
            m.loops[key] = _iteration(m, Iterations(i.signature, start, stop, apart, True))
        else:
            m.loops[key] = ENDED
    a.counts[counted] = a.counts.get(counted, 0) + 1
    m.entered[key] = m.entered.get(key, 0) | 1 << a.index
    first = m.loops[key]
    if first == ENDED:
        _move(a, i.exit_moves)
        a.next = i.target
    else:
        _move(a, i.moves)
        a.frames.append(("open", first, i.defines[0]))
        a.slots[i.defines[0]] = ("index", first)
    return LOCAL


def _own_frame(m: Machine, a: Agent, i: Instruction) -> tuple[Any, ...]:
    """Of the loop that ends here. The only way here is through its head; were there one,
    the prover would follow another kernel than the one that it is to prove."""
    if not a.frames or a.frames[-1][-1] != i.defines[0]:
        raise a.fail("unknown", i.op, "this loop ends where another one continues")
    return a.frames[-1]


def loop_back(m: Machine, a: Agent, i: Instruction) -> int:
    frame = _own_frame(m, a, i)
    outcome = SEEN if len(a.frames) == 1 and m.model.work else LOCAL
    if frame[0] == "counted":
        _, at, stop, step, index = frame
        at += step
        if at < stop:
            a.frames[-1] = ("counted", at, stop, step, index)
            _go_on(a, i, at)
        else:
            _leave(a, i)
        return outcome
    m.visited.open.add(i)
    iteration = frame[1]
    another = _another(m, iteration)
    for bounds in [k for k in a.counts if k[0] == iteration]:
        del a.counts[bounds]
    if another:
        following = m.following[iteration]
        a.frames[-1] = ("open", following, frame[2])
        _go_on(a, i, ("index", following))
        name_carried(a, i.extra[0], "in", following)
    else:
        _leave(a, i)
        name_carried(a, i.extra[1], "behind", iteration)
    return outcome


def _go_on(a: Agent, i: Instruction, index: Term) -> None:
    _move(a, i.moves)
    a.slots[i.defines[0]] = index
    a.next = i.target


def _leave(a: Agent, i: Instruction) -> None:
    a.frames.pop()
    _move(a, i.exit_moves)


def branch(m: Machine, a: Agent, i: Instruction) -> int:
    if not truth(m, a.slots[i.uses[0]]):
        a.next = i.target
    return LOCAL


def jump(m: Machine, a: Agent, i: Instruction) -> int:
    _move(a, i.moves)
    a.next = i.target
    return LOCAL


def elect(m: Machine, a: Agent, i: Instruction) -> int:
    """Outside of the partitions the CTA's first thread is meant."""
    inside = i.extra
    per_cta = m.model.num_agents
    if a.rank != 0 or (not inside and a.index % per_cta != 0):
        a.next = i.target
    return LOCAL


def end(m: Machine, a: Agent, i: Instruction) -> int:
    op: Op = i.op
    if a.frames:
        raise a.fail("unknown", op, "the kernel ends within a loop")
    if a.open.op is not None or a.groups:
        last = a.open.op or a.groups[-1].op or op
        what, wait = "wgmma_wait has completed this wgmma", "wgmma_wait(pending=0)"
        made = m.model.kernel.definers
        if accesses(last.effects(made), "tmem"):
            what, wait = "fence follows the wait for this store", "tcgen05_fence"
        raise a.fail("exit", last, f"the kernel ends, but no {what}", hint=f"end with {wait}")
    if a.began_stores:
        told = "the kernel ends, but a TMA store is not committed"
        raise a.fail("exit", op, told, hint="add a tma_store_commit")
    if a.stores:
        told = "the kernel ends while a TMA store may still read SMEM"
        raise a.fail("exit", op, told, hint="end with tma_store_wait(pending=0)")
    a.ended = True
    return SEEN


def misuse(m: Machine, a: Agent, i: Instruction) -> int:
    """An op that one thread cannot run, or only one can."""
    told, hint = misplaced(i.op, i.elected)
    raise a.fail("misuse", i.op, told, hint=hint)


def unknown(m: Machine, a: Agent, i: Instruction) -> int:
    raise a.fail("unknown", i.op, "the prover does not support this op")
