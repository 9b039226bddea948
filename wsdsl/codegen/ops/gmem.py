"""`load_global`: fragments from GMEM, masked by its bounds; prefetches."""

from wsdsl.codegen import fragment_registers
from wsdsl.codegen.addresses.block_access import load_blocks, packed_words
from wsdsl.codegen.addresses.byte_vectors import load_byte_words
from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.addresses.thread_box import TensorBox
from wsdsl.codegen.addresses.vector_access import load_vectors
from wsdsl.codegen.arithmetic.bits import from_bits, halves_of_word
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import Global, ld_global, ld_global_vector
from wsdsl.codegen.llvm_types import dtype_and_shape, is_packed, num_elements
from wsdsl.codegen.ops.smem_load import of_packed
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.ir.hardware.gmem_limits import L2_LINE
from wsdsl.ir.ops import AllocateGlobal, LoadGlobal, PrefetchTile, StoreGlobal
from wsdsl.ir.types import THREADS, Fragment


def is_paired(op: LoadGlobal | StoreGlobal, c: Context, shape: Shape) -> bool:
    """Whether the access runs along the contiguous dimension in pairs."""
    return op.vector > 1 and shape[1] > 1 and c.registers(op.index[-1]).columns > 1


def pair_conditions(
    c: Context, addresses: Addresses, element: int
) -> tuple[str | None, str | None]:
    """Both elements exist; only the first does (None: never)."""
    both, first = addresses.condition(element + 1), addresses.condition(element)
    size = c.size(addresses.kind.dims[-1]).known
    if both is None or first is None or (isinstance(size, int) and size % 2 == 0):
        return both, None
    return both, c.w.binary("and", "i1", first, c.w.binary("xor", "i1", both, "true"))


def convert_load_global(c: Context, op: LoadGlobal) -> None:
    w, kind = c.w, op.tensor.as_tensor
    dtype, shape = dtype_and_shape(op.result.type)
    if op.tensor.name in c.fragments:
        c.define(op.result, load_blocks(c, op, dtype, shape))
        return
    ahead = op.in_order and shape.columns == 1
    addresses = Addresses(c, op.tensor, op.index, shape, op.only, ahead)
    # Loads of tensors that the kernel does not write pass barriers, and ptxas hoists all of an
    # epilogue's to its start.
    constant = op.tensor.name not in c.stored and not op.in_order
    # The adjacent elements are read in the next iterations.
    row = shape.columns == 1 < shape.rows and not isinstance(op.index[-1].type, Fragment)
    bits = dtype.bits
    results: list[str] = []
    if kind.packed:
        c.values[op.result] = of_packed(c, dtype, shape, packed_words(c, op, addresses, constant))
        return
    if bits == 4:
        c.define(op.result, _load_nibbles(c, op, addresses, constant))
        return
    if op.vector > 2 and is_paired(op, c, shape):
        c.define(op.result, load_vectors(c, addresses, dtype, shape, op.vector, constant))
        return
    if (words := load_byte_words(c, op, addresses, constant)) is not None:
        c.values[op.result] = words
        return
    if is_paired(op, c, shape):
        packed: list[str] = []
        for e in range(0, num_elements(*shape), 2):
            both, first = pair_conditions(c, addresses, e)
            at, num = addresses.at(e), 1 if bits == 16 or is_packed(dtype, shape[1]) else 2
            load = w, at, 2 * bits // num, num, both, constant
            pair = ld_global_vector(*load, first=first)
            if num == 1:
                packed += pair
            else:
                results += [from_bits(w, text, dtype) for text in pair]
        if packed and is_packed(dtype, shape[1]):
            c.values[op.result] = Registers(dtype, *shape, tuple(packed))
            return
        for text in packed:
            results += halves_of_word(w, text)
    else:
        known = dict[tuple[Global, str | None], str]()
        for e in range(num_elements(*shape)):
            key = at, pred = addresses.at(e), addresses.condition(e)
            if key not in known:
                known[key] = from_bits(w, ld_global(w, at, bits, pred, constant, row), dtype)
            results.append(known[key])
    c.define(op.result, fragment_registers.from_elements(w, dtype, shape, results))


def _load_nibbles(c: Context, op: LoadGlobal, addresses: Addresses, constant: bool) -> Registers:
    """Load bytes of two elements each: both are inside the tensor, or neither is."""
    w, (dtype, shape) = c.w, dtype_and_shape(op.result.type)
    paired, texts = is_paired(op, c, shape), list[str]()
    for e in range(0, num_elements(*shape), 2 if paired else 1):
        byte = ld_global(w, addresses.at(e), 8, addresses.condition(e), constant)
        wide = w.value(f"zext i16 {byte} to i32")
        if paired:
            texts.append(w.binary("or", "i32", wide, w.binary("shl", "i32", wide, 12)))
        else:
            shift = w.binary("shl", "i32", addresses.is_high(e), 2)
            texts.append(w.value(f"trunc i32 {w.binary('lshr', 'i32', wide, shift)} to i4"))
    if paired:
        return Registers(dtype, *shape, tuple(texts))
    return fragment_registers.from_elements(w, dtype, shape, texts)


def convert_prefetch_tile(c: Context, op: PrefetchTile) -> None:
    w, coordinates = c.w, tuple(c.scalar(v).text for v in op.coordinates)
    box = TensorBox(c, op.tensor, coordinates, op.row_dim)
    per_row = -(-op.columns * box.dtype.bytes // L2_LINE)
    own = w.binary("and", "i32", c.threads.tid, THREADS - 1)
    for first in range(0, op.rows * per_row, THREADS):
        place = w.add(own, first)
        row = w.binary("udiv", "i32", place, per_row)
        along = w.multiply(w.binary("urem", "i32", place, per_row), L2_LINE // box.dtype.bytes)
        pointer, left, rows = box.at(row, along)
        there = w.compare("sgt", left, 0)
        if rows is not None:
            there = w.binary("and", "i1", there, w.compare("sgt", rows, 0))
        if first + THREADS > op.rows * per_row:
            last = w.compare("slt", place, op.rows * per_row)
            there = w.binary("and", "i1", there, last)
        w.asm("@$1 prefetch.global.L2 [$0];", [Global(pointer).operand, ("i1", there)])


def convert_allocate_global(c: Context, op: AllocateGlobal) -> None:
    """The workspace is a parameter of the kernel."""
