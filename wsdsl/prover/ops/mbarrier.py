"""mbarriers and pipeline states: transfer functions, and events of PTX."""

from wsdsl.ir import ops
from wsdsl.ir.types import Barriers
from wsdsl.prover.failure import Party
from wsdsl.prover.machine.control_flow import truth
from wsdsl.prover.machine.instructions import BLOCKED, LOCAL, SEEN, Instruction
from wsdsl.prover.machine.machine import (
    ALL,
    ELECTED,
    FIRST_LANES,
    Agent,
    Machine,
    StageParity,
    union,
)
from wsdsl.prover.protocols.mbarriers import (
    VISIBLE,
    arrive,
    barrier_of,
    classes,
    cta_of_rank,
    landed,
    shown,
    waited,
)
from wsdsl.prover.ptx.expected_paths import Items
from wsdsl.prover.ptx.sync_events import CONDITIONAL, EVERYBODY
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def mbarrier_init(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.MbarrierInit = i.op
    array = m.model.arrays[op.barriers.name]
    first = a.cta * m.model.num_barriers + array.first
    for stage in range(array.num):
        held = m.barriers[first + stage]
        if held.initialised:
            raise a.fail("misuse", op, f"`{array.label}` is initialized twice")
        held.initialised = 1
    return LOCAL


def fence_mbarrier_init(m: Machine, a: Agent, i: Instruction) -> int:
    """Barriers that this thread initialized are visible after a synchronization with it."""
    (event,) = m.happened(a, (0,))
    first = a.cta * m.model.num_barriers
    for held in m.barriers[first : first + m.model.num_barriers]:
        if held.initialised == 1:
            held.initialised, held.fenced = VISIBLE, event
    return LOCAL


def mbarrier_arrive(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.MbarrierArrive = i.op
    if op.pred is not None and not truth(m, a.slots[i.extra[op.pred.name]]):
        return LOCAL
    cta = a.cta
    if op.cta is not None:
        cta = cta_of_rank(m, a, i, op.cta)
    who = ALL if op.each_thread else FIRST_LANES if op.each_warp else ELECTED
    held, array, stage = barrier_of(m, a, i, who, cta)
    know = m.everything(a) if op.each_thread else a.met if op.each_warp else 0
    know |= union(a.know[c] for c in who)
    if cta != a.cta:
        know |= landed(m, a, held, who)
    count = 128 if op.each_thread else 4 if op.each_warp else 1
    arrive(m, a, i, held, shown(array, stage, m, cta), count, know)
    return SEEN


def mbarrier_arrive_expect_tx(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.MbarrierArriveExpectTx = i.op
    cta = a.cta if op.cta is None else cta_of_rank(m, a, i, op.cta)
    held, array, stage = barrier_of(m, a, i, ELECTED, cta)
    name, know = shown(array, stage, m, cta), a.know[0]
    if cta != a.cta:
        know |= landed(m, a, held, ELECTED)
    held.tx += op.tx_bytes
    arrive(m, a, i, held, name, 1, know)
    return SEEN


def mbarrier_wait(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.MbarrierWait = i.op
    who = classes(i)
    held, array, stage = barrier_of(m, a, i, who)
    blocked = held.phase & 1 == a.slots[i.extra[op.state.name]].parity
    # It waits for phase p, the present one or the last: that p - 1 is complete it must know.
    needed = held.done if blocked else held.before
    for c in who:
        if needed & ~a.know[c]:
            raise a.fail(
                "phase",
                op,
                f"this may pass too early: {shown(array, stage, m, a.cta)} may not have completed "
                "the phase before the awaited one, which has the same parity",
                hint="wait for each phase in the thread that waits for the next",
            )
    if blocked:
        return BLOCKED
    for c in who:
        a.know[c] |= held.completed
    event = m.event()
    waited(m, a, i)
    # Threads that see this wait see those before it, too: one event represents all.
    earlier = held.passed & (a.know[0] if i.elected else a.did)
    if i.elected:
        a.know[0] |= event
    else:
        a.did |= event
    held.passed = held.passed & ~earlier | event
    m.waits = m.waits & ~earlier | event
    held.waiters = (*held.waiters, Party(a.index, op))
    return SEEN


def initial_state(m: Machine, a: Agent, i: Instruction) -> int:
    a.slots[i.defines[0]] = StageParity(0, i.op.parity)
    return LOCAL


def advance(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Advance = i.op
    held: StageParity = a.slots[i.uses[0]]
    if held.stage >= op.num:
        told = f"stage {held.stage} is not one of the {op.num} stages of `advance`"
        raise a.fail("misuse", op, told, hint="use one `num` in `advance` and in the barriers")
    stage = held.stage + 1
    a.slots[i.defines[0]] = (
        StageParity(0, held.parity ^ 1) if stage == op.num else StageParity(stage, held.parity)
    )
    return LOCAL


def trace_allocate_mbarriers(t: TraceBuilder, op: ops.AllocateMbarriers, _: ThreadSet) -> None:
    name, num = f"{op.label} (at {op.offset})", op.result.type_as(Barriers).num
    t.places.barriers[op.result] = Items(name, op.offset, num)


def trace_initial_state(t: TraceBuilder, op: ops.InitialState, _: ThreadSet) -> None:
    t.change(op.result, op.parity, 0)


def trace_advance(t: TraceBuilder, op: ops.Advance, _: ThreadSet) -> None:
    t.change(op.result, op.state, op.num)


def trace_mbarrier_init(t: TraceBuilder, op: ops.MbarrierInit, _: ThreadSet) -> None:
    items, count = t.places.barriers[op.barriers], str(t.definers[op.barriers].arrivals)
    for i in range(items.num):
        t.emit(op, "mbarrier.init", count, f"{items.name}[{i}]")


def trace_fence_mbarrier_init(t: TraceBuilder, op: ops.FenceMbarrierInit, _: ThreadSet) -> None:
    t.emit(op, "fence.mbarrier_init")
    t.emit(op, "fence.proxy.async")


def trace_mbarrier_wait(t: TraceBuilder, op: ops.MbarrierWait, _: ThreadSet) -> None:
    t.emit(op, "mbarrier.try_wait", fill=t.of_barrier(op, parity=True))


def trace_mbarrier_arrive(t: TraceBuilder, op: ops.MbarrierArrive, who: ThreadSet) -> None:
    kind = "mbarrier.arrive" if op.cta is None else "remote mbarrier.arrive"
    threads = EVERYBODY if op.each_thread else who.one()
    if op.each_warp:
        threads = who.one_in(32)
    pred = True if op.pred is None else t.known.get(op.pred)
    if pred is None:
        kind = CONDITIONAL + kind
    elif not pred:
        threads = 0
    t.emit(op, kind, threads=threads, fill=t.of_barrier(op, cta=t.of_ranks(op.cta)))


def trace_mbarrier_arrive_expect_tx(
    t: TraceBuilder, op: ops.MbarrierArriveExpectTx, _: ThreadSet
) -> None:
    kind = "remote " * (op.cta is not None) + "mbarrier.arrive.expect_tx"
    t.emit(op, kind, str(op.tx_bytes), fill=t.of_barrier(op, cta=t.of_ranks(op.cta)))
