"""Privatized SMEM bins: cleared, added to by `red.shared`, and added to memory.

The copies of a bin fill adjacent banks: with 32 copies each lane has its own bank for any bin. For
the final sum each lane begins with another copy, so that no two lanes access one bank.
"""

import math
from collections.abc import Sequence
from functools import reduce

from wsdsl.codegen import inline_ptx, nvvm
from wsdsl.codegen.addresses.gmem_addresses import wide
from wsdsl.codegen.addresses.vector_access import rare_block
from wsdsl.codegen.arithmetic.bits import REDUCTIONS, to_bits
from wsdsl.codegen.arithmetic.casts import cast
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import broadcast_shape, elements, source_element
from wsdsl.codegen.inline_ptx import At, Global
from wsdsl.codegen.llvm_types import num_elements
from wsdsl.codegen.ops.gmem_store import GlobalStore, checked_value
from wsdsl.codegen.ops.reduction import tree
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.codegen.writer import Writer
from wsdsl.ir.hardware.histogram_layout import VECTOR, WARP, WORD, counter_bytes, nothing, share_of
from wsdsl.ir.ops import AddBins, ClearBins, StoreBins, StoreGlobal
from wsdsl.ir.types import F32, THREADS, DType, Value

WARPS = 4


def convert_clear_bins(c: Context, op: ClearBins) -> None:
    w, shared = c.w, c.shared(op.shared)
    begin, end = _share(c, counter_bytes(op.extents, op.copies), op.by, VECTOR)
    thread = w.binary("and", "i32", c.threads.tid, THREADS - 1)
    own = w.add(begin, w.multiply(thread, VECTOR))
    words = [str(nothing(op.tensor.as_tensor.dtype))] * (VECTOR // WORD)
    with w.counted_loop("counters", own, end, THREADS * VECTOR) as place:
        at = At(w.add(c.item(shared, "0"), place), shared.offset)
        inline_ptx.st_shared(w, at, 32, words)


def convert_add_bins(c: Context, op: AddBins) -> None:
    w, kind, shared = c.w, op.tensor.as_tensor, c.shared(op.shared)
    direct = StoreGlobal(
        tensor=op.tensor, index=op.index, value=op.value, accumulate=True, pred=op.pred, loc=op.loc
    )
    value = checked_value(c, direct)
    shape = broadcast_shape([c.registers(v).shape for v in (op.value, *op.index)])
    store = GlobalStore(c, direct, value, kind, shape)
    word = _word(kind.dtype)
    kind_of_word = "f32" if word.is_float else "u32"
    counted = value if value.dtype == word else cast(w, value, word)
    added = [to_bits(w, x, word) for x in elements(w, counted)]
    copy = w.multiply(w.binary("and", "i32", c.threads.lane, op.copies - 1), WORD)
    base = w.add(c.item(shared, "0"), copy) if op.copies > 1 else c.item(shared, "0")
    indices = [*zip(*(_elements_of_index(c, v, shape) for v in op.index), strict=True)]
    sizes = [c.size(dim).text for dim in kind.dims]
    limits = [_least(w, size, extent) for size, extent in zip(sizes, op.extents, strict=True)]
    for e, index in enumerate(indices):
        linear = _counter(w, index, limits, op.extents, store.once)
        at = At(w.add(base, w.multiply(linear, WORD * op.copies)), shared.offset)
        text = added[source_element(e, shape, value.shape)]
        shown, args = inline_ptx.number_or_value(text)
        w.asm(f"red.shared.add.{kind_of_word} {at.ptx(0)}, {shown};", [at.operand, *args])
    beyond = [
        w.compare("ugt", size, extent)
        for size, extent in zip(sizes, op.extents, strict=True)
        if not (size.isdigit() and int(size) <= extent)
    ]
    if beyond:
        with rare_block(w, reduce(lambda a, b: w.binary("or", "i1", a, b), beyond)):
            store.singles([_any(w, "uge", index, limits) for index in indices])


def convert_store_bins(c: Context, op: StoreBins) -> None:
    w, kind, shared = c.w, op.tensor.as_tensor, c.shared(op.shared)
    begin, end = _share(c, math.prod(op.extents), op.by, WARP)
    groups = w.binary("lshr", "i32", w.add(w.binary("sub", "i32", end, begin), WARP - 1), 5)
    cta, lane = nvvm.special_register(w, "ctaid.x"), c.threads.lane
    with w.counted_loop("counters", c.threads.warp, groups, WARPS) as trip:
        # CTAs that end together begin with other lines, which L2 then adds to at the same time.
        group = w.binary("urem", "i32", w.add(trip, cta), groups)
        own = w.add(w.add(begin, w.multiply(group, WARP)), lane)
        index = _indices(w, own, op.extents)
        tests = [w.compare("ult", own, end)]
        for i, dim, extent in zip(index, kind.dims, op.extents, strict=True):
            size = c.size(dim).text
            if not (size.isdigit() and int(size) >= extent):
                tests.append(w.compare("ult", i, size))
        with w.where(reduce(lambda a, b: w.binary("and", "i1", a, b), tests)):
            total = _total(c, op, shared.offset, own)
            _add(c, kind.dtype, _address(c, op.tensor, index), total)


def _total(c: Context, op: StoreBins, offset: int, own: str) -> str:
    """Of a counter's copies, as bits."""
    w, copies = c.w, op.copies
    base = w.add(c.item(c.shared(op.shared), "0"), w.multiply(own, WORD * copies))
    first = w.binary("lshr", "i32", c.threads.lane, (WARP // copies).bit_length() - 1)
    words: list[str] = []
    for n in range(copies):
        copy = w.binary("and", "i32", w.add(first, n), copies - 1) if copies > 1 else "0"
        words.append(inline_ptx.ld_shared(w, At(w.add(base, w.multiply(copy, WORD)), offset)))
    if not op.tensor.as_tensor.dtype.is_float:
        return tree(words, lambda a, b: w.binary("add", "i32", a, b))
    floats = [w.value(f"bitcast i32 {word} to float") for word in words]
    result = tree(floats, lambda a, b: w.binary("fadd", "float", a, b))
    return w.value(f"bitcast float {result} to i32")


def _add(c: Context, dtype: DType, at: Global, total: str) -> None:
    w, word = c.w, _word(dtype)
    some = w.compare("ne", total, nothing(dtype))
    if word != dtype:
        value = Registers(F32, *Shape(1, 1), (w.value(f"bitcast i32 {total} to float"),))
        total = to_bits(w, elements(w, cast(w, value, dtype))[0], dtype)
    inline_ptx.add_global(w, at, REDUCTIONS[dtype.name], dtype.bits, [total], some)


def _counter(
    w: Writer, index: Sequence[str], limits: Sequence[str], extents: Sequence[int], once: str | None
) -> str:
    """The bin's number; elements that are not counted go to the bin after the last one, where a
    predicate would be a branch.
    """
    if len(index) == 1 and once is None:
        return w.call("llvm.umin.i32", "i32", [("i32", index[0]), ("i32", limits[0])])
    linear = index[0]
    for i, extent in zip(index[1:], extents[1:], strict=True):
        linear = w.add(w.multiply(linear, extent), i)
    beyond = _any(w, "uge", index, limits)
    if once is not None:
        beyond = w.binary("or", "i1", beyond, w.binary("xor", "i1", once, "true"))
    return w.select(beyond, "i32", str(math.prod(extents)), linear)


def _any(w: Writer, relation: str, a: Sequence[str], b: Sequence[str]) -> str:
    tests = (w.compare(relation, x, y) for x, y in zip(a, b, strict=True))
    return reduce(lambda x, y: w.binary("or", "i1", x, y), tests)


def _word(dtype: DType) -> DType:
    """The type of a bin."""
    return F32 if dtype.is_float else dtype


def _least(w: Writer, size: str, extent: int) -> str:
    if size.isdigit():
        return str(min(int(size), extent))
    return w.select(w.compare("ult", size, extent), "i32", size, str(extent))


def _indices(w: Writer, own: str, extents: Sequence[int]) -> list[str]:
    results: list[str] = []
    for extent in extents[:0:-1]:
        results.insert(0, w.binary("urem", "i32", own, extent))
        own = w.binary("udiv", "i32", own, extent)
    return [own, *results]


def _address(c: Context, tensor: Value, index: Sequence[str]) -> Global:
    w, bits = c.w, tensor.as_tensor.dtype.bits
    pointer = c.pointer(tensor).text
    for dim, i in enumerate(index):
        step = w.value(f"zext i32 {i} to i64")
        if dim < len(index) - 1:
            step = w.binary("mul", "i64", step, c.strides[tensor.name, dim])
        pointer = w.value(f"getelementptr i{bits}, ptr addrspace(1) {pointer}, i64 {step}")
    return Global(pointer)


def _share(c: Context, count: int, by: int, unit: int) -> tuple[str, str]:
    """Where the warpgroup's begins and ends."""
    w = c.w
    if by == 1:
        return "0", str(count)
    each = share_of(count, by, unit)
    begin = w.multiply(c.own_warpgroup(), each)
    begin, end = (
        w.select(w.compare("ult", x, count), "i32", x, str(count))
        for x in (begin, w.add(begin, each))
    )
    return begin, end


def _elements_of_index(c: Context, index: Value, shape: Shape) -> list[str]:
    """The index along a dimension for each element of a fragment of `shape`."""
    value = wide(c, c.values[index])
    value = value if isinstance(value, Registers) else c.registers(index)
    texts = elements(c.w, value)
    return [texts[source_element(e, shape, value.shape)] for e in range(num_elements(*shape))]
