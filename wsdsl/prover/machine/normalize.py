"""Normalize differences between states that mean nothing: stores that one way has begun and
another has not, and which iteration was the first where no agent tests that.
"""

from dataclasses import replace

from wsdsl.ir.effects import Wait
from wsdsl.prover.machine.instructions import Code
from wsdsl.prover.machine.machine import NOTHING_STORED, Machine


def most_stores(code: Code) -> tuple[int, int]:
    """Groups of stores that may be in flight before a wait, and where the last wait is."""
    waits = [(effect.pending, pc) for pc, i in enumerate(code.instructions) for effect in i.effects
             if isinstance(effect, Wait) and effect.on == "bulk"]  # fmt: skip
    return (max(waits)[0] + 1, waits[-1][1]) if waits else (0, -1)


def normalize_stores(m: Machine, most: list[tuple[int, int]]) -> None:
    """Unknown groups come first, as many as there may be: an agent that stored nothing
    under a condition then looks like who did. A wait retires them in the same order, so only one
    that is missing at the end could be blamed on them."""
    for a in m.agents:
        num, last = most[a.partition]
        if a.pc <= last:
            while len(a.stores) > num and a.stores[0] == NOTHING_STORED:
                del a.stores[0]
            a.stores[:0] = [NOTHING_STORED] * (num - len(a.stores))


def forget_first(m: Machine) -> None:
    """An agent that tests it after all follows both ways."""
    for i, run in m.iterations.items():
        if run.first is not None and run.signature not in m.model.ask_for_first:
            m.iterations[i] = replace(run, first=None)
