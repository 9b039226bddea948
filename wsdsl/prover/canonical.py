"""States as keys: two that differ only in names are one state.

Names are events, iterations, accumulators and the stage at which a ring is said to begin. Events
that no check can ask for again are forgotten, iterations that nobody can come to as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wsdsl.prover.errors import Party
from wsdsl.prover.families import families, order, turned
from wsdsl.prover.iterations import name_iterations, shown_key, shown_term
from wsdsl.prover.knowledge import masks_of, moved, put_masks
from wsdsl.prover.machine import ENDED, Agent, Barrier, Machine, Registers, Span, StageParity
from wsdsl.prover.model import Array, Model
from wsdsl.prover.products import Descriptor

NO_TURN = (0, 0, 1)
Items = list[tuple[Any, tuple[int, int, int]]]
"""Items of SMEM: the place, and the key in the machine's memory."""
Turns = dict[tuple[int, int], tuple[int, int, int]]
"""By CTA and family: the stage and parity from which a ring is looked at, and its length."""


@dataclass(eq=False, slots=True)
class Seen:
    """A state that is followed: what is not known in it. Not any more, once one of its shape was
    met in which no more is known: where that one leads, this one does too."""

    unknown: list[int]
    superseded: bool = False


class Canonical:
    """Makes keys of a model's states, and drops from a state what can not matter any more."""

    def __init__(self, model: Model, widen: bool) -> None:
        self.model, self.widen = model, widen
        self.seen: dict[Any, list[Seen]] = {}
        self.families, self.of_array, of_state = families(model)
        self.slot_family = [
            {slot: of_state[name] for name, slot in code.slots.items() if name in of_state}
            for code in model.codes
        ]
        self.arrays = list(model.arrays.values())
        self.union: dict[Any, list[int]] = {}
        self.orders: dict[tuple[int, tuple[int, int, int]], list[tuple[int, int]]] = {}
        self.place: dict[Any, int] = {}

    def new(self, m: Machine) -> Seen | None:
        """The state, if it has to be followed: not if one was whose threads knew no more.

        With `widen`, what was not known in an earlier state of the same shape is forgotten here.
        """
        names = name_iterations(m)
        turns = self._turns(m)
        accumulators: dict[int, int] = {}
        agents = tuple(self._agent(m, a, names, turns, accumulators) for a in m.agents)
        barriers, items = self._barriers(m, turns), self._items(m, turns)
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
        flags = sorted((repr(shown_term(k, names)), f.value) for k, f in m.flags.items())
        shape = (
            agents,
            tuple(
                (h.phase & 1 ^ flip, h.pending, h.tx, h.arrivals, h.initialised)
                for _, flip, h in barriers
            ),
            tuple((where, tuple((s.start, s.end) for s in m.memory[key])) for where, key in items),
            tuple(loops),
            tuple(following),
            tuple(runs),
            tuple(facts),
            tuple(flags),
            tuple(sorted(repr(shown_term(k, names)) for k in m.global_memory)),
            tuple(m.pool),
        )
        every = self._place_events(m, barriers, items, names)
        masks = masks_of(m, barriers, names)
        unknown = [*(every & ~k for k in masks), self._unwritten(m, items, 0)]
        followed = self.seen.setdefault(shape, [])
        if any(_covers(held.unknown, unknown) for held in followed):
            return None
        if followed and self.widen:
            held = self.union[shape]
            gone = self.union[shape] = [u | h for u, h in zip(unknown, held, strict=True)]
            added = self._add_events(m, barriers, items, gone, every)
            every |= added
            masks = [
                k if k < 0 else (k | added) & ~h for k, h in zip(masks, gone[:-1], strict=True)
            ]
            put_masks(m, barriers, names, masks)
            unwritten = self._unwritten(m, items, gone[-1])
            unknown = [*(every & ~k for k in masks), unwritten]
        else:
            self.union[shape] = unknown
        for held in followed:
            held.superseded = _covers(unknown, held.unknown)
        followed[:] = [held for held in followed if not held.superseded]
        made = Seen(unknown)
        followed.append(made)
        return made

    # Rings ------------------------------------------------------------------------------------

    def _turns(self, m: Machine) -> Turns:
        """Where each family is said to begin, by CTA: at the first state that an agent holds."""
        made: Turns = {}
        for a in m.agents:
            families = self.slot_family[a.partition]
            for slot in self.model.codes[a.partition].live[a.pc]:
                number = families.get(slot, -1)
                if number >= 0 and self.families[number].turns:
                    held, family = a.slots[slot], self.families[number]
                    if isinstance(held, StageParity):
                        ctas = range(self.model.num_ctas) if family.remote else (a.cta,)
                        for cta in ctas:
                            made.setdefault((cta, number), (held.stage, held.parity, family.num))
        return made

    def _order(self, cta: int, array: Array, turns: Turns) -> list[tuple[int, int]]:
        """The stages of an array from where its ring is said to begin."""
        turn = turns.get((cta, self.of_array[array.name]), NO_TURN)
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
        families = self.slot_family[a.partition]
        slots: list[Any] = []
        for slot in self.model.codes[a.partition].live[a.pc]:
            held = a.slots[slot]
            match held:
                case StageParity():
                    family = families.get(slot, -1)
                    turn = turns.get((a.cta, family))
                    slots.append(turned(held, turn) if turn else (held.stage, held.parity))
                case Registers():
                    slots.append(accumulators.setdefault(held.number, len(accumulators)))
                case Descriptor():
                    slots.append(repr((held.array.name, held.item, held.start)))
                case _:
                    slots.append(shown_term(held, names))
        frames = tuple(("open", names[f[1]]) if f[0] == "open" else f for f in a.frames)
        counts = tuple(sorted((repr(shown_key(k, names, 0)), v) for k, v in a.counts.items()))
        number = accumulators.get
        a.unfenced = frozenset(r for r in a.unfenced if r in accumulators)
        a.unwritten = frozenset(r for r in a.unwritten if r in accumulators)
        busy = frozenset(map(number, a.unfenced)), frozenset(map(number, a.unwritten))
        groups = tuple(
            (tuple(number(r, -1) for r in g.registers), g.fragments) for g in (*a.groups, a.open)
        )
        held = m.named_of(a)
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
        )

    # What is where ----------------------------------------------------------------------------

    def _barriers(self, m: Machine, turns: Turns) -> list[tuple[Any, int, Barrier]]:
        """(place, change of parity, barrier), rings from where they are said to begin."""
        made: list[tuple[Any, int, Barrier]] = []
        for cta in range(self.model.num_ctas):
            for array in self.arrays:
                if array.first >= 0:
                    first = cta * self.model.num_barriers + array.first
                    for n, (stage, flip) in enumerate(self._order(cta, array, turns)):
                        made.append(((cta, array.index, n), flip, m.barriers[first + stage]))
        # Whole warpgroups meet there, in rounds that have no parity.
        made += [
            (("named", key), m.named[key].phase & 1, m.named[key]) for key in sorted(m.named)
        ]
        return made

    def _items(self, m: Machine, turns: Turns) -> Items:
        """(place, key) of the items of SMEM that have been used."""
        made: Items = []
        for cta in range(self.model.num_ctas):
            for array in self.arrays:
                if array.first < 0:
                    for n, (item, _) in enumerate(self._order(cta, array, turns)):
                        key = (cta, array.index, item)
                        if key in m.memory:
                            made.append(((cta, array.index, n), key))
        return made

    def _unwritten(self, m: Machine, items: Items, taken: int) -> int:
        """Where nothing was written yet, as bits; where `taken` says so, nothing is from now on."""
        bits = 0
        for where, key in items:
            spans = m.memory[key]
            for n, span in enumerate(spans):
                place = ((where, span.start), "written")
                bit = 1 << self.place.setdefault(place, len(self.place))
                if span.written and bit & taken:
                    span = Span(
                        span.start, span.end, span.write, span.shown, span.writer, span.reads
                    )
                    spans = m.memory[key] = (*spans[:n], span, *spans[n + 1 :])
                if not span.written:
                    bits |= bit
        return bits

    # Events -----------------------------------------------------------------------------------

    def _place_events(
        self,
        m: Machine,
        barriers: list[tuple[Any, int, Barrier]],
        items: Items,
        names: dict[int, int],
    ) -> int:
        """Number the events by the places where they stand, one for each place; all of them, as a
        mask. What everybody knows of is forgotten: no check can fail for it."""
        settled = -1
        for a in m.agents:
            if not a.ended:
                for c in self.model.codes[a.partition].acting[a.pc]:
                    settled &= a.know[c]
        copies: dict[int, int] = {}
        place = self.place

        def put(where: Any, mask: int) -> int:
            mask &= ~settled
            made = number = 0
            while mask:
                bit = mask & -mask
                mask ^= bit
                new = 1 << place.setdefault((where, number), len(place))
                copies[bit] = copies.get(bit, 0) | new
                made |= new
                number += 1
            return made

        def put_span(where: Any, s: Span) -> Span:
            reads = tuple((r, put((where, r), e), p) for r, e, p in s.reads if e & ~settled)
            if not reads and not (s.write | s.shown) & ~settled:
                return Span(s.start, s.end, 0, 0, s.writer, (), s.written)
            write, shown = put((where, "write"), s.write), put((where, "shown"), s.shown)
            return Span(s.start, s.end, write, shown, s.writer, reads, s.written)

        m.waits = m.phases = 0
        for where, _, held in barriers:
            held.done, held.before = (
                put((where, "done"), held.done),
                put((where, "before"), held.before),
            )
            held.fenced, held.passed = (
                put((where, "fenced"), held.fenced),
                put((where, "passed"), held.passed),
            )
            m.waits |= held.passed
            m.phases |= held.done | held.before
        for where, key in items:
            m.memory[key] = tuple(put_span((where, s.start, s.end), s) for s in m.memory[key])
        for key, spans in m.global_memory.items():
            shown = repr(shown_term(key, names))
            m.global_memory[key] = tuple(put_span(shown, s) for s in spans)
        for key, event in m.remote.items():
            m.remote[key] = put(key, event)
        for key, flag in m.flags.items():
            shown = repr(shown_term(key, names))
            flag.arrivals = put((shown, "arrivals"), flag.arrivals)
            flag.lowered = put((shown, "lowered"), flag.lowered)
            flag.passed, flag.reset = (
                put((shown, "passed"), flag.passed),
                put((shown, "reset"), flag.reset),
            )
        live = every = 0
        for bit, made in copies.items():
            live |= bit
            every |= made
        put_masks(
            m,
            barriers,
            names,
            [moved(k & live, copies) if k >= 0 else k for k in masks_of(m, barriers, names)],
        )
        m.next_event = 1 << len(place)
        return every

    def _add_events(
        self,
        m: Machine,
        barriers: list[tuple[Any, int, Barrier]],
        items: Items,
        gone: list[int],
        every: int,
    ) -> int:
        """Where a state of this shape had to know of an event, and this one has none: put one
        there. Returns those that were added."""
        missing = 0
        for unknown in gone[:-1]:
            missing |= unknown
        missing &= ~every
        if not missing:
            return 0
        by_place: dict[Any, list[tuple[Any, int]]] = {}
        places = list(self.place)
        rest, added = missing, 0
        while rest:
            bit = rest & -rest
            rest ^= bit
            (where, kind), _ = places[bit.bit_length() - 1]
            by_place.setdefault(where, []).append((kind, bit))
        for where, _, held in barriers:
            for kind, bit in by_place.get(where, ()):
                setattr(held, kind, getattr(held, kind) | bit)
                m.waits |= bit if kind == "passed" else 0
                m.phases |= bit if kind in ("done", "before") else 0
                added |= bit
        nobody = Party(0, self.model.kernel.body[-1])
        for where, key in items:
            spans = list(m.memory[key])
            for n, s in enumerate(spans):
                for kind, bit in by_place.get((where, s.start, s.end), ()):
                    write, seen, reads = s.write, s.shown, s.reads
                    if kind == "write":
                        write |= bit
                    elif kind == "shown":
                        seen |= bit
                    else:
                        others = tuple(r for r in reads if r[0] != kind)
                        reads = (*others, (kind, bit, nobody))
                    s = Span(s.start, s.end, write, seen, s.writer, reads, s.written)
                    added |= bit
                spans[n] = s
            m.memory[key] = tuple(spans)
        return added


def _covers(less: list[int], more: list[int]) -> bool:
    """Is all that is unknown in one state unknown in the other?"""
    return not any(u & ~v for u, v in zip(more, less, strict=True))
