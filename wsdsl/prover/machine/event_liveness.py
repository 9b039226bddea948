"""Agents that may yet check an event. An event that all of them have seen is forgotten: no
check can fail for it any more, and the fewer events there are the fewer states.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from wsdsl.ir.effects import Access, Fence, Wait, reaches_cluster
from wsdsl.ir.op import operands, results_of
from wsdsl.ir.types import MatrixDescriptor
from wsdsl.prover.machine.flatten import of_rest
from wsdsl.prover.machine.instructions import Code, Instruction
from wsdsl.prover.machine.machine import ALL, ELECTED, Machine, known_to_all, known_to_some
from wsdsl.prover.machine.model import Model

CHANGES, LOOKS = 0, 1
"""How an array is used: written or arrived on; read or waited for."""
EVERYTHING = -1
Ask = tuple[Any, int, tuple[int, ...], bool]
"""(array or named barrier, how it is used, by which classes of threads, in other CTAs too?)."""
EVERY_CTA, ROUND = "cluster", "named"


@dataclass
class Settled:
    """Events that need not be remembered, by the agents that check them. No agent checks others."""

    by: dict[tuple[int, Any, int], int] = field(default_factory=dict[tuple[int, Any, int], int])
    heard: list[int] = field(default_factory=list[int])
    """Of each CTA: events that at least one of its threads has seen, as must be when it ends."""

    def at(self, cta: int, place: Any, *uses: int) -> int:
        known = EVERYTHING
        for use in uses:
            known &= self.by.get((cta, place, use), EVERYTHING)
        return known


def asks_of(model: Model, code: Code) -> list[tuple[Ask, ...]]:
    """For each instruction, what the code may use from there on."""
    results = [(i.op, v) for i in code.instructions for v in results_of(i.op)]
    described = (op for op, v in results if isinstance(v.type, MatrixDescriptor))
    names = {v.name for op in described for v in operands(op)} & model.arrays.keys()

    def before(held: dict[Ask, None], i: Instruction) -> dict[Ask, None]:
        asked = _asks(model, i)
        if any(isinstance(v.type, MatrixDescriptor) for v in operands(i.op)):
            who, remote = ELECTED if i.elected else ALL, getattr(i.op, "cta_group", 1) > 1
            asked += [(model.arrays[name].index, LOOKS, who, remote) for name in sorted(names)]
        return held | dict.fromkeys(asked) if any(ask not in held for ask in asked) else held

    return [tuple(held) for held in of_rest(code, dict[Ask, None](), before)]


def _asks(model: Model, i: Instruction) -> list[Ask]:
    if not i.effects and not i.op.pure:
        # An op that takes an array and states no effect on it may check every event.
        arrays = [model.arrays[v.name].index for v in operands(i.op) if v.name in model.arrays]
        return [(array, use, ALL, True) for array in arrays for use in (CHANGES, LOOKS)]
    asks = list[Ask]()
    for effect in i.effects:
        if isinstance(effect, Fence) or (isinstance(effect, Access) and effect.space == "gmem"):
            continue
        remote = reaches_cluster(effect) or getattr(i.op, "cta_group", 1) > 1
        looks = isinstance(effect, Wait) or getattr(effect, "kind", "") in ("read", "add")
        one = i.elected or getattr(effect, "threads", "") == "one"
        arrays: Iterable[Any] = ()
        if isinstance(effect, Access) and effect.of is None:
            arrays = sorted(model.arrays[name].index for name in model.columns)
        elif isinstance(effect, Access) or effect.on == "mbarrier":
            name = effect.of.name if effect.of is not None else ""
            arrays = [model.arrays[name].index] if name in model.arrays else []
        elif not isinstance(effect, Wait):
            numbers = {"cta": (0,), "cluster": (EVERY_CTA,)}.get(effect.on, effect.numbers)
            arrays, one = [(ROUND, number) for number in numbers], False
        use, who = LOOKS if looks else CHANGES, ELECTED if one else ALL
        asks += [(array, use, who, remote) for array in arrays]
    return asks


def settled(m: Machine, asks: list[list[tuple[Ask, ...]]]) -> Settled:
    """Events that all agents that may check them have seen; `asks` by partition and instruction."""
    found = Settled(heard=[0] * len(m.model.ctas))
    by = found.by
    for a in m.agents:
        found.heard[a.cta] |= known_to_some(a)
        if a.ended:
            continue
        of_first, of_all = a.know[0], known_to_all(a)
        if len(m.model.codes[a.partition].acting[a.pc]) == 1:
            of_all = of_first
        for place, use, who, remote in asks[a.partition][a.pc]:
            known = of_first if who == ELECTED else of_all
            for cta in m.model.ctas if remote else (a.cta,):
                key = cta, place, use
                by[key] = by.get(key, EVERYTHING) & known
    return found
