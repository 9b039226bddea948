"""Hold tables of up to 16 bytes in registers, where an index of 4 bits reads them.

Before:
    %x: u8[n, k] = lookup(table=%T, i=%codes)
After, the loads in front of all loops:
    %t: u8 = load(tensor=%T, index=(%c0,))
    ... %word: u32 of four of them
    %x: u8[n, k] = map(fn="byte_of", args=(%codes, %word, %word_1, %word_2, %word_3))

An element then takes an instruction and a half instead of a load. An index of 4 bits lies in no
other table; what it finds behind the end of a shorter one is 0.

A table of up to 8 bytes whose index is cut to its lower bits takes half an instruction:
    %i: u4[n, k] = map(fn="and", args=(%codes, %c7))
    %x: u8[n, k] = lookup(table=%T, i=%i)
becomes
    %x: u8[n, k] = map(fn="byte_of_8", args=(%codes, %word, %word_1))

Why here: before anything counts instructions, or asks what is loaded.
"""

from collections.abc import Iterable

from wsdsl.ir.op import Kernel, Makers, Op, Value
from wsdsl.ir.ops import BYTE_OF_WORDS, Bitcast, Cast, Constant, Load, Lookup, Map, Store
from wsdsl.ir.rewriter import Namer, rewrite
from wsdsl.ir.types import DTYPES, DType, Tile
from wsdsl.lowering.builder import INT, Builder, with_dtype
from wsdsl.lowering.passes.dce import without_unused

U8, WORD = DTYPES["u8"], Tile(DTYPES["u32"])
LONG, SHORT = BYTE_OF_WORDS["byte_of"], BYTE_OF_WORDS["byte_of_8"]
ENTRIES, IN_WORD = 16, 4


def hold_tables(kernel: Kernel) -> Kernel:
    stored = {op.tensor for op in kernel.of(Store)}
    found = [op for op in kernel.of(Lookup) if _fits(op) and op.table not in stored]
    if not found:
        return kernel
    maker = _Maker(Namer.of(kernel))
    words = {table: maker.words(table) for table in dict.fromkeys(op.table for op in found)}
    made = kernel.definers

    def change(op: Op) -> Iterable[Op]:
        if not (isinstance(op, Lookup) and op in found):
            return (op,)
        index = _three_bits(op.i, made)
        fn = "byte_of" if index is None or len(words[op.table]) > SHORT else "byte_of_8"
        own = words[op.table] if fn == "byte_of_8" else maker.filled(words[op.table])
        args = (index if index is not None and fn == "byte_of_8" else op.i, *own)
        if op.result.as_tile.dtype == U8:
            return (Map(result=op.result, fn=fn, args=args, loc=op.loc),)
        raw = maker.value("byte", with_dtype(op.result, U8))
        byte = Map(result=raw, fn=fn, args=args, loc=op.loc)
        return byte, Bitcast(result=op.result, x=raw, loc=op.loc)

    body = rewrite(kernel.body, change)
    return kernel.with_body(without_unused((*maker.ops, *body)))


def _three_bits(index: Value, made: Makers) -> Value | None:
    """What the lower three bits of are this index."""
    op = made.get(index)
    if isinstance(op, Map) and op.fn == "and":
        for kept, other in (op.args, op.args[::-1]):
            mask = made.get(other)
            if isinstance(mask, Constant) and mask.value == 7:
                return kept
    return None


def _fits(op: Lookup) -> bool:
    table, index = op.table.as_tensor, op.i.as_tile
    (size,) = table.dims
    return (
        isinstance(size, int)
        and size <= ENTRIES
        and table.dtype.bits == 8
        and table.dtype.name != "bool"
        and index.dtype.name == "u4"
        and bool(index.axes)
    )


class _Maker(Builder):
    """`ops`: what stands in front of the loops."""

    def words(self, table: Value) -> tuple[Value, ...]:
        """Four entries each, the first one in the lowest bits."""
        (size,), dtype = table.as_tensor.dims, table.as_tensor.dtype
        assert isinstance(size, int)
        made: list[Value] = []
        for first in range(0, IN_WORD * (SHORT if size <= SHORT * IN_WORD else LONG), IN_WORD):
            word = self.constant(0, WORD, "entry")
            for i, at in enumerate(range(first, min(first + IN_WORD, size))):
                word = self.map("or", word, self.entry(table, dtype, at, 8 * i), wish="entry")
            made.append(word)
        return tuple(made)

    def filled(self, words: tuple[Value, ...]) -> tuple[Value, ...]:
        """Zeros behind those of a short table."""
        return (*words, *(self.constant(0, WORD, "entry") for _ in range(LONG - len(words))))

    def entry(self, table: Value, dtype: DType, at: int, shift: int) -> Value:
        held = self.value("entry", Tile(dtype))
        self.add(Load(result=held, tensor=table, index=(self.constant(at, INT, "entry"),)))
        if dtype != U8:
            held = self.make(Bitcast, "entry", Tile(U8), x=held)
        wide = self.make(Cast, "entry", WORD, x=held)
        if not shift:
            return wide
        return self.map("shl", wide, self.constant(shift, WORD, "entry"), wish="entry")
