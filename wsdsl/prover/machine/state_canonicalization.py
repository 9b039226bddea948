"""States as keys: two that differ only in names are one state.

Names are events, iterations, accumulators and the stage where a pipeline is said to begin. Events
that no check can ask for again are forgotten, unreachable iterations as well.
"""

from dataclasses import dataclass
from typing import Any

from wsdsl.ir import ops
from wsdsl.prover.machine.control_flow import settle_tests
from wsdsl.prover.machine.event_renaming import Items, Places
from wsdsl.prover.machine.flatten import of_rest
from wsdsl.prover.machine.instructions import Code, Instruction
from wsdsl.prover.machine.iterations import name_iterations, shown_key, shown_term
from wsdsl.prover.machine.knowledge_masks import Barriers, put_masks
from wsdsl.prover.machine.machine import ENDED, Agent, Machine, Registers, StageParity
from wsdsl.prover.machine.model import Array, Model
from wsdsl.prover.machine.normalize import forget_first, most_stores, normalize_stores
from wsdsl.prover.machine.pipeline_families import order, ring_families, turned
from wsdsl.prover.machine.stage_symmetry import StageSymmetry
from wsdsl.prover.machine.widening import NAMED
from wsdsl.prover.ops.wgmma import Descriptor

NO_TURN = (0, 0, 1)
Turns = dict[tuple[int, int], tuple[int, int, int]]
"""By CTA and family: the stage and parity from which a pipeline is looked at, and its length."""


@dataclass(eq=False, slots=True)
class Seen:
    """A state that is followed: facts unknown in it. Not any more, once one of its shape was
    met in which no more is known: where that one leads, this one does too."""

    unknown: list[int]
    superseded: bool = False


class Canonical:
    """Makes keys of a model's states, and drops from a state facts that cannot matter any more."""

    def __init__(self, model: Model, widen: bool, hurry: bool) -> None:
        self.model, self.widen, self.hurry = model, widen, hurry
        self.seen: dict[Any, list[Seen]] = {}
        self.ring_families, self.of_array, of_state = ring_families(model)
        self.slot_family = [
            {slot: of_state[name] for name, slot in code.slots.items() if name in of_state}
            for code in model.codes
        ]
        self.begun_later = [
            _begun_later(code, held)
            for code, held in zip(model.codes, self.slot_family, strict=True)
        ]
        self.most_stores = [most_stores(code) for code in model.codes]
        self.arrays = list(model.arrays.values())
        self.idle = {(c, a.index) for c in model.ctas for a in self.arrays}
        self.idle -= model.touched
        """Barriers that no agent was seen to use: they do not rotate with their pipeline."""
        self.union: dict[Any, list[int]] = {}
        self.orders: dict[tuple[int, tuple[int, int, int]], list[tuple[int, int]]] = {}
        self.places = Places(model, hurry)

    def new(self, m: Machine) -> Seen | None:
        """The state, if it has to be followed: not if one was whose threads knew no more.

        With `widen`, what was not known in an earlier state of the same shape is forgotten here;
        with `hurry`, of each stage of a pipeline facts unknown of one that looks the same.
        """
        if self.hurry:
            normalize_stores(m, self.most_stores)
            forget_first(m)
        if m.each_iteration:
            settle_tests(m)
        names = name_iterations(m, self.hurry)
        turns = self._turns(m)
        barriers, items = self._barriers(m, turns), self._items(m, turns)
        shape = self._shape(m, names, turns, barriers, items)
        found = self.places.number(m, barriers, items, names)
        unknown = found.unknown(self.places.unwritten(m, items, 0))
        followed = self.seen.setdefault(shape, [])
        if any(_covers(held.unknown, unknown) for held in followed):
            return None
        gone = unknown
        if self.widen and followed:
            gone = [u | h for u, h in zip(unknown, self.union[shape], strict=True)]
        if self.hurry:
            gone = self._alike(m, turns, barriers, items).spread(gone)
        self.union[shape] = gone
        if gone != unknown:
            added = self.places.add(m, barriers, items, gone[:-1], found.every)
            put_masks(m, barriers, found.without(gone[:-1], added))
            unknown = found.unknown(self.places.unwritten(m, items, gone[-1]))
        for held in followed:
            held.superseded = _covers(unknown, held.unknown)
        made = Seen(unknown)
        followed[:] = [*(held for held in followed if not held.superseded), made]
        return made

    def _shape(
        self, m: Machine, names: dict[int, int], turns: Turns, barriers: Barriers, items: Items
    ) -> Any:
        """All of a state but what is known in it."""
        accumulators: dict[int, int] = {}
        agents = tuple([self._agent(m, a, names, turns, accumulators) for a in m.agents])
        loops = sorted(
            (repr(shown_key(k, names)), names.get(v, ENDED), m.entered.get(k, 0))
            for k, v in m.loops.items()
        )
        following = sorted(
            (names[i], names.get(v, ENDED)) for i, v in m.following.items() if i in names
        )
        runs = [
            (n, m.iterations[i].first, shown_term(m.iterations[i].stop, names))
            for i, n in names.items()
            if i in m.iterations
        ]
        facts = sorted((repr(shown_term(k, names)), v) for k, v in m.facts.items())
        return (
            agents,
            tuple(
                [
                    (h.phase & 1 ^ flip, h.pending, h.tx, h.arrivals, h.initialised, h.there)
                    for _, flip, h in barriers
                ]
            ),
            tuple([(where, tuple([s.start for s in m.memory[key]])) for where, key in items]),
            tuple(loops),
            tuple(following),
            tuple(runs),
            tuple(facts),
            tuple(m.pool),
        )

    # Pipelines --------------------------------------------------------------------------------

    def _alike(self, m: Machine, turns: Turns, barriers: Barriers, items: Items) -> StageSymmetry:
        """Of pipelines with stages released on a barrier: of others is known by that of the next
        stage that one has been read."""
        ring_of = {
            (cta, array.index): number
            for cta, number in turns
            if sum(array.first >= 0 for array in self.ring_families[number].arrays) > 1
            for array in self.ring_families[number].arrays
        }
        return StageSymmetry(m, self.places, ring_of, barriers, items, self._held(m, turns))

    def _held(self, m: Machine, turns: Turns) -> list[tuple[int, int, Any]]:
        """The stages at which agents stand: one that has waited for a stage and not given it back
        knows more of it than of others. By family and stage; and which of its states points there.
        """
        made: list[tuple[int, int, Any]] = []
        for a in m.agents:
            if a.ended:
                continue
            families = self.slot_family[a.partition]
            for slot in self.model.codes[a.partition].live[a.pc]:
                family = families.get(slot, -1)
                held, turn = a.slots[slot], turns.get((a.cta, family))
                if isinstance(held, StageParity) and turn:
                    made.append((family, (held.stage - turn[0]) % turn[2], (a.index, slot)))
        return made

    def _turns(self, m: Machine) -> Turns:
        """Where each family is said to begin, by CTA: at the first state that an agent holds. Not
        where somebody may yet take an initial state: that is a certain stage, not any."""
        made: Turns = {}
        waiting = [a for a in m.agents if not a.ended]
        fixed = {n for a in waiting for n in self.begun_later[a.partition][a.pc]}
        for a in m.agents:
            ring_families = self.slot_family[a.partition]
            for slot in self.model.codes[a.partition].live[a.pc]:
                number = ring_families.get(slot, -1)
                if number >= 0 and number not in fixed and self.ring_families[number].turns:
                    held, family = a.slots[slot], self.ring_families[number]
                    if isinstance(held, StageParity):
                        ctas = self.model.ctas if family.remote else (a.cta,)
                        for cta in ctas:
                            made.setdefault((cta, number), (held.stage, held.parity, family.num))
        return made

    def _order(self, cta: int, array: Array, turns: Turns) -> list[tuple[int, int]]:
        """The stages of an array from where its pipeline is said to begin."""
        turn = turns.get((cta, self.of_array[array.name]), NO_TURN)
        if array.first >= 0 and (cta, array.index) in self.idle:
            turn = NO_TURN
        found = self.orders.get((array.index, turn))
        if found is None:
            found = self.orders[array.index, turn] = order(array, turn)
        return found

    # Agents -----------------------------------------------------------------------------------

    def _agent(
        self,
        m: Machine,
        a: Agent,
        names: dict[int, int],
        turns: Turns,
        accumulators: dict[int, int],
    ) -> Any:
        ring_families = self.slot_family[a.partition]
        slots: list[Any] = []
        for slot in self.model.codes[a.partition].live[a.pc]:
            held = a.slots[slot]
            match held:
                case StageParity():
                    turn = turns.get((a.cta, ring_families.get(slot, -1)))
                    slots.append(turned(held, turn) if turn else (held.stage, held.parity))
                case Registers():
                    slots.append(accumulators.setdefault(held.number, len(accumulators)))
                case Descriptor():
                    turn = turns.get((a.cta, self.of_array[held.array.name]), NO_TURN)
                    item = (held.item - turn[0]) % held.array.num
                    slots.append((held.array.index, item, held.start, held.layout))
                case _:
                    slots.append(shown_term(held, names))
        frames = tuple(("open", names[f[1]], f[2]) if f[0] == "open" else f for f in a.frames)
        counts = tuple(sorted((repr(shown_key(k, names, 0)), v) for k, v in a.counts.items()))
        number = accumulators.get
        a.unfenced = frozenset(r for r in a.unfenced if r in accumulators)
        a.unwritten = frozenset(r for r in a.unwritten if r in accumulators)
        busy = frozenset(map(number, a.unfenced)), frozenset(map(number, a.unwritten))
        groups = tuple(
            (tuple(number(r, -1) for r in g.registers), g.fragments, g.op is None, g.open)
            for g in (*a.groups, a.open)
        )
        held = m.named.get(a.at)
        waiting = -1 if a.named < 0 or held is None else held.phase - a.named
        return (
            a.pc,
            tuple(slots),
            frames,
            counts,
            busy,
            groups,
            len(a.stores),
            a.began_stores,
            waiting,
            a.ended,
            a.registers,
            a.open.op is None,
            a.stale,
        )

    # Contents ---------------------------------------------------------------------------------

    def _barriers(self, m: Machine, turns: Turns) -> Barriers:
        """(place, change of parity, barrier), pipelines from where they are said to begin."""
        made: Barriers = []
        for cta in self.model.ctas:
            for array in self.arrays:
                if array.first >= 0:
                    first = cta * self.model.num_barriers + array.first
                    for n, (stage, flip) in enumerate(self._order(cta, array, turns)):
                        made.append(((cta, array.index, n), flip, m.barriers[first + stage]))
        # Whole warpgroups arrive there, in rounds that have no parity.
        made += [((NAMED, key), m.named[key].phase & 1, m.named[key]) for key in sorted(m.named)]
        return made

    def _items(self, m: Machine, turns: Turns) -> Items:
        """(place, key) of the items of SMEM that have been used."""
        made: Items = []
        for cta in self.model.ctas:
            for array in self.arrays:
                if array.first < 0:
                    for n, (item, _) in enumerate(self._order(cta, array, turns)):
                        key = (cta, array.index, item)
                        if key in m.memory:
                            made.append(((cta, array.index, n), key))
        return made


def _begun_later(code: Code, ring_families: dict[int, int]) -> list[frozenset[int]]:
    """For each instruction, families whose initial states may be taken later."""

    def before(held: frozenset[int], i: Instruction) -> frozenset[int]:
        begun = isinstance(i.op, ops.InitialState)
        return held | {ring_families.get(i.defines[0], -1)} if begun else held

    return of_rest(code, frozenset[int](), before)


def _covers(less: list[int], more: list[int]) -> bool:
    """Is all that is unknown in one state unknown in the other?"""
    return not any(u & ~v for u, v in zip(more, less, strict=True))
