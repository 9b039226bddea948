"""Semaphores in GMEM."""

from wsdsl.ir import ops
from wsdsl.prover.machine.instructions import BLOCKED, SEEN, Instruction
from wsdsl.prover.machine.machine import Agent, Machine
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def semaphore_wait(m: Machine, a: Agent, i: Instruction) -> int:
    """Pass as late as possible. That the semaphore of a workspace is reached is argued in
    split_k.py, which needs that no iteration of the work loop waits for an event after the
    semaphore of a later iteration, nor an arrival of all work units for an event after their wait.
    """
    return SEEN if all(m.place(o) >= (m.turn(a), True) for o in m.agents) else BLOCKED


def trace_semaphore_arrive(t: TraceBuilder, op: ops.SemaphoreArrive, who: ThreadSet) -> None:
    kind = f"red.{'release' if op.release else 'relaxed'}.gpu"
    kind += ".inc" if op.wrap is not None else ".add"
    amount = str(op.amount) if op.by is op.wrap is None else "a register"
    t.emit(op, kind, amount, threads=who.one())
