"""From ops with regions to straight code with jumps."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, TypeVar

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import is_load
from wsdsl.ir.effects import Access
from wsdsl.ir.op import Kernel, Op, Region, Value, attributes_of, in_family, operands, results_of
from wsdsl.ir.ops import Partition
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.ir.types import Accumulator, Sizes
from wsdsl.ir.verify.threads import misplaced
from wsdsl.prover.machine import control_flow
from wsdsl.prover.machine.carried_scalars import Ahead, Formulas
from wsdsl.prover.machine.instructions import Code, Effects, Instruction, named_barriers
from wsdsl.prover.machine.iterations import loop_places
from wsdsl.prover.machine.machine import ALL, ELECTED, union
from wsdsl.prover.machine.model import Model
from wsdsl.prover.machine.op_handlers import HANDLERS

T = TypeVar("T")

SCALARS = (ops.Constant, ops.DimSize, ops.Map)
WGMMA = in_family("wgmma")


def model_of(kernel: Kernel, sizes: Sizes | None = None) -> Model:
    """The kernel made ready, with the code of each of its partitions."""
    made, places = _flattened(kernel, sizes, {})
    if places:
        made, _ = _flattened(kernel, sizes, places)
    return made


def _flattened(
    kernel: Kernel, sizes: Sizes | None, places: Mapping[int, int]
) -> tuple[Model, dict[int, int]]:
    """With loops that are told apart by `places`; and what these should be."""
    model = Model(kernel, sizes)
    signatures, changes = dict[Any, int](), model.written | model.effects.lent
    formulas = Formulas(kernel.definers, changes, "cluster" if len(model.ctas) > 1 else "cta")
    loops = list[Mapping[Any, list[tuple[ops.Loop, Region]]]]()
    for number, partition in enumerate(model.partitions or (None,)):
        flattener = Flattener(partition, model, signatures, formulas, number, places)
        model.codes.append(flattener.flatten(kernel.body))
        loops.append(flattener.loops)
        if flattener.work:
            model.work[number] = flattener.work
    return model, loop_places(loops)


class Flattener:
    """Makes the code of one partition."""

    def __init__(
        self,
        partition: Partition | None,
        model: Model,
        signatures: dict[Any, int],
        formulas: Formulas,
        number: int,
        places: Mapping[int, int],
    ) -> None:
        self.partition, self.signatures, self.formulas = partition, signatures, formulas
        self.number, self.places, self.made = number, places, model.kernel.definers
        self.loops: dict[Any, list[tuple[ops.Loop, Region]]] = {}
        self.block: Region = ()
        others = [x for p in model.partitions if p is not partition for x in p.body]
        self.meets_others = {x for op in walk(tuple(others)) for x in named_barriers(op)}
        self.around: list[ops.Loop] = []
        self.needed, self.effects, self.written = model.needed, model.effects, model.written
        self.work: tuple[int, int, int] | None = None
        self.arrival = 0
        self.code = Code()
        self.shapes: dict[str, Any] = {}

    def flatten(self, body: Region) -> Code:
        self._region(body, elected=False, inside=False)
        self._add(Instruction(control_flow.end, body[-1]))
        code = self.code
        code.live = liveness(code)
        code.acting = acting_classes(code, self.effects)
        return code

    def _add(self, instruction: Instruction) -> Instruction:
        self.code.instructions.append(instruction)
        return instruction

    def _here(self) -> int:
        return len(self.code.instructions)

    def _slots(self, values: Sequence[Value]) -> tuple[int, ...]:
        return tuple(self.code.slot(v) for v in values)

    def _needed(self, values: Sequence[Value]) -> list[int]:
        return [i for i, v in enumerate(values) if v.name in self.needed]

    def _moves(self, to: Sequence[Value], of: Sequence[Value]) -> tuple[tuple[int, int], ...]:
        return tuple((self.code.slot(to[i]), self.code.slot(of[i])) for i in self._needed(to))

    def _region(self, region: Region, elected: bool, inside: bool) -> None:
        outer = self.block
        for op in self._scalars_first(region):
            self.block = region
            if not isinstance(op, Partition):
                self._op(op, elected, inside)
            elif op is self.partition:
                self._region(op.body, elected, True)
        self.block = outer

    def _scalars_first(self, region: Region) -> Iterable[Op]:
        """No agent notices when they are computed; before a wait, fewer tests are open after it. So
        whether sums were written is checked at once: no state has to hold why not."""
        early, late, made_late = list[Op](), list[Op](), set[str]()
        behind: dict[str, list[Op]] = {}
        for op in region:
            uses = {v.name for v in operands(op)}
            loads = is_load(op) and self.written.isdisjoint(uses)
            if (loads or isinstance(op, SCALARS)) and made_late.isdisjoint(uses):
                early.append(op)
                continue
            made_late.update(v.name for v in results_of(op))
            x = op.x.name if isinstance(op, ops.CompleteAccumulator) else ""
            conditions = uses - {x}
            if x in behind and conditions and made_late.isdisjoint(conditions):
                behind[x].append(op)
            else:
                late.append(op)
                behind |= {v.name: [] for v in results_of(op)}
        made = ((op, *chain(*(behind[v.name] for v in results_of(op)))) for op in late)
        return chain(early, *made)

    def _op(self, op: Op, elected: bool, inside: bool) -> None:
        if misplaced(op, elected)[0] and self.effects.within((op,)):
            self._add(Instruction(control_flow.misuse, op, elected))
            return
        match op:
            case ops.Elect():
                if self.effects.within(op.body):
                    skip = self._add(Instruction(control_flow.elect, op, elected, extra=inside))
                    self._region(op.body, True, inside)
                    skip.target = self._here()
            case ops.Loop():
                self._loop(op, elected, inside)
            case ops.If():
                self._branch(op, elected, inside)
            case ops.Yield():
                pass
            case ops.SemaphoreArrive() if op.wrap is not None and not self.effects.has(op):
                self.arrival = self.arrival or self._here()
            case _:
                noticed = self.effects.has(op) or self.effects.turn_in((op,)) is not None
                if noticed or any(r.name in self.needed for r in results_of(op)):
                    self._simple(op, elected)

    def _simple(self, op: Op, elected: bool) -> None:
        run = HANDLERS.get(type(op))
        if run is None:
            run = control_flow.unknown
        if results_of(op) and op not in self.effects.noticed:
            self.shapes[results_of(op)[0].name] = self._shape_of(op)
        wanted = [v for v in operands(op) if v.name in self.needed or v.name in self.code.slots]
        uses = {v.name: self.code.slot(v) for v in wanted}
        defines = self._slots(results_of(op))
        if not self.around:
            self.code.constant.update(defines)
        effects = tuple(op.effects(self.made))
        self._add(
            Instruction(run, op, elected, (*uses.values(),), defines, extra=uses, effects=effects)
        )

    def _shape_of(self, op: Op) -> Any:
        """A scalar's formula, the same in all iterations, to compare loops."""
        if not isinstance(op, SCALARS):
            return type(op).__name__
        of = (self.shapes.get(v.name, v.name) for v in operands(op))
        shape = (type(op).__name__, *map(repr, attributes_of(op)), *of)
        # A number is as small for a value with several uses as for one with a single use.
        return self.signatures.setdefault(shape, len(self.signatures))

    def _loop(self, op: ops.Loop, elected: bool, inside: bool) -> None:
        carries = self._needed(op.result) or self._needed(op.args)
        if not self.effects.within(op.body) and not carries:
            return
        shape = tuple(self.shapes.get(v.name, v.name) for v in op.bounds)
        told = bool(carries) or any(map(self.effects.shared, walk(op.body)))
        # Which of equal loops is meant is told by how many were before it: of those that all of
        # them run who have to agree.
        kin = (op.index.name,)
        if told:
            counts = carries and not all(isinstance(v.type, Accumulator) for v in op.args)
            kin = () if counts or self._concerns_other_partitions(op.body) else (self.number,)
        if not kin:
            self.loops.setdefault(shape, []).append((op, self.block))
        place = self.places.get(id(op))
        signature = self.signatures.setdefault((shape, kin, place), len(self.signatures))
        if kin:
            self.code.own.add(signature)
        self.shapes[op.index.name] = ("index", signature)
        self.shapes |= {v.name: "Loop" for v in (*op.args, *op.result)}
        slots = self._slots(op.bounds)
        index = (self.code.slot(op.index),)
        ahead = Ahead(op, self.made)
        kept = [n for n in range(len(op.args)) if n not in ahead.ops]
        args = [op.args[n] for n in kept]
        enter = self._add(
            Instruction(
                control_flow.loop_enter,
                op,
                elected,
                slots,
                index,
                moves=self._moves(args, [op.init[n] for n in kept]),
                exit_moves=self._moves(op.result, op.init),
                signature=signature,
                extra=(*kin, place),
            )
        )
        first = self._here()
        if told:
            around = {self.shapes[loop.index.name][1] for loop in self.around}
            self.code.bounds.setdefault(signature, []).append((first - 1, slots, around))
        for n in ahead.ops.keys() & self._needed(op.args):
            self._made_ahead(ahead, n, elected)
        self.around.append(op)
        self._region(op.body, elected, inside)
        self.around.pop()
        handed = yielded(op.body)
        numbers = self.formulas.carried(op, self.around)
        carried = tuple(
            tuple(
                (self.code.slot(held[n]), number)
                for n, number in numbers
                if held[n].name in self.needed and n in kept
            )
            for held in (op.args, op.result)
        )
        self._add(
            Instruction(
                control_flow.loop_back,
                op,
                elected,
                slots,
                index,
                first,
                backward=True,
                moves=self._moves(args, [handed[n] for n in kept]),
                exit_moves=self._moves(op.result, handed),
                extra=carried,
            )
        )
        enter.target = self._here()
        if not self.around and self.effects.turn_in(op.body) is not None:
            self.work = first - 1, self._here(), self.arrival

    def _made_ahead(self, ahead: Ahead, n: int, elected: bool) -> None:
        """Load where an iteration begins what the one before has loaded for it."""
        loop = ahead.loop
        for op in ahead.ops[n]:
            names = {v.name: loop.index if v in ahead.next else v for v in operands(op)}
            uses = {
                name: self.code.slot(v) for name, v in names.items() if v.name in self.code.slots
            }
            made = self._slots([loop.args[n]] if op is ahead.ops[n][-1] else results_of(op))
            self._add(
                Instruction(HANDLERS[type(op)], op, elected, (*uses.values(),), made, extra=uses)
            )

    def _concerns_other_partitions(self, body: Region) -> bool:
        """wgmma, and accesses of threads, do not: no other partition runs such a loop."""
        barriers = {number for op in walk(body) for number in named_barriers(op)}
        others = [op for op in walk(body) if not (named_barriers(op) or isinstance(op, WGMMA))]
        found = (e for op in others if self.effects.shared(op) for e in op.effects(self.made))
        seen = any(not isinstance(e, Access) or e.asynchronous for e in found)
        return seen or not barriers.isdisjoint(self.meets_others)

    def _branch(self, op: ops.If, elected: bool, inside: bool) -> None:
        both = (*op.then, *op.orelse)
        if not self.effects.within(both) and not self._needed(op.result):
            turn = self.effects.turn_in(both)
            if turn is not None:
                # An agent that does not wait may still be slow.
                self._simple(turn, elected)
            return
        cond = self._slots((op.cond,))
        self.shapes |= {v.name: "If" for v in op.result}
        test = self._add(Instruction(control_flow.branch, op, elected, cond))
        self._region(op.then, elected, inside)
        leave = self._leave(op, op.then)
        test.target = self._here()
        self._region(op.orelse, elected, inside)
        last = self._leave(op, op.orelse)
        leave.target = last.target = self._here()

    def _leave(self, op: ops.If, region: Region) -> Instruction:
        moves = self._moves(op.result, yielded(region))
        return self._add(Instruction(control_flow.jump, op, moves=moves, leaves=True))


def liveness(code: Code) -> list[tuple[int, ...]]:
    """Registers that may be read from each instruction on."""
    instructions = code.instructions
    # Sets of registers are the bits of a number.
    steps: list[tuple[int, int, int, int, int]] = []
    for i in instructions:
        # A loop's head moves to its arguments and falls into its body, its end goes back there.
        falls, jumps = (i.exit_moves, i.moves) if i.backward else (i.moves, i.exit_moves)
        falling = 0 if i.leaves else ~_bits(to for to, _ in falls)
        jumping = ~_bits(to for to, _ in (i.moves if i.leaves else jumps))
        read = _bits(u for u in i.uses if u is not None)
        read |= _bits(of for _, of in (*i.moves, *i.exit_moves))
        steps.append((falling, i.target, jumping, ~_bits(i.defines), read))
    live = [0] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for pc in range(len(instructions) - 1, -1, -1):
            falling, target, jumping, kept, read = steps[pc]
            before = live[pc + 1] & falling
            if target >= 0:
                before |= live[target] & jumping
            before = before & kept | read
            if before != live[pc]:
                live[pc] = before
                changed = True
    return [tuple(k for k in range(held.bit_length()) if held >> k & 1) for held in live]


def _bits(slots: Iterable[int]) -> int:
    return union(1 << slot for slot in slots)


def acting_classes(code: Code, effects: Effects) -> list[tuple[int, ...]]:
    """One thread acts where all that is left to do is its own: a loop's body cannot widen it."""

    def widest(known: tuple[int, ...], i: Instruction) -> tuple[int, ...]:
        effect = i.op in effects.noticed or is_load(i.op)
        own = i.elected or any(getattr(e, "on", "") == "registers" for e in i.effects)
        return ALL if effect and not own else known

    return [*of_rest(code, ELECTED, widest)[:-1], ()]


def of_rest(code: Code, last: T, before: Callable[[T, Instruction], T]) -> list[T]:
    """Values of the code from each instruction on, and of its end; `before` adds an instruction."""
    made = [*accumulate(reversed(code.instructions), before, initial=last)][::-1]
    # A loop may repeat, from its start, all that its body does later.
    for pc, i in enumerate(code.instructions):
        if 0 <= i.target < pc:
            made[i.target : pc + 1] = [made[i.target]] * (pc + 1 - i.target)
    return made
