"""Ops of each partition that others can notice, as straight code with jumps.

Arithmetic on fragments is left out: kept are the ops that synchronize or access SMEM, the control
around them, and the scalars that those depend on. Code can be stopped anywhere, copied and resumed,
which is how both outcomes of an undecided test are followed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.effects import Access, Arrive, Effect, Fence, Wait, values_of
from wsdsl.ir.op import (
    THREADS,
    Kernel,
    Makers,
    Op,
    Region,
    Value,
    effects,
    operands,
    regions,
)
from wsdsl.ir.ops import Partition
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.ir.types import BOOL, Accumulator, Fragment, MatrixDescriptor, State, Tile

Run = Callable[[Any, Any, "Instruction"], int]
"""(machine, agent, instruction) -> BLOCKED, LOCAL or SEEN."""

BLOCKED, LOCAL, SEEN = 0, 1, 2
"""Could not go on; went on, unnoticed by other agents; went on, and others may go on for it."""


@dataclass(eq=False, slots=True)
class Instruction:
    """An op, or a part of one; `uses` and `defines` are numbers of registers.

    `backward`: it jumps with `moves` and falls through with `exit_moves`, else the other way round.
    `leaves`: it always jumps.
    """

    run: Run
    op: Any
    elected: bool = False
    uses: tuple[Any, ...] = ()
    defines: tuple[int, ...] = ()
    target: int = -1
    moves: tuple[tuple[int, int], ...] = ()
    exit_moves: tuple[tuple[int, int], ...] = ()
    signature: int = -1
    backward: bool = False
    leaves: bool = False
    extra: Any = None
    effects: tuple[Effect, ...] = ()


@dataclass(eq=False)
class Code:
    """The instructions of one partition. `live[pc]`: registers that may yet be read from there."""

    instructions: list[Instruction] = field(default_factory=list[Instruction])
    slots: dict[str, int] = field(default_factory=dict[str, int])
    ring_families: list[int] = field(default_factory=list[int])
    live: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    bounds: dict[int, list[tuple[int, tuple[int, ...], set[int]]]] = field(
        default_factory=dict[int, list[tuple[int, tuple[int, ...], set[int]]]]
    )
    """Entries of the loops of each signature, the registers of their bounds, and the signatures
    of the loops around them; but for loops whose trip counts no other partition, and nothing after
    them, can observe."""
    own: set[int] = field(default_factory=set[int])
    """Signatures of loops whose trip counts no other partition can observe."""
    constant: set[int] = field(default_factory=set[int])
    """Registers that are written once, before any loop."""
    acting: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """For each instruction: the classes of threads whose knowledge may matter from there on."""

    @cached_property
    def loops(self) -> dict[int, tuple[int, int]]:
        """Where the loop with the index in each register begins, and where it ends."""
        heads = {i.defines[0]: pc for pc, i in enumerate(self.instructions) if i.signature >= 0}
        ends = {i.defines[0]: pc for pc, i in enumerate(self.instructions) if i.backward}
        return {slot: (pc, ends[slot]) for slot, pc in heads.items()}

    def slot(self, value: Value) -> int:
        return self.slots.setdefault(value.name, len(self.slots))


@dataclass(frozen=True)
class Effects:
    """Ops that other threads can notice.

    - `noticed`: ops that synchronize, access SMEM or TMEM, or define an accumulator's registers;
    - `private`: ops of these that order no other warpgroup: stores of results, through staging
      buffers;
    - `lent`: workspaces, whose accesses `split_k.py` checks;
    - `turns`: waits for semaphores of workspaces;
    - `alone`: named barriers that only one warpgroup uses.
    """

    noticed: frozenset[Op] = frozenset()
    private: frozenset[Op] = frozenset()
    lent: frozenset[str] = frozenset()
    turns: frozenset[Op] = frozenset()
    alone: frozenset[int] = frozenset()

    def has(self, op: Op) -> bool:
        return op in self.noticed and self.alone.isdisjoint(named_barriers(op))

    def shared(self, op: Op) -> bool:
        """Return whether an op may order other warpgroups."""
        return self.has(op) and op not in self.private

    def within(self, region: Region) -> bool:
        return any(map(self.has, walk(region)))

    def turn_in(self, region: Region) -> Op | None:
        """The first wait for the semaphore of a workspace."""
        return next((op for op in walk(region) if op in self.turns), None)


def _is_noticed(op: Op, made: Makers) -> bool:
    if THREADS.get(type(op)) in ("kernel", None) or regions(op):
        return False
    return isinstance(op, ops.CompleteAccumulator) or any(map(_orders, op.effects(made)))


def _orders(effect: Effect) -> bool:
    if isinstance(effect, Access):
        return effect.space != "gmem"
    return isinstance(effect, Fence) or effect.on not in ("semaphore", "grid")


def _is_private(effect: Effect) -> bool:
    match effect:
        case Access(space="smem", item=item):
            return item is not None and not isinstance(item.type, State)
        case Access(space=space):
            return space == "gmem"
        case Fence(of=of):
            return of in ("smem", "gmem")
        case Arrive(on=on) | Wait(on=on):
            return on in ("warp", "bulk")


def named_barriers(op: Op) -> range:
    """The numbers of the named barriers that an op may use."""
    return getattr(op, "numbers", range(0))


def workspaces(kernel: Kernel) -> frozenset[str]:
    return frozenset(op.result.name for op in kernel.of(ops.AllocateGlobal))


def effects_of(kernel: Kernel) -> Effects:
    lent = workspaces(kernel)
    made = kernel.definers
    noticed = frozenset(op for op in kernel.ops if _is_noticed(op, made))
    acting = ((op, [*op.effects(made)]) for op in noticed)
    private = frozenset(op for op, found in acting if found and all(map(_is_private, found)))
    turns = frozenset(op for op in kernel.ops if _signals(op, Wait, lent, made))
    return Effects(noticed, private, lent, turns, _alone(kernel, lent))


def _signals(op: Op, kind: type[Arrive | Wait], lent: frozenset[str], made: Makers) -> bool:
    """Return whether an op arrives on, or waits for, the semaphore of a workspace."""
    found = (e for e in op.effects(made) if isinstance(e, kind) and e.on == "semaphore")
    return any(e.of is not None and e.of.name in lent for e in found)


def _alone(kernel: Kernel, lent: frozenset[str]) -> frozenset[int]:
    """Named barriers of one warpgroup, all before an arrival at a workspace's semaphore."""
    found: dict[int, Op] = {}
    others: set[int] = set()
    made = kernel.definers

    def visit(region: Region, partition: Op) -> None:
        one = isinstance(partition, Partition) and partition.num_warpgroups == 1
        for op, after in zip_longest(region, region[1:]):
            if numbers := named_barriers(op):
                hands_on = after is not None and _signals(after, Arrive, lent, made)
                waits = any(isinstance(effect, Wait) for effect in op.effects(made))
                own = one and waits and getattr(op, "num_warpgroups", 0) == 1
                if not (
                    own and hands_on and found.setdefault(numbers.start, partition) is partition
                ):
                    others.update(numbers)
            for inner in regions(op):
                visit(inner, partition)

    for op in kernel.body:
        visit((op,), op)
    return frozenset(found) - others


def needed_values(kernel: Kernel, effects: Effects) -> set[str]:
    """Names of values on which synchronization depends."""
    needed: set[str] = set()
    work: list[Value] = []
    for op in kernel.ops:
        if isinstance(op, ops.Loop) and effects.within(op.body):
            work += op.bounds
        elif isinstance(op, ops.If) and effects.within((*op.then, *op.orelse)):
            work.append(op.cond)
        elif effects.has(op):
            work += _wanted(op, kernel.definers)
    while work:
        value = work.pop()
        if value.name in needed:
            continue
        needed.add(value.name)
        op = kernel.definers.get(value)
        match op:
            case None:
                pass
            case ops.Loop():
                work += op.bounds
                for place in [
                    i for held in (op.result, op.args) for i, v in enumerate(held) if v == value
                ]:
                    work += [op.init[place], yielded(op.body)[place], op.args[place]]
                    work.append(op.result[place])
            case ops.If():
                place = op.result.index(value)
                work += [op.cond, yielded(op.then)[place], yielded(op.orelse)[place]]
            case _:
                work += [v for v in operands(op) if not isinstance(v.type, Fragment)]
    return needed


def _wanted(op: Op, made: Makers) -> list[Value]:
    """Return the operands on which effects depend: neither the data, nor coordinates."""
    if not effects(type(op)):
        return [v for v in operands(op) if not isinstance(v.type, Fragment)]
    wanted = [v for v in operands(op) if isinstance(v.type, (Accumulator, MatrixDescriptor))]
    wanted += [v for v in operands(op) if v.type == Tile(BOOL)]
    for effect in op.effects(made):
        wanted += values_of(effect)
    return wanted
