"""Events by the places where they stand: renamed so that states can be compared, forgotten where
no check can fail for them, added where another state of the same shape has one.
"""

from dataclasses import dataclass
from typing import Any

from wsdsl.prover.failure import Party
from wsdsl.prover.machine.event_liveness import (
    CHANGES,
    EVERY_CTA,
    LOOKS,
    ROUND,
    Settled,
    asks_of,
    settled,
)
from wsdsl.prover.machine.knowledge_masks import Barriers, masks_of, moved, put_masks
from wsdsl.prover.machine.machine import Machine, Span, union
from wsdsl.prover.machine.model import Model
from wsdsl.prover.machine.widening import NAMED, Forgetting

Items = list[tuple[Any, tuple[int, int, int]]]
"""Items of SMEM: the place, and the key in the machine's memory."""
Stage = tuple[int, int, int]
"""(CTA, array, stage from where its pipeline is said to begin)."""
MOST_NUMBERED = 1 << 15
"""Items that are remembered: those of some states."""
ANYBODY = -1
"""A reading agent without known facts."""


@dataclass
class Known:
    """The events of a state: all, what is known to each who knows (as in `masks_of`), and what they
    are not to know."""

    every: int
    masks: list[int]
    hidden: list[int]

    def unknown(self, unwritten: int) -> list[int]:
        """Facts that agents could know and do not; at last, spans that are not written."""
        every = self.every
        made = [every & ~(k | h) for k, h in zip(self.masks, self.hidden, strict=True)]
        return [*made, unwritten]

    def without(self, gone: list[int], added: int) -> list[int]:
        """There are the events `added` too, known to all but who has them among what is gone."""
        self.every |= added
        self.masks = [
            k if k < 0 else (k | added) & ~(g | h)
            for k, g, h in zip(self.masks, gone, self.hidden, strict=True)
        ]
        return self.masks


class Places:
    """A bit for each event that stands at a place, the same in all states. Those of the stages of
    an array follow each other, so that a shift by one bit leads to the stage before."""

    def __init__(self, model: Model, hurry: bool) -> None:
        self.model, self.hurry = model, hurry
        self.hidden: Forgetting | None = None
        self.asks = [asks_of(model, code) for code in model.codes]
        self.nums = {array.index: array.num for array in model.arrays.values()}
        self.bits: dict[Any, dict[Any, int]] = {}
        self.names: list[tuple[Any, Any]] = []
        """By the bits' numbers: the place, and its contents."""
        self.of_stage: dict[Stage, int] = {}
        self.numbered: dict[tuple[Stage, int], tuple[tuple[Span, ...], int, int, int]] = {}
        """Items as `number` left them, by place and identity: their spans, and the events in them
        as writes, as what is shown of these, as reads."""

    def at(self, where: Any) -> dict[Any, int]:
        """The bits of a place, by its contents, as far as there are any."""
        held = self.bits.get(where)
        if held is None:
            held = self.bits[where] = {}
        return held

    def bit(self, where: Any, stage: Stage | None, kind: Any, number: int = 0) -> int:
        """Of the place (at a stage of an array, perhaps) and the `number`-th of a kind there."""
        key = (kind, number) if number else kind
        held = self.at(where).get(key)
        if held is not None:
            return held
        if stage is None:
            self.bits[where][key] = made = 1 << len(self.names)
            self.names.append((where, kind))
            if self.hidden is not None:
                self.hidden.place(where, None, made)
            return made
        cta, array, _ = stage
        for n in range(self.nums[array]):
            there = cta, array, n
            place = there if where is stage else (there, *where[1:])
            made = self.at(place)[key] = 1 << len(self.names)
            self.names.append((place, kind))
            if self.hidden is not None:
                self.hidden.place(place, there, made)
            self.of_stage[there] = self.of_stage.get(there, 0) | made
        return self.bits[where][key]

    def _put(
        self, where: Any, stage: Stage | None, kind: Any, mask: int, copies: dict[int, int]
    ) -> int:
        held = self.bits.get(where)
        made = number = 0
        while mask:
            bit = mask & -mask
            mask ^= bit
            # Mostly there is one, and it has been there before.
            new = held.get(kind, 0) if held is not None and not number else 0
            if not new:
                new = self.bit(where, stage, kind, number)
            number += 1
            copies[bit] = copies.get(bit, 0) | new
            made |= new
        return made

    # Numbering --------------------------------------------------------------------------------

    def number(self, m: Machine, barriers: Barriers, items: Items, names: dict[int, int]) -> Known:
        """Number the events by their places, one for each place. An event that all have seen
        who may ask for it is forgotten: no check can fail for it."""
        if self.hurry and self.hidden is None:
            self.hidden = Forgetting(m, self.asks)
        copies: dict[int, int] = {}
        over = settled(m, self.asks)
        self._number_barriers(m, barriers, over, copies)
        memory, kept = m.memory, 0
        by_array: dict[tuple[int, int], tuple[int, int, int]] = {}
        for where, key in items:
            cta, array, _ = where
            open_ = by_array.get((cta, array))
            if open_ is None:
                reads = over.at(cta, array, CHANGES)
                both = reads & over.at(cta, array, LOOKS)
                open_ = by_array[cta, array] = ~(both & over.heard[cta]), ~both, ~reads
            spans = memory[key]
            same = self.numbered.get((where, id(spans)))
            if same is None:
                if any(s.write or s.shown or s.reads for s in spans):
                    memory[key] = self._item(where, spans, open_, copies)
                continue
            # No agent was there since: its events have their bits, if all of them still matter.
            _, writes, shown, reads = same
            if writes & ~open_[0] or shown & ~open_[1] or reads & ~open_[2]:
                memory[key] = self._item(where, spans, open_, copies)
            else:
                kept |= writes | shown | reads
        every = kept | union(copies.values())
        masks = moved(masks_of(m, barriers), copies, kept)
        hidden = [0] * len(masks)
        if self.hidden is not None:
            hidden = self.hidden.masks(m, barriers)
            masks = [k & ~h if k > 0 else k for k, h in zip(masks, hidden, strict=True)]
        put_masks(m, barriers, masks)
        m.next_event = 1 << len(self.names)
        return Known(every, masks, hidden)

    def _number_barriers(
        self, m: Machine, barriers: Barriers, over: Settled, copies: dict[int, int]
    ) -> None:
        put = self._put
        m.waits = m.phases = 0
        for where, _, held in barriers:
            if where[0] == NAMED:
                cta, number = where[1]
                stage, place = None, (ROUND, number if cta >= 0 else EVERY_CTA)
                cta = max(cta, 0)
            else:
                cta, place, _ = stage = where
            arrives, waits = over.at(cta, place, CHANGES), over.at(cta, place, LOOKS)
            both = arrives & waits
            if held.done:
                held.done = put(where, stage, "done", held.done & ~both, copies)
            if held.before:
                held.before = put(where, stage, "before", held.before & ~waits, copies)
            if held.fenced:
                held.fenced = put(where, stage, "fenced", held.fenced & ~both, copies)
            if held.remote:
                held.remote = put(where, stage, "remote", held.remote & ~over.heard[cta], copies)
            if held.passed:
                held.passed = put(where, stage, "passed", held.passed & ~arrives, copies)
            m.waits |= held.passed
            m.phases |= held.done | held.before

    def _item(
        self,
        where: Stage,
        spans: tuple[Span, ...],
        open_: tuple[int, int, int],
        copies: dict[int, int],
    ) -> tuple[Span, ...]:
        made = tuple([self._span(where, s, open_, copies) for s in spans])
        writes = shown = reads = 0
        for s in made:
            writes |= s.write
            shown |= s.shown
            for _, events, _ in s.reads:
                reads |= events
        if len(self.numbered) == MOST_NUMBERED:
            self.numbered.clear()
        self.numbered[where, id(made)] = made, writes, shown, reads
        return made

    def _span(
        self, stage: Stage, s: Span, open_: tuple[int, int, int], copies: dict[int, int]
    ) -> Span:
        """`open_`: events that matter as a write, as what is shown of it, as a read. It does
        not matter which agent reads, but which class of threads, since that class sees its reads.
        """
        put, where = self._put, (stage, s.start, s.end)
        write, shown, unread = s.write & open_[0], s.shown & open_[1], open_[2]
        reads = [r for r in s.reads if r[1] & unread]
        if len(reads) > 1:
            reads.sort(key=lambda r: r[0])
        before: dict[Any, int] = {}
        for n, (reader, event, party) in enumerate(reads):
            alike = reader[0], *reader[2:]
            before[alike] = before.get(alike, -1) + 1
            kind = alike, before[alike]
            reads[n] = reader, put(where, stage, kind, event & unread, copies), party
        if write:
            write = put(where, stage, "write", write, copies)
        if shown:
            shown = put(where, stage, "shown", shown, copies)
        return Span(s.start, s.end, write, shown, s.writer, tuple(reads), s.written)

    # Joins ------------------------------------------------------------------------------------

    def unwritten(self, m: Machine, items: Items, taken: int) -> int:
        """Where nothing was written yet, as bits; where `taken` says so, nothing is from now on."""
        bits = 0
        for where, key in items:
            spans = m.memory[key]
            for n, span in enumerate(spans):
                if span.written and not taken:
                    continue
                bit = self.bit((where, span.start), where, "written")
                if span.written and bit & taken:
                    span = Span(
                        span.start, span.end, span.write, span.shown, span.writer, span.reads
                    )
                    spans = m.memory[key] = (*spans[:n], span, *spans[n + 1 :])
                if not span.written:
                    bits |= bit
        return bits

    def add(self, m: Machine, barriers: Barriers, items: Items, gone: list[int], every: int) -> int:
        """Where a state of this shape had to see an event, and this one has none: put one
        there. Returns those that were added."""
        missing = union(gone) & ~every
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
        placeholder = Party(0, self.model.kernel.body[-1])
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
                        (access, *threads), _ = kind
                        reads = (*reads, ((access, ANYBODY, *threads), bit, placeholder))
                    s = Span(s.start, s.end, write, seen, s.writer, reads, s.written)
                    added |= bit
                    spans = m.memory[key] = (*spans[:n], s, *spans[n + 1 :])
        return added
