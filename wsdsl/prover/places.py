"""Events by the places where they stand: renamed so that states can be compared, forgotten where
no check can fail for them, added where another state of the same shape has one.
"""

from __future__ import annotations

from typing import Any

from wsdsl.prover.asked import CHANGES, EVERY_CTA, LOOKS, ROUND, Settled, asks_of, settled
from wsdsl.prover.errors import Party
from wsdsl.prover.iterations import shown_term
from wsdsl.prover.knowledge import masks_of, moved, put_masks
from wsdsl.prover.machine import Barrier, Machine, Span
from wsdsl.prover.model import Model

Items = list[tuple[Any, tuple[int, int, int]]]
"""Items of SMEM: the place, and the key in the machine's memory."""
Barriers = list[tuple[Any, int, Barrier]]
"""(place, change of parity, barrier)."""
NAMED = "named"


class Places:
    """A bit for each event that stands at a place, the same in all states."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.asks = [asks_of(model, code) for code in model.codes]
        self.bits: dict[Any, list[int]] = {}
        self.names: list[Any] = []
        self.parts: dict[Any, tuple[Any, ...]] = {}

    def _new(self, where: Any) -> int:
        self.names.append(where)
        return 1 << len(self.names) - 1

    def bit(self, where: Any) -> int:
        held = self.bits.get(where)
        if held is None:
            held = self.bits[where] = [self._new(where)]
        return held[0]

    def _put(self, where: Any, mask: int, copies: dict[int, int]) -> int:
        held = self.bits.get(where)
        if held is None:
            held = self.bits[where] = []
        made = number = 0
        while mask:
            bit = mask & -mask
            mask ^= bit
            if number == len(held):
                held.append(self._new(where))
            new = held[number]
            number += 1
            copies[bit] = copies.get(bit, 0) | new
            made |= new
        return made

    # Numbering --------------------------------------------------------------------------------

    def number(self, m: Machine, barriers: Barriers, items: Items, names: dict[int, int]) -> int:
        """Number the events by the places where they stand, one for each place; all of them, as a
        mask. What all know of who may ask for it is forgotten: no check can fail for it."""
        copies: dict[int, int] = {}
        over = settled(m, self.asks)
        self._number_barriers(m, barriers, over, copies)
        memory = m.memory
        for where, key in items:
            spans = memory[key]
            reads = ~over.at(where[0], where[1], CHANGES)
            writes = ~(over.at(where[0], where[1], CHANGES, LOOKS) & over.heard[where[0]])
            shown = ~over.at(where[0], where[1], CHANGES, LOOKS)
            memory[key] = tuple(
                self._span((where, s.start, s.end), s, writes, shown, reads, copies) for s in spans
            )
        self._number_global(m, names, over, copies)
        every = 0
        for made in copies.values():
            every |= made
        put_masks(m, barriers, names, moved(masks_of(m, barriers, names), copies, every))
        m.next_event = 1 << len(self.names)
        return every

    def _number_barriers(
        self, m: Machine, barriers: Barriers, over: Settled, copies: dict[int, int]
    ) -> None:
        put = self._put
        m.waits = m.phases = 0
        for where, _, held in barriers:
            if where[0] == NAMED:
                cta, number = where[1]
                place: Any = (ROUND, number if cta >= 0 else EVERY_CTA)
                cta = max(cta, 0)
            else:
                cta, place, _ = where
            arrives, waits = over.at(cta, place, CHANGES), over.at(cta, place, LOOKS)
            both = arrives & waits
            if held.done:
                held.done = put((where, "done"), held.done & ~both, copies)
            if held.before:
                held.before = put((where, "before"), held.before & ~waits, copies)
            if held.fenced:
                held.fenced = put((where, "fenced"), held.fenced & ~both, copies)
            if held.passed:
                held.passed = put((where, "passed"), held.passed & ~arrives, copies)
            m.waits |= held.passed
            m.phases |= held.done | held.before

    def _span(
        self, where: Any, s: Span, writes: int, shown: int, reads: int, copies: dict[int, int]
    ) -> Span:
        write, seen = s.write & writes, s.shown & shown
        if not write and not seen and not s.reads:
            if not s.write and not s.shown:
                return s
            return Span(s.start, s.end, 0, 0, s.writer, (), s.written)
        put = self._put
        kept = tuple(
            [
                (reader, put((where, reader), event & reads, copies), party)
                for reader, event, party in s.reads
                if event & reads
            ]
        )
        write = put((where, "write"), write, copies) if write else 0
        seen = put((where, "shown"), seen, copies) if seen else 0
        return Span(s.start, s.end, write, seen, s.writer, kept, s.written)

    def _number_global(
        self, m: Machine, names: dict[int, int], over: Settled, copies: dict[int, int]
    ) -> None:
        put, open_ = self._put, ~over.by_all
        for key, spans in m.global_memory.items():
            shown = repr(shown_term(key, names))
            m.global_memory[key] = tuple(
                self._span((shown, s.start, s.end), s, open_, open_, open_, copies) for s in spans
            )
        for key, event in m.remote.items():
            m.remote[key] = put(("remote", key), event & ~over.heard[key[1]], copies)
        for key, flag in m.flags.items():
            shown = repr(shown_term(key, names))
            flag.arrivals = put((shown, "arrivals"), flag.arrivals & open_, copies)
            flag.lowered = put((shown, "lowered"), flag.lowered & open_, copies)
            flag.passed = put((shown, "passed"), flag.passed & open_, copies)
            flag.reset = put((shown, "reset"), flag.reset & open_, copies)

    # Joins ------------------------------------------------------------------------------------

    def unwritten(self, m: Machine, items: Items, taken: int) -> int:
        """Where nothing was written yet, as bits; where `taken` says so, nothing is from now on."""
        bits = 0
        for where, key in items:
            spans = m.memory[key]
            for n, span in enumerate(spans):
                if span.written and not taken:
                    continue
                bit = self.bit((where, span.start, "written"))
                if span.written and bit & taken:
                    span = Span(
                        span.start, span.end, span.write, span.shown, span.writer, span.reads
                    )
                    spans = m.memory[key] = (*spans[:n], span, *spans[n + 1 :])
                if not span.written:
                    bits |= bit
        return bits

    def add(
        self, m: Machine, barriers: Barriers, items: Items, gone: list[int], every: int
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
        rest, added = missing, 0
        while rest:
            bit = rest & -rest
            rest ^= bit
            where, kind = self.names[bit.bit_length() - 1]
            by_place.setdefault(where, []).append((kind, bit))
        for where, _, held in barriers:
            for kind, bit in by_place.get(where, ()):
                setattr(held, kind, getattr(held, kind) | bit)
                m.waits |= bit if kind == "passed" else 0
                m.phases |= bit if kind in ("done", "before") else 0
                added |= bit
        nobody = Party(0, self.model.kernel.body[-1])
        for where, key in items:
            spans = m.memory[key]
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
                    spans = m.memory[key] = (*spans[:n], s, *spans[n + 1 :])
        return added
