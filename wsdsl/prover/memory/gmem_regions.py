"""Which elements of a tensor in global memory an op accesses, by which threads, and whether two ops
may come to the same ones.

A place is known by its sums (`linear.py`), in which loops' indices are terms. In the next iteration
of a loop its terms are other numbers: those of earlier ones are called `("old", loop, term)`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wsdsl.ir import effects, ops
from wsdsl.ir.analysis.tensor_accesses import is_load
from wsdsl.ir.op import Kernel, Op, Region, Value, bound, operands, regions, results_of
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.ir.types import Fragment, Tile
from wsdsl.prover.machine.carried_scalars import Formulas
from wsdsl.prover.machine.linear import WARPGROUP, Linear, Sums
from wsdsl.prover.memory.gmem_accesses import Access, Along, Further, Place, by_warpgroup

NOT_YET, OWN, WARP, ALL = -1, 0, 1, 2
"""Observers that see an access complete: none, the threads that did it (of TMA, that issued
it), by their warps, by all warpgroups of the partition."""
OLD, HELD = "old", "held"


class GlobalPlaces:
    """Finds and compares the places of one kernel. `unread`: tensors whose tiles may overlap."""

    def __init__(self, kernel: Kernel, unread: frozenset[str], written: frozenset[str]) -> None:
        self.sums, self.made = Sums(kernel), kernel.definers
        self.unread, self.written, self.differing = unread, written, by_warpgroup(kernel)
        self.formulas = Formulas(self.made, written, "grid")
        """Of what is the same in all CTAs."""
        self.held: list[tuple[Any, ...]] = []
        """Terms of indices that are not numbers, by their operands."""
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.inside: dict[Value, frozenset[Value]] = {}
        """By a loop's index: values that may differ in each iteration."""
        self.items: dict[Value, frozenset[Value]] = {}
        """By a loop's index: values computed from it."""
        self.steps: dict[Value, int] = {}
        """By how much indices grow, at the least; 0 where that is not known."""
        self.holding: dict[tuple[int, Value, bool], bool] = {}
        self.differs: dict[int, bool] = {}
        self.compared: dict[tuple[Place, Place, int], tuple[bool, bool]] = {}
        for op in kernel.ops:
            if isinstance(op, ops.Loop):
                members = list(walk(op.body))
                values = {v for o in members for v in (*results_of(o), *bound(o))}
                self.inside[op.index] = frozenset(values | {op.index, *op.args})
                self.items[op.index] = frozenset(_computed_from(op))
                step = 0 if op.claimed else self._least(self.sums.of(op.bounds[2]))
                self.steps[op.index] = max(0, step)

    def _least(self, found: Linear) -> int:
        """That it is, if that is known to be positive; else 0."""
        if not all(times > 0 and self._counts(term) for term, times in found.terms):
            return 0
        return found.number + sum(times for _, times in found.terms)

    def _is_positive(self, sum: Linear) -> bool:
        return self._least(sum) > 0

    def _counts(self, term: Any) -> bool:
        """Is it 1 at the least?"""
        match self.sums.meanings[term] if isinstance(term, int) else ():
            case (type() as register,) if issubclass(register, ops.SpecialRegister):
                return register.within is None
            case ("min" | "mul", x, y):
                return self._is_positive(x) and self._is_positive(y)
            case ("max", x, y):
                return self._is_positive(x) or self._is_positive(y)
            case ("floordiv", x, y):
                within = self.sums.meaning(y)
                at_most = within[:1] == ("min",) and x in within
                return at_most and self._is_positive(y)
            case _:
                return False

    # Finding -------------------------------------------------------------------------------------

    def access(self, op: Op) -> Access:
        """Return the access to GMEM that the effects of an op state."""
        effect = effects.accesses(op.effects(self.made), "gmem")[0]
        kind, place = effect.kind, self._place(effect)
        return Access(op, place, kind == "read", kind == "add", effect.asynchronous, effect.pred)

    def _place(self, effect: effects.Access) -> Place:
        assert effect.of is not None
        elements, tensor = effect.elements, effect.of.name
        if elements is None:
            return Place(tensor, (), None, ALL)
        if elements.extents:
            sides = zip(elements.at, elements.extents, strict=True)
            dims = tuple(Along(self.number(v, tensor), size, "box") for v, size in sides)
            return Place(tensor, dims, elements.rows, WARP)
        dims = tuple(self._along(v, tensor) for v in elements.at)
        kinds = [v.type for v in elements.at if isinstance(v.type, Fragment)]
        by_rows = [n for n, along in enumerate(dims) if along.role == "rows"]
        warps = max((k.lanes.warps for k in kinds), default=1)
        of_warps: tuple[int, int] | None = None
        if len(by_rows) == 1 and warps == 1:
            kind = next(k for k in kinds if k.rows > 1)
            of_warps = by_rows[0], kind.lanes.of_warp(kind.rows)
        return Place(tensor, dims, of_warps, _holder(kinds, warps))

    def _along(self, index: Value, tensor: str) -> Along:
        kind = index.type
        if not isinstance(kind, Fragment):
            return Along(self.number(self._kept(index), tensor), 1)
        both = kind.rows > 1 and kind.columns > 1
        role = "both" if both else "rows" if kind.rows > 1 else "columns"
        op = self.made.get(self._kept(index))
        if isinstance(op, ops.Iota) and not both:
            return Along(self.number(op.start, tensor), op.extent, role, op.apart)
        key = self._key(index)
        if key not in self.numbers:
            self.numbers[key] = len(self.held)
            self.held.append(key)
        return Along(Linear(0, (((HELD, self.numbers[key]), 1),)), None, role)

    def number(self, value: Value, tensor: str) -> Linear:
        """Where tiles overlap, the last one's beginning represents one after the others."""
        found = self.sums.of(value)
        if tensor not in self.unread:
            return found
        for term, times in found.terms:
            match self.sums.meanings[term] if isinstance(term, int) else ():
                case ("min", Linear() as x, Linear() as y):
                    of_loops = [
                        s for s in (x, y) if any(self._holds(s, o, self.items) for o in self.items)
                    ]
                    if len(of_loops) == 1:
                        return found - Linear(0, ((term, times),)) + of_loops[0].times(times)
                case _:
                    pass
        return found

    def _kept(self, index: Value) -> Value:
        """Without a choice of what is left out, which goes nowhere."""
        match self.made.get(index):
            case ops.Map(fn="where", args=(_, x, y)) if self.sums.of(y) == Linear(-1):
                return self._kept(x)
            case _:
                return index

    def _key(self, value: Value) -> tuple[Any, ...]:
        """The operands of a fragment of indices: equal for equal ones."""
        op = self.made.get(value)
        match op:
            case ops.Map() if (kept := self._kept(value)) != value:
                return self._key(kept)
            case ops.Map():
                return ("map", _element(op.result), op.fn, *map(self._key, op.args))
            case ops.Cast():
                return ("cast", _element(op.result), self._key(op.x))
            case ops.Iota():
                kind = repr(value.type)
                return ("iota", Along(self.sums.of(op.start), op.extent, kind, op.apart))
            case _ if isinstance(value.type, Fragment):
                return self._loaded_key(value, op)
            case _:
                return self._loaded_key(value, op, ("number", self.sums.of(value)))

    def _loaded_key(
        self, value: Value, op: Op | None, other: tuple[Any, ...] = ()
    ) -> tuple[Any, ...]:
        """The place that a load reads; `other` (else the value) of other ops."""
        match op:
            case Op() if is_load(op) and self.written.isdisjoint(v.name for v in operands(op)):
                tensor, *index = operands(op)
                return ("load", tensor.name, *map(self._key, index))
            case ops.LoadShared():
                first = () if op.first is None else self._key(op.first)
                where = op.shared, op.state, op.offset, op.stride
                return ("shared", *where, first, self._key(op.index))
            case ops.LoadPanels() if isinstance(value.type, Fragment) and value.type.rows == 1:
                # One line of a tile: other bytes of it are other elements.
                size = value.type.columns * value.type.dtype.bits // 8
                held = Along(Linear(op.offset), size, repr(value.type))
                return ("line", op.shared, op.state, op.swizzle, op.rows, op.start, held)
            case _:
                return other or ("value", value)

    # Iterations ----------------------------------------------------------------------------------

    def is_of_item(self, place: Place, loop: Value) -> bool:
        """Whether where it is has to do with the loop's index."""
        return any(self._holds(along.start, loop, self.items) for along in place.dims)

    def _holds(self, what: Any, loop: Value, values: Mapping[Value, frozenset[Value]]) -> bool:
        """Whether a sum, a term or what it is made of is among the loop's `values`."""
        match what:
            case Linear(terms=terms):
                return any(self._holds(term, loop, values) for term, _ in terms)
            case Value():
                return what in values[loop]
            case int():
                key = what, loop, values is self.items
                if key not in self.holding:
                    self.holding[key] = self._any(self.sums.meanings[what], loop, values)
                return self.holding[key]
            case (str(kind), Value() as owner, term) if kind == OLD:
                return owner != loop and self._holds(term, loop, values)
            case (str(kind), int(number)) if kind == HELD:
                return self._any(self.held[number], loop, values)
            case Along(start=start):
                return self._holds(start, loop, values)
            case tuple():
                return self._any(what, loop, values)  # pyright: ignore[reportUnknownArgumentType]
            case _:
                return False

    def _any(
        self, parts: tuple[Any, ...], loop: Value, values: Mapping[Value, frozenset[Value]]
    ) -> bool:
        inner = (x for x in parts if isinstance(x, (Linear, Along, Value, tuple)))
        return any(self._holds(x, loop, values) for x in inner)

    def aged(self, access: Access, loop: Value) -> Access:
        """The same in the terms of a later iteration of the loop."""
        dims = tuple(replace(x, start=self._aged(x.start, loop)) for x in access.place.dims)
        return replace(access, place=replace(access.place, dims=dims))

    def _aged(self, sum: Linear, loop: Value) -> Linear:
        made = Linear(sum.number)
        for term, times in sum.terms:
            old = (OLD, loop, term) if self._holds(term, loop, self.inside) else term
            made += Linear(0, ((old, times),))
        return made

    # Comparing -----------------------------------------------------------------------------------

    def needed(self, first: Access, second: Access, warpgroups: int) -> int:
        """The observers that must see the first one complete before the second begins."""
        a, b = first.place, second.place
        key = a, b, warpgroups
        if key not in self.compared:
            pairs = zip(a.dims, b.dims, strict=False)
            self.compared[key] = self.meet(a, b, warpgroups), any(self._apart(*x) for x in pairs)
        in_others, apart = self.compared[key]
        if in_others or apart:
            return ALL if in_others else NOT_YET
        same_warps = a.by_same_warps(b)
        if first.by_tma and second.by_tma:
            return OWN if same_warps else ALL
        if not first.by_tma and not second.by_tma and (a.dims, a.holder) == (b.dims, b.holder):
            return a.holder
        return WARP if same_warps else ALL

    def _apart(self, a: Along, b: Along, far: int = 0) -> bool:
        """Whether `b`, which is accessed later, by the warpgroup that is so `far`, is elsewhere."""
        if None in (a.extent, b.extent):
            x, y = (self.held_of(along.start) for along in (a, b))
            return self._others(x, y, far)
        assert a.extent is not None and b.extent is not None
        stride, other = (dict(x.start.terms).get(WARPGROUP, 0) for x in (a, b))
        terms = {term for x in (a, b) for term, _ in x.start.terms} - {WARPGROUP}
        if far and (stride != other or any(map(self._differs, terms))):
            return False
        further = self._further(b.start - a.start, far * stride)
        return further.apart(a.extent, b.extent) or further.interleaves(a.apart, b.apart)

    def held_of(self, what: Any) -> Any:
        """The operands of an index that is not a number."""
        match what:
            case Linear(0, ((term, 1),)):
                return self.held_of(term)
            case (str(kind), int(number)) if kind == HELD:
                return self.held[number]
            case (str(kind), Value() as loop, term) if kind == OLD:
                return self._aged_key(self.held_of(term), loop)
            case _:
                return None

    def _aged_key(self, key: Any, loop: Value) -> Any:
        """The same in the terms of a later iteration: of numbers, and of what they are read by in
        tensors that are never written. Values in SMEM, or computed, may be other ones then.
        """
        match key:
            case Linear():
                return self._aged(key, loop)
            case Along():
                return replace(key, start=self._aged(key.start, loop))
            case ("map" | "cast" | "iota" | "load" | "number", *parts):
                return (key[0], *(self._aged_key(part, loop) for part in parts))
            case str():
                return key
            case _:
                return (OLD, loop, key)

    def meet(self, a: Place, b: Place, warpgroups: int) -> bool:
        """Whether what one warpgroup accesses may be what another one does."""
        far = [n for n in range(1 - warpgroups, warpgroups) if n]
        pairs = zip(a.dims, b.dims, strict=False)
        return bool(far) and not any(all(self._apart(*x, n) for n in far) for x in pairs)

    def tells_warpgroups(self, x: Value, y: Value) -> bool:
        """Whether `x` and `y` are equal in no two warpgroups."""
        terms = dict((self.sums.of(x) - self.sums.of(y)).terms)
        return abs(terms.pop(WARPGROUP, 0)) == 1 and not any(map(self._differs, terms))

    def _further(self, more: Linear, by: int) -> Further:
        """Bounds of the distance: the index of an iteration is at the least the loop's
        step beyond an earlier one's.
        """
        number = more.number + by
        match more.terms:
            case ():
                return Further(number, number)
            case ((int(new), times), ((str(), Value() as loop, old), other)) | (
                ((str(), Value() as loop, old), other),
                (int(new), times),
            ) if new == old and times == -other and self._is_index(new, loop):
                least = number + times * self.steps[loop]
                return Further(least, None) if times > 0 else Further(None, least)
            case _:
                return Further(None, None)

    def _others(self, a: Any, b: Any, far: int) -> bool:
        """Whether indices are computed alike, of other elements: the rows of one scattered
        store differ."""
        if isinstance(a, Along) and isinstance(b, Along):
            return self._apart(a, b, far)
        if not isinstance(a, tuple) or not isinstance(b, tuple):
            return False
        x: tuple[Any, ...] = a  # pyright: ignore[reportUnknownVariableType]
        y: tuple[Any, ...] = b  # pyright: ignore[reportUnknownVariableType]
        pairs = zip(x, y, strict=False)
        # One by one: numbers next to places are not terms.
        differ = [(p, q) for p, q in pairs if p != q or (far and self._differs((p,)))]
        return len(x) == len(y) and bool(differ) and all(self._others(*z, far) for z in differ)

    def _differs(self, what: Any) -> bool:
        """Whether the same text may be another value in another warpgroup."""
        match what:
            case Along(start=start):
                return self._differs(start)
            case Linear(terms=terms):
                return any(self._differs(term) for term, _ in terms)
            case Value():
                return what in self.differing or isinstance(what.type, Fragment)
            case int():
                # Meanings are made of each other: once each, and not once for each way to them.
                if what not in self.differs:
                    self.differs[what] = self._differs(self.sums.meanings[what])
                return self.differs[what]
            case (str(kind), int(number)) if kind == HELD:
                return self._differs(self.held[number])
            case tuple():
                return any(
                    isinstance(x, Linear | Along | Value | tuple) and self._differs(x) for x in what
                )  # pyright: ignore[reportUnknownVariableType]
            case _:
                return what == WARPGROUP

    def _is_index(self, term: int, loop: Value) -> bool:
        return self.sums.meanings[term] == ("value", loop) and self.steps[loop] > 0


def _holder(kinds: Sequence[Fragment], warps: int) -> int:
    """The threads that access an element: one thread, threads of one warp, or others too."""
    rows, columns = (any(getattr(k, x) > 1 for k in kinds) for x in ("rows", "columns"))
    if columns and (rows or warps == 4):
        return OWN
    return WARP if rows and warps == 1 else ALL


def _computed_from(loop: ops.Loop) -> set[Value]:
    """Values computed of the loop's index and carried variables; inner loops' indices only if they
    begin at such values.
    """
    found = {loop.index, *loop.args}

    def visit(region: Region) -> None:
        for op in region:
            used = operands(op)
            if isinstance(op, ops.Loop):
                used = op.init
                found.update([op.index] if op.bounds[0] in found else [])
                found.update(x for x, first in zip(op.args, op.init, strict=True) if first in found)
            for inner in regions(op):
                visit(inner)
                used = (*used, *yielded(inner))
            if any(v in found for v in used):
                found.update(results_of(op))

    visit(loop.body)
    return found


def _element(value: Value) -> str:
    kind = value.type
    return kind.dtype.name if isinstance(kind, Fragment | Tile) else repr(kind)
