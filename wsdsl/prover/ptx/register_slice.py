"""The registers of PTX that say where and in which phase a thread synchronizes: those that
addresses and parities are made of, and nothing else.

Some are the same however a thread came there (`Statics`); the others are run along with it, each in
a stage (`Slice`). One that depends on arguments or memory is unknown.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from wsdsl.prover.ptx.register_values import ADDRESS, Computed, Definition, Values, computed
from wsdsl.reachability import reached

Known = int | None
Vector = Known | list[Known]
"""The value of a register: the same in all threads, or one value for each."""
UNREAD = ("ld", "atom", "elect", "activemask")


def split_address(text: str) -> tuple[str, int]:
    """The register and the number of `[register+number]`; of a predicate, without its sign."""
    found = ADDRESS.search(text)
    return (found[1], int(found[2] or 0)) if found else (text.removeprefix("!"), 0)


def read(d: Definition) -> list[str]:
    """The registers and numbers that a definition reads."""
    if d.op == "vector" or d.op.startswith(UNREAD):
        return []
    return [*d.args, *([d.guard.removeprefix("!")] if d.guard else [])]


class Statics:
    """Values of registers with one definition in the threads of the CTA with this rank; where that
    is None, all that depends on the rank is unknown."""

    def __init__(self, values: Values, num_threads: int, rank: int | None = None) -> None:
        self.values, self.num_threads = values, num_threads
        self.found: dict[str, Vector] = {
            "%tid.x": list(range(num_threads)),
            "%cluster_ctarank": rank,
        }

    def of(self, name: str) -> Vector:
        if name not in self.found:
            self.found[name] = None
            made = self.values.defined.get(name, [])
            if len(made) == 1 and not made[0].guard:
                self.found[name] = self._made(made[0])
        return self.found[name]

    def operand(self, text: str, at: int) -> Vector:
        name = self.values.name(text, at)
        if name in self.values.defined and not self.values.definitions(text, at):
            return None
        value = self.values.constant_at(text, at)
        return self.of(name) if value is None else value

    def _made(self, d: Definition) -> Vector:
        args = [self.operand(text, d.at) for text in read(d)]
        if d.op.startswith("shfl.sync.idx"):
            of, lane = args[:2]
            if not isinstance(of, list):
                return of
            if not isinstance(lane, int) or lane > 31:
                return None
            return [of[t // 32 * 32 + lane] for t in range(self.num_threads)]
        if not any(isinstance(arg, list) for arg in args):
            return result(d, [arg for arg in args if not isinstance(arg, list)], computed(d.op))
        columns = [arg if isinstance(arg, list) else [arg] * self.num_threads for arg in args]
        of = computed(d.op)
        if of is not None and not d.op.startswith("selp") and not any(None in x for x in columns):
            return list(map(of, zip(*columns, strict=True)))  # type: ignore[arg-type]
        return [result(d, each, of) for each in zip(*columns, strict=True)]

    def having(self, text: str, number: int, at: int) -> int:
        """The threads, as bits, in which an operand that is known in each is this number."""
        found = self.operand(text, at)
        assert isinstance(found, list)
        return sum(1 << t for t, x in enumerate(found) if x == number)

    def threads(self, guard: str, at: int) -> tuple[int, int]:
        """For which threads, as bits, `%p` or `!%p` may hold, and for which it does."""
        everybody = -1
        if not guard:
            return everybody, everybody
        found, wanted = self.operand(guard.removeprefix("!"), at), guard[0] != "!"
        if not isinstance(found, list):
            may = found is None or bool(found) == wanted
            return everybody * may, everybody * (may and found is not None)
        bits = [str(int(x is None or bool(x) == wanted)) for x in reversed(found)]
        sure = [str(int(x is not None and bool(x) == wanted)) for x in reversed(found)]
        may, must = int("".join(bits), 2), int("".join(sure), 2)
        every = (1 << self.num_threads) - 1
        return everybody if may == every else may, everybody if must == every else must


class Slice:
    """`asked`: the operands that must be known, with their places in the text."""

    def __init__(self, values: Values, asked: Iterable[tuple[str, int]], fixed: Statics) -> None:
        self.values = values
        todo = [(split_address(text)[0], at) for text, at in asked]
        names = dict[str, None]()
        while todo:
            text, at = todo.pop()
            name = values.name(text, at)
            if name in names or values.constant_at(text, at) is not None:
                continue
            names[name] = None
            for d in values.defined.get(name, ()):
                todo += [(arg, d.at) for arg in read(d)]
        self.definitions = {
            name: [self._plain(d) for d in values.defined.get(name, [])] for name in names
        }
        self.slots = {name: i for i, name in enumerate(sorted(self._moving(fixed)))}

    def _plain(self, d: Definition) -> Definition:
        """LLVM begins a register at zero as a copy of another that is zero there, and has nothing
        to do with it."""
        if d.op.startswith("mov.") and self.values.constant(d.args[0]) is None:
            made = self.values.definitions(d.args[0], d.at)
            plain = len(made) == 1 and made[0].op.startswith("mov.") and not made[0].guard
            if plain and self.values.constant(made[0].args[0]) is not None:
                return replace(d, operands=made[0].operands)
        return d

    def _moving(self, fixed: Statics) -> set[str]:
        """Registers with several definitions, an unknown choice, or such an operand."""
        readers: dict[str, set[str]] = {}
        todo = list[str]()
        for name, made in self.definitions.items():
            if len(made) > 1 or any(d.guard for d in made):
                todo.append(name)
            for d in made:
                if d.op.startswith("selp") and fixed.operand(d.args[2], d.at) is None:
                    todo.append(self.values.name(d.args[2], d.at))
                for arg in read(d):
                    readers.setdefault(self.values.name(arg, d.at), set()).add(name)
        return {*reached(todo, lambda name: readers.get(name, ()))}

    def steps(self) -> Iterator[tuple[int, Definition]]:
        return ((slot, d) for name, slot in self.slots.items() for d in self.definitions[name])

    def slot(self, text: str, at: int) -> int | None:
        register = split_address(text)[0]
        if self.values.constant_at(register, at) is not None:
            return None
        return self.slots.get(self.values.name(register, at))

    def reads(self, d: Definition) -> list[int]:
        found = (self.slot(arg, d.at) for arg in read(d))
        return [slot for slot in found if slot is not None]


def result(d: Definition, args: Sequence[Known], of: Computed | None) -> Known:
    """`of`: the function of the instruction."""
    if not args or d.op.startswith("shfl"):
        return None
    if d.op.startswith("selp"):
        return None if args[2] is None else args[0] if args[2] else args[1]
    if d.op.endswith(".pred") and len(args) == 2:
        # One side may decide, for all values of the other.
        decides = {"and.pred": 0, "or.pred": 1}.get(d.op)
        if decides is not None and decides in args:
            return decides
    return None if of is None or None in args else of(args)  # type: ignore[arg-type]
