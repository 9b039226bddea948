"""`store_global`: fragments to GMEM, masked by its bounds."""

from collections.abc import Sequence

from wsdsl.codegen import fragment_registers
from wsdsl.codegen.addresses.block_access import store_blocks
from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.addresses.vector_access import WORD, partial_vectors, rare_block
from wsdsl.codegen.arithmetic.bits import REDUCTIONS, joined, pack_halves, to_bits
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import join_bytes
from wsdsl.codegen.inline_ptx import Global, add_global, st_global
from wsdsl.codegen.llvm_types import is_packed, num_elements
from wsdsl.codegen.ops.gmem import is_paired, pair_conditions
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.diagnostics import CompileError
from wsdsl.ir.ops import StoreGlobal
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.types import Tensor


def checked_value(c: Context, op: StoreGlobal) -> Registers:
    """Return the stored value after checking its dtype."""
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
        store.singles()  # The GPU has no vector additions of integers.
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
        c, w = self.c, self.c.w
        results: list[str] = []
        if self.op.pred is not None:
            results.append(c.scalar(self.op.pred).text)
        rows, columns, lanes = self.shape
        if rows == columns == 1:
            results += [one] if (one := c.one_thread()) else []
        elif columns == 1:
            results.append(w.compare("eq", fragment_registers.first_column(c, lanes), 0))
        elif rows == 1 and lanes.warps < 4:
            results.append(w.compare("eq", fragment_registers.first_row(c, lanes, 64), 0))
        return w.combine("and", results)

    def _and(self, *conditions: str | None) -> str | None:
        """Where this thread writes and the conditions hold."""
        return self.c.w.combine("and", (self.once, *conditions))

    def _source(self, element: int) -> int:
        return fragment_registers.source_element(element, self.shape, self.value.shape)

    def _write(self, at: Global, bits: int, texts: list[str], pred: str | None) -> None:
        """Write words of `bits` bits, which have an element or two."""
        if self.op.accumulate:
            dtype = self.kind.dtype
            kind = REDUCTIONS[dtype.name] + ("x2" if bits > dtype.bits else "")
            add_global(self.c.w, at, kind, bits, texts, pred)
        else:
            st_global(self.c.w, at, bits, texts, pred)

    def _texts(self) -> list[str]:
        """The bits of the elements."""
        w, value = self.c.w, self.value
        return [to_bits(w, x, self.kind.dtype) for x in fragment_registers.elements(w, value)]

    def singles(self, only: Sequence[str] = ()) -> None:
        """Store each element where `only` holds for it."""
        texts = self._texts()
        for e in range(num_elements(*self.shape)):
            pred = self._and(self.addresses.condition(e), *only[e : e + 1])
            self._write(self.addresses.at(e), self.kind.dtype.bits, [texts[self._source(e)]], pred)

    def pairs(self) -> None:
        bits, texts = self.kind.dtype.bits, self._texts()
        for e in range(0, num_elements(*self.shape), 2):
            both, first = pair_conditions(self.c, self.addresses, e)
            at = self.addresses.at(e)
            self._write(at, min(WORD, 2 * bits), self._pair(texts, e), self._and(both))
            if first is not None:
                self._write(at, bits, [texts[self._source(e)]], self._and(first))

    def vectors(self) -> None:
        """Store `vector` elements at a time, the elements of a vector that is in part outside of
        the tensor one by one.
        """
        c, vector, texts = self.c, self.op.vector, self._texts()
        for e in range(0, num_elements(*self.shape), vector):
            words = [text for i in range(0, vector, 2) for text in self._pair(texts, e + i)]
            if self.kind.dtype.bits == 8:
                words = [joined(c.w, words[i : i + 2]) for i in range(0, len(words), 2)]
            whole = self._and(self.addresses.condition(e + vector - 1))
            self._write(self.addresses.at(e), WORD, words, whole)
        some = partial_vectors(c, self.addresses, self.shape, vector)
        if some is not None:
            with rare_block(c.w, some):
                self.singles()

    def bytes(self) -> None:
        """Store bytes of two elements each: both are inside the tensor, or neither is."""
        w, value = self.c.w, self.value
        texts = value.texts
        if not is_packed(value.dtype, value.columns):
            texts = tuple(w.value(f"zext i4 {x} to i32") for x in texts)
        for e in range(0, num_elements(*self.shape), 2):
            if is_packed(value.dtype, value.columns):
                low = texts[self._source(e) // 2]
                high = w.binary("lshr", "i32", low, 12)
            else:
                low, high = (texts[self._source(e + i)] for i in (0, 1))
                high = w.binary("shl", "i32", high, 4)
            low, high = w.binary("and", "i32", low, 15), w.binary("and", "i32", high, 0xF0)
            byte = w.value(f"trunc i32 {w.binary('or', 'i32', low, high)} to i16")
            pred = self._and(self.addresses.condition(e))
            st_global(w, self.addresses.at(e), 8, [byte], pred)

    def _pair(self, texts: list[str], element: int) -> list[str]:
        """The bits of two adjacent elements: two registers of 32 bits, or one of both."""
        w, bits = self.c.w, self.kind.dtype.bits
        if bits < WORD and is_packed(self.value.dtype, self.value.columns):
            return [self.value.texts[self._source(element) // 2]]
        pair = [texts[self._source(element + i)] for i in (0, 1)]
        if bits == WORD:
            return pair
        return [join_bytes(w, *pair) if bits == 8 else pack_halves(w, "i16", *pair)]
