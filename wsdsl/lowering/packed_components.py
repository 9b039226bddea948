"""Take neighbours along a short last dimension as one word.

Before:
    %a: bf16[s, d] = load(tensor=%X, index=(%s, %d, %0))    # of X: bf16[S, D, 2]
    %b: bf16[s, d] = load(tensor=%X, index=(%s, %d, %1))
After:
    %w: u32[s, d] = load(tensor=%X, index=(%s, %d))         # of X: u32[S, D]
    %l: u16[s, d] = cast(x=%w)
    %a: bf16[s, d] = bitcast(x=%l)
    %u: u32[s, d] = map(fn="shr", args=(%w, %16))
    %h: u16[s, d] = cast(x=%u)
    %b: bf16[s, d] = bitcast(x=%h)

Threads then load and store vectors of words. Stores of all that a word has are one, where the last
of them was.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from wsdsl.artifact.artifact import IN_WORDS, ON_ONE_AXIS
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, regions, with_fields
from wsdsl.ir.ops import Bitcast, Cast, Constant, Load, Map, Store
from wsdsl.ir.rewriter import Namer, walk, with_regions
from wsdsl.ir.types import DTYPES, Axis, DType, Tensor, Tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.one_axis import with_one_axis
from wsdsl.lowering.passes.dce import without_unused

WORDS = {16: DTYPES["u16"], 32: DTYPES["u32"]}
PARTS = {8: DTYPES["u8"], 16: DTYPES["u16"]}
Place = tuple[Value, tuple[Value | int | float | bool, ...]]
"""A word: the tensor, and the index but for its last entry, constants by their values."""


def with_words(kernel: Kernel) -> Kernel | None:
    """None where no tensor has such words, or something else is asked of those that have."""
    named = dict[Value, Value]()
    for p in kernel.params:
        if (word := _word_of(kernel, p)) is not None and isinstance(p.type, Tensor):
            named[p] = Value(p.name, Tensor(word, p.type.dims[:-1]))
    if not named:
        return None
    body = _Words(kernel, named).region(kernel.body, {})
    params = tuple(named.get(p, p) for p in kernel.params)
    return dataclasses.replace(kernel, params=params, body=without_unused(body))


def _word_of(kernel: Kernel, tensor: Value) -> DType | None:
    """Of a parameter of whose elements each access takes a known one of each word."""
    kind = tensor.type
    if not isinstance(kind, Tensor) or kind.packed or kind.dtype.bits not in PARTS:
        return None
    num = kind.dims[-1] if len(kind.dims) > 1 else 1
    if not isinstance(num, int) or num < 2 or kind.dtype.kind == "bool":
        return None
    users = [op for op in kernel.ops if tensor in operands(op)]
    if not all(_is_of_word(kernel, op) for op in users):
        return None
    whole = all(_whole_stores(kernel, r, tensor, num) for r in _all_regions(kernel))
    return WORDS.get(num * kind.dtype.bits) if whole and users else None


def _is_of_word(kernel: Kernel, op: Op) -> bool:
    if not isinstance(op, Load | Store) or len(op.index) < 2:
        return False
    which, line = kernel.definers.get(op.index[-1]), op.index[-2].type
    added = isinstance(op, Store) and op.accumulate
    blocks = isinstance(op, Load) and op.block > 1
    return isinstance(which, Constant) and isinstance(line, Axis) and not added and not blocks


def _all_regions(kernel: Kernel) -> Iterator[Region]:
    yield kernel.body
    for op in kernel.ops:
        yield from regions(op)


def _whole_stores(kernel: Kernel, region: Region, tensor: Value, parts: int) -> bool:
    """Whether a region's stores to the tensor are of whole words, and nothing else is read or
    written between the parts of one.
    """
    place: Place | None = None
    stored = set[int]()
    for op in region:
        if isinstance(op, Store) and op.tensor == tensor:
            own, which = _place(kernel, op)
            if which in stored or (place is not None and own != place):
                return False
            place, stored = own, stored | {which}
            if len(stored) == parts:
                place, stored = None, set()
        elif stored and any(tensor in operands(o) for o in walk((op,))):
            return False
    return not stored


def _place(kernel: Kernel, op: Load | Store) -> tuple[Place, int]:
    """The word, and which part of it."""
    made = (kernel.definers.get(v) for v in op.index)
    entries = zip(op.index, made, strict=True)
    known = [m.value if isinstance(m, Constant) else v for v, m in entries]
    which = known[-1]
    assert isinstance(which, int)
    return (op.tensor, tuple(known[:-1])), which


class _Words:
    def __init__(self, kernel: Kernel, named: Mapping[Value, Value]) -> None:
        self.kernel, self.named = kernel, named
        self.builder = Builder(Namer.of(kernel))
        self.parts: dict[Place, dict[int, Value]] = {}
        """Of words that are to be stored, so far."""

    def region(self, region: Region, loaded: dict[Place, Value]) -> Region:
        """`loaded`: words that are there."""
        loaded = dict(loaded)
        with self.builder.region() as ops:
            for op in region:
                self.builder.loc = op.loc
                stored = {o.tensor for o in walk((op,)) if isinstance(o, Store)}
                loaded = {place: w for place, w in loaded.items() if place[0] not in stored}
                if isinstance(op, Load) and op.tensor in self.named:
                    self.load(op, loaded)
                elif isinstance(op, Store) and op.tensor in self.named:
                    self.store(op)
                else:
                    self.builder.add(with_regions(op, lambda r, held=loaded: self.region(r, held)))
        return tuple(ops)

    def load(self, op: Load, loaded: dict[Place, Value]) -> None:
        b, (place, which) = self.builder, _place(self.kernel, op)
        kind, named = op.result.as_tile, self.named[op.tensor]
        if place not in loaded:
            made = b.value("word", Tile(named.as_tensor.dtype, kind.axes))
            new = with_fields(op, result=made, tensor=named, index=op.index[:-1])
            loaded[place] = b.add(new).result
        word, part = loaded[place], PARTS[kind.dtype.bits]
        if which:
            by = b.constant(which * part.bits, Tile(named.as_tensor.dtype))
            word = b.map("shr", word, by, type=word.type, wish="word")
        low = b.make(Cast, "part", Tile(part, kind.axes), x=word, loc=op.loc)
        b.add(Bitcast(result=op.result, x=low, loc=op.loc))

    def store(self, op: Store) -> None:
        """The word, where this is the last part of one."""
        b, (place, which) = self.builder, _place(self.kernel, op)
        held, named = self.parts.setdefault(place, {}), self.named[op.tensor]
        held[which] = op.value
        if len(held) * op.dtype.bits < named.as_tensor.dtype.bits:
            return
        del self.parts[place]
        word: Value | None = None
        for number, value in sorted(held.items()):
            wide = self.widened(value, op.dtype, named.as_tensor.dtype)
            if number:
                by = b.constant(number * op.dtype.bits, Tile(named.as_tensor.dtype))
                wide = b.map("shl", wide, by, wish="part")
            if word is None:
                word = wide
                continue
            axes = dict.fromkeys((*word.as_tile.axes, *wide.as_tile.axes))
            kind = Tile(named.as_tensor.dtype, tuple(axes))
            word = b.make(Map, "word", kind, fn="or", args=(word, wide), loc=op.loc)
        assert word is not None
        b.add(with_fields(op, tensor=named, index=op.index[:-1], value=word))

    def widened(self, value: Value, dtype: DType, word: DType) -> Value:
        """Its bits, as the tensor has them, in a word."""
        b, axes, part = self.builder, value.as_tile.axes, PARTS[dtype.bits]
        value = b.cast(value, dtype, "part", saturate=True)
        for op, kind in ((Bitcast, part), (Cast, word)):
            if value.as_tile.dtype != kind:
                value = b.add(op(result=b.value("part", Tile(kind, axes)), x=value)).result
        return value


# The vectorized variants of a kernel, by name.
FORMS: Mapping[str, Callable[[Kernel], Kernel | None]] = {
    IN_WORDS: with_words,
    ON_ONE_AXIS: with_one_axis,
}


def forms_of(kernel: Kernel) -> tuple[str, ...]:
    """Those that a text has."""
    return tuple(name for name, form in FORMS.items() if form(kernel) is not None)
