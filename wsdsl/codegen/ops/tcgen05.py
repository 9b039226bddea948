"""Tensor memory in PTX: allocation, MMAs, commits, loads and fences (tcgen05).

MMAs and commits are in branches on `elect.sync`: under any other condition ptxas issues them for
each active thread of the warp, one after another.
"""

from itertools import islice, product

from wsdsl.codegen.addresses.smem_addresses import item_at, placed
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At, ld_shared, operands
from wsdsl.codegen.llvm_types import register_type
from wsdsl.codegen.ops.wgmma import check_descriptor
from wsdsl.codegen.value_registers import ColumnsAt, Descriptor, Registers, SharedAt
from wsdsl.codegen.writer import Operand
from wsdsl.ir import ops
from wsdsl.ir.analysis.smem_descriptors import ATOM, VERSION
from wsdsl.ir.analysis.tcgen05_instructions import STORED, at_once, instructions, stored_shape
from wsdsl.ir.hardware import block_scale_factors as s
from wsdsl.ir.hardware.scale_factor_atoms import BYTES
from wsdsl.ir.hardware.scale_factor_atoms import ROWS as ATOM_ROWS
from wsdsl.ir.types import ACCUMULATOR, Accumulator, Columns, TensorMemory, Value

LANE, WARP_LANES = 16, 21
"""Where an address has its lane, and the number of its quarter."""


def convert_tcgen05_alloc(c: Context, op: ops.Tcgen05Alloc) -> None:
    at, columns = At(c.smem, placed(op)), op.result.type_as(TensorMemory).columns
    c.values[op.result] = SharedAt(placed(op), 4, 1, "tensor memory", columns)
    with c.w.where(_is_first_warp(c)):
        group = f"cta_group::{op.cta_group}"
        ptx = f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 {at.ptx(0)}, "
        c.w.asm(f"{ptx}{columns};", [at.operand])
        c.w.asm(f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned;")


def convert_tcgen05_dealloc(c: Context, op: ops.Tcgen05Dealloc) -> None:
    value = c.shared(op.memory)
    with c.w.where(_is_first_warp(c)):
        base = ld_shared(c.w, At(c.smem, value.offset))
        ptx = f"tcgen05.dealloc.cta_group::{op.cta_group}.sync.aligned.b32 $0, {value.arrivals};"
        c.w.asm(ptx, [("i32", base)])


def _is_first_warp(c: Context) -> str:
    """Of the CTA, all of it."""
    first = c.w.binary("or", "i32", c.threads.warp, c.threads.warpgroup)
    return c.w.compare("eq", first, 0)


def convert_tmem_columns(c: Context, op: ops.TmemColumns) -> None:
    base = ld_shared(c.w, At(c.smem, c.shared(op.memory).offset))
    kind = op.result.type_as(Columns)
    c.values[op.result] = ColumnsAt(c.w.add(base, op.first), kind.columns, kind.num)


def _address(c: Context, sums: Value, state: Value, column: int) -> str:
    value = c.columns(sums)
    stage = "0" if value.num == 1 else c.state(state).stage
    item = value.base if value.num == 1 else c.w.add(value.base, c.w.multiply(stage, value.columns))
    return c.w.add(item, column)


def convert_tcgen05_mma(c: Context, op: ops.Tcgen05Mma) -> None:
    """Each instruction takes 32 bytes of a line; none waits for another. Descriptors hold in both
    CTAs of a pair.
    """
    issued = instructions(op)
    steps = len(issued)
    a, b = None if op.a_state else c.descriptor(op.a), c.descriptor(op.b)
    sides = [(b, op.b_k_major), *([] if a is None else [(a, op.a_k_major)])]
    for value, k_major in sides:
        check_descriptor(value, k_major, steps, op)
    address = _address(c, op.sums, op.state, op.column)
    lines = [
        ".reg .b32 la, lb, ha, hb, how, sa, sb;",
        ".reg .b64 a, b;",
        *([] if a is None else [f"mov.b32 ha, {_high(a)};"]),
        f"mov.b32 hb, {_high(b)};",
    ]
    low = a.low if a is not None else _address(c, op.a, op.a_state or op.state, op.a_column)
    args: list[Operand] = [("i32", x) for x in (address, low, b.low)]
    if op.scales is not None and op.scale_state is not None:
        args.append(("i32", _address(c, op.scales, op.scale_state, 0)))
    accumulate = c.scalar(op.accumulate).text
    first = {"true": "1", "false": "0"}.get(accumulate, f"${len(args)}")
    for i, result in enumerate(issued):
        scales = (result.a_scale, result.b_scale) if result.is_scaled else ()
        lines += [
            f"add.s32 la, $1, {a.steps[i] if a is not None else i * op.a_columns // steps};",
            *([] if a is None else ["mov.b64 a, {la, ha};"]),
            f"add.s32 lb, $2, {b.steps[i]};",
            "mov.b64 b, {lb, hb};",
            f"mov.b32 how, {result.descriptor};",
            *(f"add.s32 {name}, $3, {at};" for name, at in zip(("sa", "sb"), scales, strict=False)),
        ]
        shown = ", [sa], [sb]" if scales else ""
        left = "[la]" if a is None else "a"
        group = f"cta_group::{op.cta_group}.kind::{result.kind}"
        ptx = f"tcgen05.mma.{group} [$0], {left}, b, how{shown}"
        lines.append(f"{ptx}, {first if i == 0 else 1};")
    if first[0] == "$":
        args.append(("i1", accumulate))
    c.w.asm("{\n" + "\n".join(lines) + "\n}", args)


def _high(value: Descriptor) -> int:
    return value.high | VERSION


def convert_tcgen05_commit(c: Context, op: ops.Tcgen05Commit) -> None:
    at, comment = item_at(c, op.barriers, op.state), c.shared(op.barriers).comment
    ptx = f"tcgen05.commit.cta_group::{op.cta_group}.mbarrier::arrive::one.shared::cluster"
    if op.multicast is None:
        c.w.asm(f"{ptx}.b64 {at.ptx(0)}; {comment}", [at.operand])
        return
    mask = c.w.value(f"trunc i32 {c.scalar(op.multicast).text} to i16")
    args = [at.operand, ("i16", mask)]
    c.w.asm(f"{ptx}.multicast::cluster.b64 {at.ptx(0)}, $1; {comment}", args)


def convert_tcgen05_ld(c: Context, op: ops.Tcgen05Ld) -> None:
    """Lanes have of 8 columns what they have of an accumulator's."""
    kind = op.result.type_as(Accumulator)
    address = _of_half(c, _address(c, op.sums, op.state, op.column), op)
    type, texts = register_type(kind.dtype, kind.columns), list[str]()
    for at, width in at_once(kind.columns):
        count = width // 2
        value = f"{{{operands(0, count)}}}"
        ptx = f"tcgen05.ld.sync.aligned.16x256b.x{width // 8}.b32 {value}, [${count}];"
        texts += c.w.asm(ptx, [("i32", c.w.add(address, at))], [type] * count)
    c.values[op.result] = Registers(kind.dtype, kind.rows, kind.columns, ACCUMULATOR, tuple(texts))


def _of_half(c: Context, address: str, op: ops.Tcgen05Ld | ops.Tcgen05St) -> str:
    """In a warp's own lanes, 16 of them, and a warpgroup's own columns."""
    quarter = c.w.binary("shl", "i32", c.threads.warp, WARP_LANES)
    if op.apart:
        address = c.w.add(address, c.w.multiply(c.own_warpgroup(), op.apart))
    return c.w.add(c.w.add(address, quarter), op.half * 16 << LANE)


def convert_tcgen05_st(c: Context, op: ops.Tcgen05St) -> None:
    """Pairs of 16 bits are a lane's own in an accumulator, too: they lie in one cell."""
    value, shape = c.registers(op.value), stored_shape(op)
    address = _of_half(c, _address(c, op.columns, op.state, op.column), op)
    type = register_type(value.dtype, value.columns)
    texts = list(value.texts)
    for at, width in at_once(op.width):
        times = width // STORED[shape]
        own, texts = texts[: width // 2], texts[width // 2 :]
        operand = f"{{{operands(1, len(own))}}}"
        ptx = f"tcgen05.st.sync.aligned.{shape}.x{times}.b32 [$0], {operand};"
        c.w.asm(ptx, [("i32", c.w.add(address, at)), *((type, text) for text in own)])


def convert_tcgen05_wait_ld(c: Context, op: ops.Tcgen05WaitLd) -> None:
    """The registers pass through: nothing reads them before."""
    loads = [c.registers(load) for load in op.loads]
    values = [(register_type(x.dtype, x.columns), text) for x in loads for text in x.texts]
    ptx, types = "tcgen05.wait::ld.sync.aligned;", [type for type, _ in values]
    texts = iter(c.w.asm(ptx, values, types, tied=range(len(values))))
    for value, load in zip(op.result, loads, strict=True):
        c.values[value] = Registers(load.dtype, *load.shape, tuple(islice(texts, len(load.texts))))


def convert_tcgen05_cp(c: Context, op: ops.Tcgen05Cp) -> None:
    """Each instruction copies an atom of 32 rows of 16 bytes; groups of eight rows are 128 bytes
    apart.
    """
    w, shared = c.w, c.shared(op.shared)
    address = _address(c, op.scales, op.state, op.column)
    start = w.add(c.item(shared, c.state(op.shared_state).stage), shared.offset + op.offset)
    low = w.binary("lshr", "i32", w.binary("and", "i32", start, (1 << 18) - 1), 4)
    lines = [".reg .b32 at, la, ha;", ".reg .b64 a;", f"mov.b32 ha, {ATOM | VERSION};"]
    count = op.rows // ATOM_ROWS
    for word, atom in product(range(op.words), range(count)):
        column = s.scale_columns(op.rows, word) + s.TILE_COLUMNS * atom
        lines += [
            f"add.s32 la, $1, {(atom * op.words + word) * BYTES >> 4};",
            "mov.b64 a, {la, ha};",
            f"add.s32 at, $0, {column};",
            f"tcgen05.cp.cta_group::{op.cta_group}.32x128b.warpx4 [at], a;",
        ]
    args: list[Operand] = [("i32", address), ("i32", low)]
    c.w.asm("{\n" + "\n".join(lines) + "\n}", args)


def convert_store_scale_factors(c: Context, op: ops.StoreScaleFactors) -> None:
    """A thread has the words of a row in each 32 rows; the other three warps have the same ones."""
    w, shared = c.w, c.shared(op.shared)
    address = _address(c, op.scales, op.state, op.column)
    address = w.add(address, w.binary("shl", "i32", c.threads.warp, WARP_LANES))
    item = c.item(shared, c.state(op.shared_state).stage)
    first = c.scalar(op.first).text
    item = item if op.atoms else w.add(item, first)
    rest = op.rows % s.WARP_ROWS
    lanes = {0: c.threads.lane}
    if rest:
        within = w.compare("slt", c.threads.lane, rest)
        lanes[rest] = w.select(within, "i32", c.threads.lane, str(rest - 1))
    bases = dict[int, At]()
    plain = {} if op.atoms else lanes
    lines = {n: w.add(item, w.multiply(lane, op.line)) for n, lane in plain.items()}
    for row in range(0, op.rows, s.WARP_ROWS):
        own = rest if row + rest == op.rows else 0
        if op.atoms:
            bases[row] = At(_in_atoms(c, op, item, w.add(lanes[own], first), row), 0)
        else:
            bases[row] = At(lines[own], row * op.line)
    for word, columns in enumerate(s.word_columns(op.rows, op.words)):
        texts = list[str]()
        mask = None if op.valid is None else _kept(c, c.scalar(op.valid).text, word)
        for base in bases.values():
            within = base.offset + word * (BYTES if op.atoms else s.WORD)
            text = ld_shared(w, At(base.base, shared.offset + op.offset + within))
            texts.append(text if mask is None else w.binary("and", "i32", text, mask))
        column = columns.start
        for count in s.stored_at_once(len(columns)):
            own, texts = texts[:count], texts[count:]
            value = f"{{{operands(1, count)}}}"
            ptx = f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [$0], {value};"
            w.asm(ptx, [("i32", x) for x in (w.add(address, column), *own)])
            column += count


def _in_atoms(c: Context, op: ops.StoreScaleFactors, item: str, first: str, row: int) -> str:
    """The address of the first word of row `first` + `row`."""
    w = c.w
    place = w.add(first, row)
    atom = w.multiply(w.binary("lshr", "i32", place, 7), op.line)
    quarter = w.binary("and", "i32", w.binary("lshr", "i32", place, 5), 3)
    line = w.multiply(w.binary("and", "i32", place, s.WARP_ROWS - 1), s.WORD * s.TILE_COLUMNS)
    return w.add(w.add(item, atom), w.add(line, w.multiply(quarter, s.WORD)))


def _kept(c: Context, valid: str, word: int) -> str:
    """The bytes of a word that are among the first `valid` of its row. PTX shifts by no more than
    32 places, and those leave nothing.
    """
    w = c.w
    left = w.add(valid, -s.WORD * word)
    left = w.select(w.compare("sgt", left, 0), "i32", left, "0")
    ptx = "{\n.reg .b32 gone;\nshl.b32 gone, -1, $1;\nnot.b32 $0, gone;\n}"
    return w.asm_value(ptx, [("i32", w.multiply(left, 8))])


def convert_tcgen05_fence(c: Context, op: ops.Tcgen05Fence) -> None:
    order = "after" if op.after else "before"
    c.w.asm(f"tcgen05.fence::{order}_thread_sync;")


def convert_tcgen05_wait_st(c: Context, _: ops.Tcgen05WaitSt) -> None:
    c.w.asm("tcgen05.wait::st.sync.aligned;")
