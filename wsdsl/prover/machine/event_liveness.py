"""Who may yet ask whether something is over. An event that all of those know of is forgotten: no
check can fail for it any more, and the fewer events there are the fewer states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import operands
from wsdsl.ir.types import Columns
from wsdsl.ir.verify.synchronization import reaches_others
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
    """Events that need not be remembered, by who asks for them. What is not listed, nobody does."""

    by: dict[tuple[int, Any, int], int] = field(default_factory=dict[tuple[int, Any, int], int])
    heard: list[int] = field(default_factory=list[int])
    """Of each CTA: what at least one of its threads knows, as must be when it ends."""

    def at(self, cta: int, place: Any, *uses: int) -> int:
        known = EVERYTHING
        for use in uses:
            known &= self.by.get((cta, place, use), EVERYTHING)
        return known


def asks_of(model: Model, code: Code) -> list[tuple[Ask, ...]]:
    """For each instruction, what the code may use from there on."""
    read = {i.op.shared.name for i in code.instructions if isinstance(i.op, ops.SmemDescriptor)}
    products = [(model.arrays[name].index, LOOKS, ALL, False) for name in sorted(read)]

    def before(held: dict[Ask, None], i: Instruction) -> dict[Ask, None]:
        asked = products if isinstance(i.op, ops.Wgmma) else _asks(model, i)
        if isinstance(i.op, ops.Tcgen05Mma):
            far = i.op.cta_group > 1
            asked = [*asked, *((place, use, ELECTED, far) for place, use, _, _ in products)]
        return held | dict.fromkeys(asked) if any(ask not in held for ask in asked) else held

    return [tuple(held) for held in of_rest(code, dict[Ask, None](), before)]


def _asks(model: Model, i: Instruction) -> list[Ask]:
    op: Any = i.op
    remote = reaches_others(op)
    who = ELECTED if i.elected else ALL

    def ask(value: Any, use: int, by: tuple[int, ...] = who) -> Ask:
        return model.arrays[value.name].index, use, by, remote

    match op:
        case ops.MbarrierArrive():
            return [ask(op.barriers, CHANGES, ALL if op.each_thread or op.each_warp else ELECTED)]
        case ops.MbarrierArriveExpectTx():
            return [ask(op.barriers, CHANGES)]
        case ops.MbarrierWait():
            return [ask(op.barriers, LOOKS)]
        case ops.TmaLoad() | ops.ClcTryCancel():
            return [ask(op.shared, CHANGES), ask(op.barriers, CHANGES)]
        case ops.SendFragment():
            return [ask(op.shared, CHANGES, ALL), ask(op.barriers, CHANGES, ALL)]
        case ops.StorePartials():
            asked = [op.shared] if op.barriers is None else [op.shared, op.barriers]
            return [(model.arrays[v.name].index, CHANGES, ALL, op.ctas > 1) for v in asked]
        case (
            ops.StoreShared()
            | ops.ThreadLoad()
            | ops.ClearPanels()
            | ops.StoreTransposed()
            | ops.ClearBins()
            | ops.StoreBins()
        ):
            return [ask(op.shared, CHANGES)]
        case (
            ops.TmaStore()
            | ops.ThreadStore()
            | ops.LoadShared()
            | ops.LoadPanels()
            | ops.ReceiveFragment()
            | ops.ReducePartials()
            | ops.LoadTransposed()
            | ops.AddBins()
            | ops.ClcQueryCancel()
        ):
            return [ask(op.shared, LOOKS)]
        case ops.NamedBarrierSync() | ops.NamedBarrierArrive():
            return [((ROUND, barrier), CHANGES, ALL, False) for barrier in op.numbers]
        case ops.Tcgen05Mma():
            read = [v for v in (op.a, op.scales) if v is not None and isinstance(v.type, Columns)]
            return [ask(op.sums, CHANGES), *(ask(v, LOOKS) for v in read)]
        case ops.StoreScaleFactors() | ops.Tcgen05Cp():
            return [ask(op.scales, CHANGES), ask(op.shared, LOOKS)]
        case ops.Tcgen05Commit():
            return [ask(op.barriers, CHANGES)]
        case ops.Tcgen05St():
            return [ask(op.columns, CHANGES)]
        case ops.Tcgen05Ld():
            return [ask(op.sums, LOOKS)]
        case ops.Tcgen05Dealloc():
            columns = sorted(model.arrays[name].index for name in model.columns)
            return [(index, CHANGES, ALL, remote) for index in columns]
        case ops.SyncCta():
            return [((ROUND, 0), CHANGES, ALL, False)]
        case ops.SyncCluster():
            return [((ROUND, EVERY_CTA), CHANGES, ALL, True)]
        case ops.MbarrierInit() | ops.SmemDescriptor():
            return []
        case _:  # Of an op that is not known here the most is supposed.
            return [
                (model.arrays[value.name].index, use, ALL, True)
                for value in operands(op)
                if value.name in model.arrays
                for use in (CHANGES, LOOKS)
            ]


def settled(m: Machine, asks: list[list[tuple[Ask, ...]]]) -> Settled:
    """What everybody who may ask for it knows already; `asks` by partition and instruction."""
    found = Settled(heard=[0] * m.model.num_ctas)
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
            for cta in range(m.model.num_ctas) if remote else (a.cta,):
                key = cta, place, use
                by[key] = by.get(key, EVERYTHING) & known
    return found
