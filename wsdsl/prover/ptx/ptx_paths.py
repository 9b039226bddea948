"""All ways through PTX text that threads may go, with the stages and parities as they have them.

Where a predicate is unknown, both ways are followed, and what was taken is kept until it is defined
anew. Threads of all CTAs that go the same ways are followed together: differences between them are
held as one value for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from wsdsl.lazy import cached_property
from wsdsl.prover.ptx.expected_paths import Member, each
from wsdsl.prover.ptx.ptx_trace import Ask, Event, Jump, Program
from wsdsl.prover.ptx.register_slice import Slice, Statics, read, result, split_address
from wsdsl.prover.ptx.register_values import (
    Definition,
    Held,
    Operand,
    Value,
    computed,
    joined,
    scalar,
)
from wsdsl.prover.ptx.sync_events import threads_told
from wsdsl.prover.ptx.trace_equivalence import Move, Paths, Position, State, Told, Ways
from wsdsl.record import record

MANY = 32
"""More members that differ are looked at warp by warp."""


@record
class Step:
    """The definition of a register that is run along."""

    slot: int
    d: Definition


class Runs:
    """A program's steps: definitions in registers, and by number labels, jumps and events."""

    def __init__(self, program: Program, ranks: int) -> None:
        self.program = program
        tokens = list(zip(program.tokens, program.read, strict=True))
        asked = [
            (ask.text, ask.at) for _, of in tokens if isinstance(of, Event) for ask in of.asked
        ]
        self.slice = Slice(program.values, asked, program.threads)
        self.fixed = [
            Statics(program.values, program.places.num_threads, rank) for rank in range(ranks)
        ]
        steps: list[tuple[int, Step | int]] = [
            (d.at, Step(slot, d)) for slot, d in self.slice.steps()
        ]
        steps += [(token.at, i) for i, (token, _) in enumerate(tokens)]
        self.steps = [step for _, step in sorted(steps, key=lambda step: step[0])]
        self.labels = {
            program.tokens[step].label: i
            for i, step in enumerate(self.steps)
            if isinstance(step, int) and program.tokens[step].label
        }

    def reads(self, step: Step | int) -> list[int]:
        """The registers that a step depends on."""
        if isinstance(step, Step):
            return self.slice.reads(step.d)
        token, of = self.program.tokens[step], self.program.read[step]
        asked = [(token.guard, token.at)] if isinstance(of, Jump) and token.guard else []
        if isinstance(of, Event):
            asked = [(ask.text, ask.at) for ask in of.asked]
        found = (self.slice.slot(text, at) for text, at in asked)
        return [slot for slot in found if slot is not None]

    @cached_property
    def live(self) -> list[int]:
        """Of each step the registers, as bits, that are read from there on."""
        reads = [sum(1 << slot for slot in {*self.reads(step)}) for step in self.steps]
        after = [0] * (len(self.steps) + 1)
        changed = True
        while changed:
            changed = False
            for i in range(len(self.steps) - 1, -1, -1):
                step, bits = self.steps[i], after[i + 1]
                if isinstance(step, Step):
                    if not bits >> step.slot & 1:
                        # Unread definitions read nothing.
                        changed = changed or bits != after[i]
                        after[i] = bits
                        continue
                    bits = bits if step.d.guard else bits & ~(1 << step.slot)
                else:
                    jump = self.program.read[step]
                    if isinstance(jump, Jump):
                        bits = bits if self.program.tokens[step].guard else 0
                        for target in jump.targets:
                            bits |= after[self.labels[target]] if target in self.labels else 0
                bits |= reads[i]
                changed = changed or bits != after[i]
                after[i] = bits
        return after

    @cached_property
    def tied(self) -> list[tuple[int, int]]:
        found = list[tuple[int, int]]()
        for step in self.steps:
            slots = self.reads(step)
            if isinstance(step, Step):
                slots.append(step.slot)
            found += [(slots[0], slot) for slot in slots[1:]]
        return found

    @cached_property
    def steering(self) -> list[int]:
        """Registers of branches, and of events outside all pipelines."""
        found = list[int]()
        for step in self.steps:
            of = None if isinstance(step, Step) else self.program.read[step]
            on_ring = isinstance(of, Event) and (
                of.letter.barrier or any(ask.field == "barrier" for ask in of.asked)
            )
            if of is not None and not on_ring:
                found += self.reads(step)
        return found

    # Threads on the same ways ---------------------------------------------------------------------

    def classes(self, masks: Iterable[int]) -> Iterator[tuple[int, list[Member]]]:
        """Threads, as bits, that go the same ways, also by these `masks` of threads; and for all
        with the same registers and events one, in all CTAs of a cluster."""
        num, jumps, events = self.program.places.num_threads, {*masks}, {0}
        for of in self.program.read:
            if of is not None:
                (jumps if isinstance(of, Jump) else events).update((of.may, of.must))
        ways: dict[Position, list[int]] = {}
        for tid in range(num):
            ways.setdefault(tuple([mask >> tid & 1 for mask in jumps]), []).append(tid)
        names = self._fixed_names()
        vectors = [[fixed.of(name) for name in names] for fixed in self.fixed]
        for tids in ways.values():
            found: dict[Position, Member] = {}
            for rank, held in enumerate(vectors):
                for tid in tids:
                    key = (
                        *[x[tid] if isinstance(x, list) else x for x in held],
                        *[mask >> tid & 1 for mask in events],
                    )
                    found.setdefault(key, (tid, rank))
            members = list(found.values())
            if len(members) > MANY:
                firsts = {tid // 32: tid for tid in reversed(tids)}
                members = [(tid, rank) for tid, rank in members if firsts[tid // 32] == tid]
            yield sum(1 << tid for tid in tids), members

    def _fixed_names(self) -> list[str]:
        """The registers that are read and are not numbered."""
        found = dict[str, None]()
        for step in self.steps:
            of = None if isinstance(step, Step) else self.program.read[step]
            texts = [(text, step.d.at) for text in read(step.d)] if isinstance(step, Step) else []
            if isinstance(of, Event):
                texts = [(ask.text, ask.at) for ask in of.asked]
            for text, at in texts:
                register, _ = split_address(text)
                if self.program.values.constant_at(register, at) is None:
                    found[self.program.values.name(register, at)] = None
        return [name for name in found if name not in self.slice.slots]


class PtxPaths(Paths):
    """`everybody`: the threads, as bits."""

    def __init__(self, runs: Runs, everybody: int, members: Sequence[Member]) -> None:
        self.runs, self.everybody, self.members = runs, everybody, members
        self.compiled: list[Compiled | None] = [None] * len(runs.steps)
        self.held_at: dict[int, list[int]] = {}
        self.ways: dict[State, Ways] = {}

    def registers(self, point: int) -> Sequence[int]:
        if point not in self.held_at:
            bits = self.runs.live[point]
            self.held_at[point] = [s for s in range(len(self.runs.slice.slots)) if bits >> s & 1]
        return self.held_at[point]

    def tied(self) -> Iterable[tuple[int, int]]:
        return self.runs.tied

    def steering(self) -> Iterable[int]:
        return self.runs.steering

    def after(self, state: State) -> Ways:
        """Each pipeline asks for them again."""
        if state not in self.ways:
            self.ways[state] = self._after(state)
        return self.ways[state]

    def _after(self, state: State) -> Ways:
        walk = Walk(self)
        held: Held = [None] * len(self.runs.slice.slots)
        if state[0]:
            for slot, value in zip(self.registers(state[0]), state[1], strict=True):
                held[slot] = value  # type: ignore[assignment]
        walk.todo.append((state[0], held))
        while walk.todo:
            walk.follow(*walk.todo.pop())
        return Ways(walk.moves, walk.silent, walk.ends)

    def step(self, i: int) -> Compiled:
        made = self.compiled[i]
        if made is None:
            made = self.compiled[i] = self._compile(i)
        return made

    # Steps ---------------------------------------------------------------------------------------

    def _compile(self, i: int) -> Compiled:
        step = self.runs.steps[i]
        if isinstance(step, Step):
            return self._definition(i, step)
        token, of = self.runs.program.tokens[step], self.runs.program.read[step]
        if of is None:
            return lambda walk, held: walk.stop(i + 1, held)
        if isinstance(of, Jump):
            return self._jump(i, token.guard, token.at, of)
        return self._event(i, of)

    def _operand(self, text: str, at: int) -> Operand:
        """Of a register, a number, or `[register+number]`."""
        register, plus = split_address(text)
        slot = self.runs.slice.slot(register, at)
        if slot is not None:
            return Operand(slot, None, plus)
        found = list[int | None]()
        for tid, rank in self.members:
            value = self.runs.fixed[rank].operand(register, at)
            value = value[tid] if isinstance(value, list) else value
            found.append(None if value is None else value + plus)
        return Operand(None, joined(found))

    def _definition(self, i: int, step: Step) -> Compiled:
        d, slot = step.d, step.slot
        if not self.runs.live[i + 1] >> slot & 1:
            return lambda _walk, _held: i + 1
        args = [self._operand(text, d.at) for text in d.args] if read(d) else []
        guard = self._operand(d.guard.removeprefix("!"), d.at) if d.guard else None
        value = self._computed(d, args)
        chosen = guard or (args[2] if d.op.startswith("selp") else None)
        fork = None if chosen is None else chosen.slot
        negated = d.guard[:1] == "!"

        def run(walk: Walk, held: Held) -> int:
            if fork is not None and held[fork] is None:
                if walk.told:
                    return walk.stop(i, held)
                other = held.copy()
                other[fork], held[fork] = 0, 1
                walk.todo.append((i, other))
            passes = 1 - negated if guard is None else scalar(guard.of(held))
            if passes is None:
                held[slot] = None
            elif bool(passes) != negated:
                held[slot] = value(held)
            return i + 1

        def plain(_: Walk, held: Held) -> int:
            held[slot] = value(held)
            return i + 1

        return plain if chosen is None else run

    def _computed(self, d: Definition, args: Sequence[Operand]) -> Callable[[Held], Value]:
        of, num = computed(d.op), len(self.members)
        if not args:
            return lambda _: None

        def run(held: Held) -> Value:
            known = [x.of(held) for x in args]
            if tuple not in map(type, known):
                return result(d, known, of)  # type: ignore[arg-type]
            columns = [x if isinstance(x, tuple) else (x,) * num for x in known]
            return joined([result(d, x, of) for x in zip(*columns, strict=True)])

        return run

    def _jump(self, i: int, guard: str, at: int, of: Jump) -> Compiled:
        targets = [self.runs.labels[x] for x in of.targets if x in self.runs.labels]
        may, must = bool(of.may & self.everybody), bool(of.must & self.everybody)
        slot = self.runs.slice.slot(guard, at) if guard else None
        asked = int(guard[:1] != "!")

        def run(walk: Walk, held: Held) -> int:
            takes, passes = may, not must
            known = None if slot is None else scalar(held[slot])
            if known is not None:
                takes, passes = known == asked, known != asked
            if walk.told and (not of.targets or (takes and passes) or len(targets) > 1):
                return walk.stop(i, held)
            if not passes and len(targets) == 1:
                return targets[0]
            if takes:
                for target in targets:
                    there = held.copy()
                    if slot is not None:
                        there[slot] = asked
                    walk.todo.append((target, there))
                walk.ends = walk.ends or not of.targets
            if not passes:
                return STOP
            if slot is not None:
                held[slot] = 1 - asked
            return i + 1

        return run

    def _event(self, i: int, of: Event) -> Compiled:
        if not of.may & self.everybody:
            return lambda _walk, _held: i + 1
        plain = of.letter._replace(threads=threads_told(of.may, self.everybody))
        who = [n for n, (tid, _) in enumerate(self.members) if of.may >> tid & 1]
        fields = [(ask.field, self._telling(ask, who)) for ask in of.asked]
        slots = [self.runs.slice.slot(ask.text, ask.at) for ask in of.asked]
        told_by = next((slot for slot in slots if slot is not None), None)
        told = Told(plain, of.line, told_by)

        @cache
        def filled(*texts: str) -> Told:
            changed = dict(zip((field for field, _ in fields), texts, strict=True))
            return Told(plain._replace(**changed), of.line, told_by)

        def run(walk: Walk, held: Held) -> int:
            walk.told.append(filled(*[tell(held) for _, tell in fields]))
            return i + 1

        def constant(walk: Walk, _: Held) -> int:
            walk.told.append(told)
            return i + 1

        return run if fields else constant

    def _telling(self, ask: Ask, who: Sequence[int]) -> Callable[[Held], str]:
        operand, filled = self._operand(ask.text, ask.at), self.runs.program.filled

        @cache
        def tell(value: Value) -> str:
            if isinstance(value, tuple):
                return each([filled(ask.field, value[n]) for n in who])
            return filled(ask.field, value)

        return lambda held: tell(operand.of(held))


STOP = -1
Compiled = Callable[["Walk", Held], int]
"""Does a step and tells the next one."""


class Walk:
    """From a state to the next ones."""

    def __init__(self, paths: PtxPaths) -> None:
        self.paths = paths
        self.moves: list[Move] = []
        self.silent: list[State] = []
        self.ends = False
        self.todo: list[tuple[int, Held]] = []
        self.told: list[Told] = []

    def follow(self, i: int, held: Held) -> None:
        step, compiled, self.told = self.paths.step, self.paths.compiled, []
        while i >= 0:
            if i == len(compiled):
                self.stop(i, held)
                return
            i = (compiled[i] or step(i))(self, held)

    def stop(self, i: int, held: Held) -> int:
        after = i, tuple([held[slot] for slot in self.paths.registers(i)])
        if self.told:
            self.moves.append(Move(tuple(self.told), after))
        elif i < len(self.paths.compiled):
            self.silent.append(after)
        return STOP
