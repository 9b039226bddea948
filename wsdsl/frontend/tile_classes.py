"""Abstract interpretation of a loop over tiles: how its values depend on the bounds of its tiles.

`element`: along the loop's axis each element depends on its index alone. `same`: the value is equal
for all tiles. `add`, `max`, `min`: a partial result of one tile, which this function combines to
the result of the axis. `so_far`: a carried variable at the start of an iteration; `so_far_add`,
...: `so_far` combined with this tile's result; `scaled`: `so_far` times a factor, perhaps with an
addend. `seen`: the value depends on the bounds in another way; `cause` is the op that causes it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from wsdsl.ir import ops
from wsdsl.ir.op import Op, Region, Value, regions
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.ir.types import DType, Tensor, Tile

REDUCTIONS = ("add", "max", "min")
SCALED = ("zero", "same", *REDUCTIONS)
"""Classes of legal addends of a scaled variable."""


@dataclass(frozen=True)
class Class:
    """The class of a value. `of`: the index of the carried variable of a `so_far_…`; `made`: the
    values that are this variable after an update.
    """

    kind: str
    of: int = -1
    cause: Op | None = field(default=None, compare=False)
    made: frozenset[Value] = field(default=frozenset(), compare=False)

    @property
    def is_known(self) -> bool:
        """Whether its elements are equal for all tile sizes."""
        return self.kind in ("zero", "same", "element")


ZERO, SAME, ELEMENT = Class("zero"), Class("same"), Class("element")


@dataclass(frozen=True)
class Escape:
    """An op at which a result depends on the tile size (`sink`), and the op that causes it (None:
    the store itself, once per tile).
    """

    sink: Op
    cause: Op | None
    certain: bool = False
    """It need not be evaluated: a value that all tiles have is added once per tile."""


class Tiling:
    """One loop over tiles, and the classes of the values in its body."""

    def __init__(self, loop: ops.ForTiles) -> None:
        self.loop, self.axis = loop, loop.index.as_axis.name
        self.held: dict[Value, Class] = {}
        stores = [op for op in walk(loop.body) if isinstance(op, ops.Store)]
        self.stored = {op.tensor for op in stores}
        self.along = {op.tensor for op in stores if loop.index in op.index}
        self.found: dict[tuple[int, int], Escape] = {}
        self.counted: list[Op] = []
        """Ops that add a value that all tiles have to a carried variable."""
        self.finished: dict[int, tuple[ops.Store, Class]] = {}
        """Stores of a variable's value after the last tile, if no later op changes it."""

    def escapes(self) -> Iterator[Escape]:
        for i, arg in enumerate(self.loop.args):
            self.held[arg] = Class("so_far", i)
        last = self.run(self.loop.body)
        for i, given in enumerate(last):
            own = given.kind.startswith("so_far") and given.of == i
            decays = given.kind == "scaled" and given.of == i
            if not own and given.kind not in ("zero", "same"):
                self.escape(self.loop, given, certain=decays or given.cause in self.counted)
        for op, given in self.finished.values():
            if given.made != last[given.of].made:
                self.escape(op, replace(given, cause=op))
        yield from self.found.values()

    def escape(self, sink: Op, given: Class | None = None, certain: bool = False) -> None:
        cause = given.cause if given else None
        self.found.setdefault((id(sink), id(cause)), Escape(sink, cause, certain))

    def of(self, value: Value) -> Class:
        """Return the class of a value; values from outside of the loop are `same`."""
        return self.held.get(value, SAME)

    def run(self, region: Region) -> tuple[Class, ...]:
        for op in region:
            match op:
                case ops.Yield():
                    pass
                case ops.Store():
                    self.store(op)
                case ops.If():
                    self.branch(op)
                case ops.ForTiles() | ops.ForEach():
                    self.inner(op)
                case ops.Whole():
                    pass
                case _:
                    made: Value = op.result  # type: ignore[attr-defined]
                    self.held[made] = self.placed(made, self.compute(op), op)
        return tuple(self.of(v) for v in yielded(region))

    def placed(self, made: Value, found: Class, op: Op) -> Class:
        """Refine a result's class by its type: with the loop's axis it is `element` or `seen`."""
        has_axis = isinstance(made.type, Tile) and self.axis in made.type.axes
        if has_axis and not found.is_known and found.kind != "seen":
            return Class("seen", cause=found.cause or op)
        if found.kind.startswith("so_far_") and not isinstance(op, ops.Cast):
            return replace(found, made=frozenset((made,)))
        return ELEMENT if has_axis and found.kind == "same" else found

    # Regions

    def branch(self, op: ops.If) -> None:
        cond = self.of(op.cond)
        if not cond.is_known:
            if op.result or any(isinstance(x, ops.Store) for x in walk((op,))):
                self.escape(op, cond)
            for region in regions(op):
                self.run(region)
            self.held.update((v, seen(cond, op)) for v in op.result)
            return
        both = zip(op.result, self.run(op.then), self.run(op.orelse))
        self.held.update((v, join(a, b, op)) for v, a, b in both)

    def inner(self, op: ops.DimLoop) -> None:
        bounds = [self.of(v) for v in (getattr(op, n, None) for n in ("start", "stop")) if v]
        classes = [self.of(v) for v in op.init]
        while True:
            self.held.update((v, _held_by(v, c)) for v, c in zip(op.args, classes))
            after = self.run(op.body)
            merged = [join(a, b, op) for a, b in zip(classes, after)]
            if merged == classes:
                break
            classes = merged
        if not all(b.is_known for b in bounds):
            # The trip count depends on the tile.
            classes = [Class("seen", cause=op) for _ in classes]
            for inside in walk(op.body):
                if isinstance(inside, ops.Store):
                    self.escape(inside, Class("seen", cause=op))
        self.held.update((v, _held_by(v, c)) for v, c in zip(op.result, classes))

    def store(self, op: ops.Store) -> None:
        index = [ELEMENT if v == self.loop.index else self.of(v) for v in op.index]
        if unknown := [i for i in index if not i.is_known]:
            return self.escape(op, unknown[0])
        value, along = self.of(op.value), ELEMENT in index
        if value.kind == "zero" or (along and value.is_known):
            return None
        if along:
            return self.escape(op, value)
        # Each tile stores to the same elements.
        if op.accumulate:
            added = value.kind == "add" and _is_linear(_dtype(op.value), _dtype(op.tensor))
            return None if added else self.escape(op, value)
        if value.kind.startswith("so_far_"):
            self.finished[id(op)] = op, value
        elif value.kind != "same":
            self.escape(op, value)
        return None

    # Values

    def compute(self, op: Op) -> Class:
        match op:
            case ops.Constant():
                return ZERO if not op.value else SAME
            case ops.Full():
                return self.of(op.value)
            case ops.Map():
                return self.map(op)
            case ops.Cast():
                return self.cast(op)
            case ops.Bitcast():
                given = self.of(op.x)
                return given if given.is_known else seen(given, op)
            case ops.Reduce():
                return self.reduce(op)
            case ops.Scan() | ops.TopK():
                before = op.before if isinstance(op, ops.TopK) else ()
                given = known([self.of(v) for v in (op.x, *before)], op)
                return seen(given, op) if op.axis == self.axis or not given.is_known else given
            case ops.ReduceBlocks():
                given = self.of(op.x)
                return given if given.is_known else seen(given, op)
            case ops.Contract():
                return self.contract(op)
            case ops.Index():
                return ELEMENT if op.axis == self.loop.index else SAME
            case ops.End() | ops.Block():
                return Class("seen", cause=op) if op.axis == self.loop.index else SAME
            case ops.Lookup():
                return self.read(op, op.table, (op.i,))
            case ops.Load():
                return self.read(op, op.tensor, op.index)
            case _:
                return SAME

    def read(self, op: Op, tensor: Value, index: Sequence[Value]) -> Class:
        classes = [ELEMENT if v == self.loop.index else self.of(v) for v in index]
        if unknown := [c for c in classes if not c.is_known]:
            return seen(unknown[0], op)
        if tensor in self.stored and not (self.loop.index in index and tensor in self.along):
            return Class("seen", cause=op)
        return ELEMENT if ELEMENT in classes else SAME

    def map(self, op: ops.Map) -> Class:
        given = [self.of(v) for v in op.args]
        if op.fn == "where" and given[0].is_known:
            return join(given[1], given[2], op) if given[0] != ELEMENT else known(given, op)
        if all(g.is_known for g in given) or any(g.kind == "seen" for g in given):
            return known(given, op)
        # Integers wrap: a maximum plus an addend is not a maximum, and a quotient is rounded.
        moved = op.fn in ("add", "sub", "neg") and {g.kind for g in given} & {"max", "min"}
        wraps = (moved or op.fn == "div") and not _dtype(op.result).is_float
        others = [g for g in given if not g.kind.startswith("so_far")]
        if op.fn in ("add", "sub") and others == [SAME]:
            self.counted.append(op)
            return Class("seen", cause=op)
        found = _scaled(op, given) or (None if wraps else _combined(op.fn, given))
        return found or known(given, op)

    def cast(self, op: ops.Cast) -> Class:
        given = self.of(op.x)
        if given.is_known or given.kind == "seen":
            return given
        source, target = _dtype(op.x), _dtype(op.result)
        if source.is_float and target.is_float:
            if given.kind == "scaled":
                return given
            in_order = given.kind.startswith(("max", "min")) and target.name != "f8e8m0"
            if target.bits <= 8 and not in_order:
                # Saturated partial results do not add up to the result; f8e8m0 converts negative
                # numbers to NaN.
                self.escape(op, given)
            return given
        # Truncation commutes with addition; extension does not.
        narrower = source.is_integer and target.is_integer and target.bits <= source.bits
        kept = narrower and not op.saturate and given.kind in ("add", "so_far", "so_far_add")
        return given if kept else seen(given, op)

    def reduce(self, op: ops.Reduce) -> Class:
        given = self.of(op.x)
        if op.axis == self.axis:
            if given.kind == "zero" and op.fn == "add":
                return ZERO
            return Class(op.fn, cause=op) if given.is_known else seen(given, op)
        return given if given.is_known or given.kind == op.fn else seen(given, op)

    def contract(self, op: ops.Contract) -> Class:
        a, b = self.of(op.a), self.of(op.b)
        kinds = {a.kind, b.kind}
        both = [v.type.axes for v in (op.a, op.b) if isinstance(v.type, Tile)]
        if all(self.axis in axes for axes in both):
            total = Class("add", cause=op) if a.is_known and b.is_known else known((a, b), op)
        elif kinds <= {"zero", "same", "element"}:
            total = known((a, b), op)
        elif kinds <= {"add", "same"} and kinds != {"add"}:
            total = a if a.kind == "add" else b
        else:
            total = seen(a if not a.is_known else b, op)
        if op.acc is None:
            return total
        added = (total, self.of(op.acc))
        return _combined("add", added) or known(added, op)


def known(given: Sequence[Class], op: Op) -> Class:
    """Return the class of an elementwise function."""
    if unknown := [g for g in given if not g.is_known]:
        return seen(next((g for g in unknown if g.kind == "seen"), unknown[0]), op)
    return ELEMENT if ELEMENT in given else SAME


def _scaled(op: ops.Map, given: Sequence[Class]) -> Class | None:
    """Return the class of a carried variable times a factor that all tiles have, or of a scaled
    variable plus an addend: the number of tiles is the number of scalings.
    """
    kinds = [g.kind for g in given]
    product = sorted(kinds[:2]) == ["same", "so_far"]
    if product and (op.fn in ("mul", "fma") or (op.fn == "div" and kinds[0] == "so_far")):
        return replace(given[kinds.index("so_far")], kind="scaled", cause=op)
    if op.fn in ("add", "sub") and kinds.count("scaled") == 1 and {*kinds} <= {"scaled", *SCALED}:
        return given[kinds.index("scaled")]
    return None


def seen(given: Class, op: Op) -> Class:
    return Class("seen", cause=given.cause or op)


def _held_by(value: Value, given: Class) -> Class:
    """Return the class of a variable that an inner loop carries, in any iteration."""
    return replace(given, made=frozenset((value,)))


def join(a: Class, b: Class, op: Op) -> Class:
    """Return the class of a value that is one of two, by a condition that all tiles share."""
    if a == b:
        return replace(a, made=a.made | b.made)
    kinds = {a.kind, b.kind}
    if kinds <= {"zero", "same", "element"}:
        return ELEMENT if "element" in kinds else SAME
    if kinds == {"zero", "add"}:
        return a if a.kind == "add" else b
    if a.of == b.of and "so_far" in kinds and all(k.startswith("so_far") for k in kinds):
        return replace(a if b.kind == "so_far" else b, made=a.made | b.made)
    return seen(a if a.cause else b, op)


def _combined(fn: str, given: Sequence[Class]) -> Class | None:
    """Return the class of a function of partial results, or of variables with partial results."""
    kinds = [g.kind for g in given]
    if fn == "fma":
        product = _combined("mul", given[:2]) if not all(g.is_known for g in given[:2]) else None
        return _combined("add", (product, given[2])) if product else None
    if fn in ("add", "sub") and set(kinds) <= {"add", "zero"}:
        return next(g for g in given if g.kind == "add")
    if fn == "neg" and kinds[0] in REDUCTIONS:
        negated = {"add": "add", "max": "min", "min": "max"}[kinds[0]]
        return Class(negated, cause=given[0].cause)
    if fn in ("mul", "div", "shl") and kinds[0] == "add" and kinds[1] == "same":
        return given[0]
    if fn == "mul" and kinds == ["same", "add"]:
        return given[1]
    if fn in ("max", "min") and set(kinds) <= {fn, "same", "zero"}:
        return next(g for g in given if g.kind == fn)
    if fn in ("add", "sub") and kinds[0] in ("max", "min") and kinds[1] in ("same", "zero"):
        return given[0]
    return _carried(fn, given)


def _carried(fn: str, given: Sequence[Class]) -> Class | None:
    """Return the class of a carried variable combined with a tile's result."""
    if fn not in ("add", "sub", "max", "min"):
        return None
    own, *others = sorted(given, key=lambda g: not g.kind.startswith("so_far"))
    fn, swapped = ("add", own is not given[0]) if fn == "sub" else (fn, False)
    allowed = {"add": ("add", "zero")}.get(fn, (fn, "same", "zero"))
    if swapped or own.kind not in ("so_far", f"so_far_{fn}"):
        return None
    if any(g.kind not in allowed for g in others):
        return None
    if fn == "add" and all(g.kind == "zero" for g in others):
        return own
    cause = next((g.cause for g in others if g.cause), None)
    return Class(f"so_far_{fn}", own.of, cause)


def _is_linear(value: DType, tensor: DType) -> bool:
    """Whether a store's conversion commutes with addition: to an integer it saturates."""
    return value == tensor or tensor.is_float


def _dtype(value: Value) -> DType:
    assert isinstance(value.type, (Tile, Tensor))
    return value.type.dtype
