"""Elements that a warpgroup may have stored before: stores must not overtake each other, nor loads
them.

TMA stores are not ordered among themselves. Two stores of a tensor may meet, unless a dimension has
different numbers in them; and a store meets itself in a loop whose iterations do not each go
elsewhere. Those of the loop over the work do: they have tiles of their own. A load stands in front
of the stores of its elements (`verify_lowerable`), so that it meets them in the next iteration.

Of a loop over tiles it has to be known that they store to different elements. An index along the
axis tells tiles apart by itself. One that is computed of `end(n)` does if each tile has another
number: `end(n)`, or `(end(n) - 1) // 64` where the tiles are multiples of 64. What is read from a
tensor, and what is computed of the index of `each`, nobody can tell: there the text vouches for it.
"""

from collections.abc import Mapping
from itertools import combinations

from wsdsl.ir.op import Makers, Op, Region, Value, bound, operands, results_of
from wsdsl.ir.ops import AxisAt, Constant, End, ForTiles, Load, Lookup, Loop, Map, Store
from wsdsl.ir.rewriter import definers, made_of, walk
from wsdsl.lowering.axes import with_outer


def stored_again(body: Region, *, once: bool) -> set[Value]:
    """The tensors of which a partition may store an element twice; `once`: it has one item, and so
    no loop over the work, and the outermost loop is one of tiles, too. There rows that are read
    from a tensor differ.
    """
    if not stored_in(*body):
        return set()
    stores = [(op, at) for op, at in with_outer(body, (Loop,)) if isinstance(op, Store)]
    found = {
        op.tensor
        for op, loops in stores
        if not all(_Iterations(loop).differ(op) for loop in loops[1:])
        or (once and not all(_Iterations(loop).differ(op, read=True) for loop in loops[:1]))
    }
    for (a, _), (b, _) in combinations(stores, 2):
        if a.tensor == b.tensor and not apart(a, b, definers(body)):
            found.add(a.tensor)
    return found


def stored_in(*ops: Op) -> set[Value]:
    return {inner.tensor for inner in walk(ops) if isinstance(inner, Store)}


def read_again(body: Region) -> dict[Value, set[Value]]:
    """By the index of a loop: the tensors of which an iteration may read what one in front of it
    has stored."""
    found: dict[Value, set[Value]] = {}
    loaded = {op.tensor for op in walk(body) if isinstance(op, Load)}
    for loop, outer in with_outer(body, (Loop,)) if loaded & stored_in(*body) else ():
        if not isinstance(loop, Loop) or not outer:
            # It is the loop over the work.
            continue
        uses = [op for op in walk(loop.body) if isinstance(op, (Load, Store))]
        read = {op.tensor for op in uses if isinstance(op, Load)}
        both = read & {op.tensor for op in uses if isinstance(op, Store)}
        differ = _Iterations(loop).differ
        if met := {op.tensor for op in uses if op.tensor in both and not differ(op)}:
            found[loop.index] = met
    return found


def apart(a: Load | Store, b: Store, made: Makers) -> bool:
    """Whether a dimension has different numbers in them."""
    pairs = ((_number(x, made), _number(y, made)) for x, y in zip(a.index, b.index, strict=True))
    return any(None not in (x, y) and x != y for x, y in pairs)


def same_place(a: Load | Store, b: Store, made: Makers, alike: Mapping[Value, str]) -> bool:
    """Whether both are at the same place; loops' indices that are `alike` count as the same."""
    return all(
        x == y
        or (_number(x, made) == _number(y, made) is not None)
        or (alike.get(x) == alike.get(y) is not None)
        for x, y in zip(a.index, b.index, strict=True)
    )


def _number(value: Value, made: Makers) -> int | float | None:
    op = made.get(value)
    return op.value if isinstance(op, Constant) else None


class _Iterations:
    """What is different in each iteration of a loop."""

    def __init__(self, loop: Loop) -> None:
        self.index, self.made = loop.index, definers(loop.body)
        inside = {v for op in walk(loop.body) for v in (*results_of(op), *bound(op))}
        self.vary = inside | {loop.index, *loop.args}

    def differ(self, op: Load | Store, *, read: bool = False) -> bool:
        """Whether a load or store goes elsewhere in each; what was `read` is taken to differ."""
        ops = (x for _, x in made_of(op.index if read else (), self.made, lambda _: True))
        return any(isinstance(x, Load | Lookup) for x in ops) or any(map(self._differs, op.index))

    def _differs(self, value: Value, fns: tuple[str, ...] = ("add", "sub")) -> bool:
        if value == self.index:
            return True
        match self.made.get(value):
            case AxisAt(start=start):
                # The last tile of a dimension may end with it.
                return self._differs(start, ("add", "sub", "min"))
            case Map(fn="mul", args=args):
                numbers = [op for v in args if isinstance(op := self.made.get(v), Constant)]
                return any(op.value for op in numbers) and any(map(self._differs, args))
            case Map(fn=fn, args=args) if fn in fns:
                others = (v for v in args if not isinstance(self.made.get(v), Constant))
                varying = [v for v in others if v in self.vary]
                return len(varying) == 1 and self._differs(varying[0])
            case _:
                return False


def may_meet(store: Store, loop: ForTiles, made: Makers) -> bool:
    """Whether tiles of the loop may store to the same elements, for all that the text says."""
    if loop.index in store.index:
        return False
    ends, others = _ways(store, loop.index, made)
    unit = loop.index.as_axis.size
    return ends and not others and not any(_differs(v, unit, loop, made) for v in store.index)


def _ways(store: Store, index: Value, made: Makers) -> tuple[bool, bool]:
    """Whether an index of the store is computed of the ends of tiles, and of something else of
    them.
    """
    ends = others = False
    for _, op in made_of(store.index, made, lambda op: not isinstance(op, ForTiles)):
        if not isinstance(op, ForTiles):
            ends |= isinstance(op, End) and op.axis == index
            others |= index in operands(op) and not isinstance(op, End)
    return ends, others


def _differs(value: Value, unit: int, loop: ForTiles, made: Makers) -> bool:
    """Whether it is another number for each tile of `unit` elements; the last may have fewer."""
    match made.get(value):
        case End(axis=axis):
            return axis == loop.index
        case Map(fn="add" | "sub", args=args):
            told = [_differs(v, unit, loop, made) for v in args]
            other = args[told.index(False)] if any(told) and not all(told) else None
            return other is not None and isinstance(made.get(other), Constant)
        case Map(fn="mul", args=(a, b)):
            factor = made.get(b)
            whole = isinstance(factor, Constant) and bool(factor.value)
            return whole and _differs(a, unit, loop, made)
        case Map(fn="floordiv", args=(a, b)):
            by = made.get(b)
            divides = isinstance(by, Constant) and by.value > 0 and unit % int(by.value) == 0
            return divides and _is_last(a, loop, made)
        case _:
            return False


def _is_last(value: Value, loop: ForTiles, made: Makers) -> bool:
    """Whether it is `end(n) - 1`, the last index of the tile."""
    match made.get(value):
        case Map(fn="add" | "sub" as fn, args=(a, b)):
            end, step = made.get(a), made.get(b)
            one = isinstance(step, Constant) and step.value == (1 if fn == "sub" else -1)
            return one and isinstance(end, End) and end.axis == loop.index
        case _:
            return False
