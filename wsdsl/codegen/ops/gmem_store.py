"""`store_global`: fragments to GMEM, masked by its bounds."""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.codegen import fragment_registers, inline_ptx
from wsdsl.codegen.addresses.block_access import store_blocks
from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.addresses.vector_access import WORD, store_vectors
from wsdsl.codegen.arithmetic.bits import REDUCTIONS, to_bits
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import Global
from wsdsl.codegen.llvm_types import is_packed, num_elements
from wsdsl.codegen.ops.gmem import is_paired, pair_conditions
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.diagnostics import CompileError
from wsdsl.ir.ops import StoreGlobal
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.types import Tensor


def checked_value(c: Context, op: StoreGlobal) -> Registers:
    """What is stored, if it may be."""
    kind, value = op.tensor.as_tensor, c.registers(op.value)
    if value.dtype != kind.dtype:
        raise CompileError(f"WS0610 {value.dtype} cannot be stored to {kind}", op.loc, IR_HINT)
    if op.accumulate and kind.dtype.name not in REDUCTIONS:
        raise CompileError(
            f"WS0611 the GPU cannot add {kind.dtype} elements atomically",
            op.loc,
            f"accumulate in a tensor of {', '.join(REDUCTIONS)}",
        )
    return value


def convert_store_global(c: Context, op: StoreGlobal) -> None:
    kind, value = op.tensor.as_tensor, checked_value(c, op)
    if op.tensor.name in c.fragments:
        store_blocks(c, op, value)
        return
    shape = fragment_registers.broadcast_shape(
        [c.registers(v).shape for v in (op.value, *op.index)]
    )
    store = GlobalStore(c, op, value, kind, shape)
    if kind.dtype.bits == 4:
        if not is_paired(op, c, shape):
            message = f"WS0612 threads store {kind.dtype} in pairs of adjacent columns only"
            raise CompileError(message, op.loc, IR_HINT)
        store.bytes()
    elif not is_paired(op, c, shape) or (op.accumulate and kind.dtype.is_integer):
        store.singles()  # The card adds no vectors of integers.
    elif op.vector > 2:
        store.vectors()
    else:
        store.pairs()


class GlobalStore:
    def __init__(
        self, c: Context, op: StoreGlobal, value: Registers, kind: Tensor, shape: Shape
    ) -> None:
        self.c, self.op, self.value, self.kind, self.shape = c, op, value, kind, shape
        self.addresses = Addresses(c, op.tensor, op.index, shape)
        self.once = self._once()

    def _once(self) -> str | None:
        """i1: this thread writes, of those that hold the same elements; and `pred` holds."""
        c, w, threads = self.c, self.c.w, self.c.threads
        found: list[str] = []
        if self.op.pred is not None:
            found.append(c.scalar(self.op.pred).text)
        rows, columns, lanes = self.shape
        if rows == columns == 1:
            if not c.place.elected:
                inside = c.place.inside
                found.append(threads.first_thread if inside else w.compare("eq", threads.tid, 0))
        elif columns == 1:
            found.append(w.compare("eq", fragment_registers.first_column(c, lanes), 0))
        elif rows == 1 and lanes.warps < 4:
            found.append(w.compare("eq", fragment_registers.first_row(c, lanes, 64), 0))
        return self.all(*found)

    def all(self, *conditions: str | None) -> str | None:
        made: str | None = None
        for condition in conditions:
            if condition is not None:
                made = condition if made is None else self.c.w.binary("and", "i1", made, condition)
        return made

    def _source(self, element: int) -> int:
        return fragment_registers.source_element(element, self.shape, self.value.shape)

    def _write(self, at: Global, kind: str, bits: int, texts: list[str], pred: str | None) -> None:
        if self.op.accumulate:
            inline_ptx.add_global(self.c.w, at, kind, bits, texts, pred)
        else:
            inline_ptx.store_global(self.c.w, at, bits, texts, pred)

    def singles(self, only: Sequence[str] = ()) -> None:
        """`only`: where else each has to be, if that is asked."""
        w, dtype = self.c.w, self.kind.dtype
        texts = [to_bits(w, x, dtype) for x in fragment_registers.elements(w, self.value)]
        name = REDUCTIONS.get(dtype.name, "")
        for e in range(num_elements(*self.shape)):
            pred = self.all(self.once, self.addresses.condition(e), *only[e : e + 1])
            self._write(self.addresses.at(e), name, dtype.bits, [texts[self._source(e)]], pred)

    def pairs(self) -> None:
        w, dtype = self.c.w, self.kind.dtype
        name = REDUCTIONS.get(dtype.name, "")
        texts = [to_bits(w, x, dtype) for x in fragment_registers.elements(w, self.value)]
        for e in range(0, num_elements(*self.shape), 2):
            both, first = pair_conditions(self.c, self.addresses, e, self.kind)
            at = self.addresses.at(e)
            own = [texts[self._source(e)], texts[self._source(e + 1)]]
            if dtype.bits < 32:
                pair = self._packed(e, own)
                self._write(at, f"{name}x2", 2 * dtype.bits, [pair], self.all(self.once, both))
            else:
                self._write(at, name, dtype.bits, own, self.all(self.once, both))
            if first is not None:
                self._write(at, name, dtype.bits, own[:1], self.all(self.once, first))

    def vectors(self) -> None:
        """Like `pairs`, as many as `vector` says."""
        elements = fragment_registers.elements(self.c.w, self.value)
        texts = [to_bits(self.c.w, x, self.kind.dtype) for x in elements]

        def pair(e: int) -> list[str]:
            own = [texts[self._source(e)], texts[self._source(e + 1)]]
            return own if self.kind.dtype.bits == 32 else [self._packed(e, own)]

        def both(pred: str | None) -> str | None:
            return self.all(self.once, pred)

        name = REDUCTIONS.get(self.kind.dtype.name, "")
        kind = name if self.kind.dtype.bits == WORD else f"{name}x2"

        def write(at: Global, words: list[str], pred: str | None) -> None:
            self._write(at, kind, WORD, words, pred)

        how = self.op.vector, pair, both, write, self.singles
        store_vectors(self.c, self.addresses, self.shape, *how)

    def bytes(self) -> None:
        """Of two neighbours each: both exist, or neither does."""
        w, held = self.c.w, self.value
        texts = held.texts
        if not is_packed(held.dtype, held.columns):
            texts = tuple(w.value(f"zext i4 {x} to i32") for x in texts)
        for e in range(0, num_elements(*self.shape), 2):
            if is_packed(held.dtype, held.columns):
                low = texts[self._source(e) // 2]
                high = w.binary("lshr", "i32", low, 12)
            else:
                low, high = (texts[self._source(e + i)] for i in (0, 1))
                high = w.binary("shl", "i32", high, 4)
            low, high = w.binary("and", "i32", low, 15), w.binary("and", "i32", high, 0xF0)
            byte = w.value(f"trunc i32 {w.binary('or', 'i32', low, high)} to i16")
            pred = self.all(self.once, self.addresses.condition(e))
            inline_ptx.store_global(w, self.addresses.at(e), 8, [byte], pred)

    def _packed(self, element: int, own: list[str]) -> str:
        if is_packed(self.value.dtype, self.value.columns):
            return self.value.texts[self._source(element) // 2]
        w = self.c.w
        if self.kind.dtype.bits == 8:
            return fragment_registers.join_bytes(w, *own)
        pair = w.value(f"insertelement <2 x i16> poison, i16 {own[0]}, i32 0")
        pair = w.value(f"insertelement <2 x i16> {pair}, i16 {own[1]}, i32 1")
        return w.value(f"bitcast <2 x i16> {pair} to i32")
