"""Hold tables of up to 16 bytes in registers, where an index of 4 bits reads them.

Before:
    %x: u8[n, k] = lookup(table=%T, i=%codes)
After, the loads in front of all loops:
    %t: u8 = load(tensor=%T, index=(%c0,))
    ... %word: u32 of four of them
    %x: u8[n, k] = map(fn="byte_of", args=(%codes, %word, %word_1, %word_2, %word_3))

An element then takes an instruction and a half instead of a load. An index of 4 bits lies in no
other table; what it finds behind the end of a shorter one is 0.

Why here: before anything counts instructions, or asks what is loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.tile_ops import BYTE_OF_WORDS, Bitcast, Cast, Constant, Load, Lookup, Map, Store
from wsdsl.ir.types import DTYPES, I32, DType, Tensor, Tile
from wsdsl.ir.walk import Namer, rewrite

U8, U32 = DTYPES["u8"], DTYPES["u32"]
ENTRIES, IN_WORD = 16, 4


def hold_tables(kernel: Kernel) -> Kernel:
    stored = {op.tensor for op in kernel.of(Store)}
    found = [op for op in kernel.of(Lookup) if _fits(op) and op.table not in stored]
    if not found:
        return kernel
    maker = _Maker(Namer.of(kernel))
    words = {table: maker.words(table) for table in dict.fromkeys(op.table for op in found)}

    def change(op: Op) -> Iterable[Op]:
        if not (isinstance(op, Lookup) and op in found):
            return (op,)
        kind = op.result.type
        assert isinstance(kind, Tile)
        args = (op.i, *words[op.table])
        if kind.dtype == U8:
            return (Map(result=op.result, fn="byte_of", args=args, loc=op.loc),)
        raw = Value(maker.namer.new("byte"), dataclasses.replace(kind, dtype=U8))
        byte = Map(result=raw, fn="byte_of", args=args, loc=op.loc)
        return byte, Bitcast(result=op.result, x=raw, loc=op.loc)

    body = rewrite(kernel.body, change)
    return dataclasses.replace(kernel, body=(*maker.ops, *body))


def _fits(op: Lookup) -> bool:
    table, index = op.table.type, op.i.type
    assert isinstance(table, Tensor) and isinstance(index, Tile)
    (size,) = table.dims
    return (
        isinstance(size, int)
        and size <= ENTRIES
        and table.dtype.bits == 8
        and table.dtype.name != "bool"
        and index.dtype.name == "u4"
        and bool(index.axes)
    )


class _Maker:
    """`ops`: what stands in front of the loops."""

    def __init__(self, namer: Namer) -> None:
        self.namer, self.ops = namer, list[Op]()

    def words(self, table: Value) -> tuple[Value, ...]:
        """Four entries each, the first one in the lowest bits."""
        assert isinstance(table.type, Tensor)
        (size,), dtype = table.type.dims, table.type.dtype
        assert isinstance(size, int)
        made: list[Value] = []
        for first in range(0, IN_WORD * BYTE_OF_WORDS, IN_WORD):
            word = self.constant(0, U32)
            for i, at in enumerate(range(first, min(first + IN_WORD, size))):
                word = self.map("or", word, self.entry(table, dtype, at, 8 * i))
            made.append(word)
        return tuple(made)

    def entry(self, table: Value, dtype: DType, at: int, shift: int) -> Value:
        held = self.value(dtype)
        self.ops.append(Load(result=held, tensor=table, index=(self.constant(at, I32),)))
        if dtype != U8:
            raw = self.value(U8)
            self.ops.append(Bitcast(result=raw, x=held))
            held = raw
        wide = self.value(U32)
        self.ops.append(Cast(result=wide, x=held))
        return self.map("shl", wide, self.constant(shift, U32)) if shift else wide

    def map(self, fn: str, *args: Value) -> Value:
        made = self.value(U32)
        self.ops.append(Map(result=made, fn=fn, args=args))
        return made

    def constant(self, number: int, dtype: DType) -> Value:
        made = self.value(dtype)
        self.ops.append(Constant(result=made, value=number))
        return made

    def value(self, dtype: DType) -> Value:
        return Value(self.namer.new("entry"), Tile(dtype))
