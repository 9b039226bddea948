"""wgmma: smem descriptors, operands in registers, accumulators, groups and waits."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice

from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import texts_of
from wsdsl.codegen.llvm_types import num_registers, register_type, shape_of
from wsdsl.codegen.value_registers import Descriptor, Registers
from wsdsl.codegen.wgmma_group import Group
from wsdsl.codegen.wgmma_ptx import Product
from wsdsl.diagnostics import CompileError
from wsdsl.ir import ops
from wsdsl.ir.analysis.smem_descriptors import START_MASK, layout_of
from wsdsl.ir.analysis.tile_widths import narrowings
from wsdsl.ir.hardware.wgmma_shapes import k_step, sum_of
from wsdsl.ir.op import Kernel, Op, Value, operands, regions, results_of
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import DTYPES, Accumulator, Fragment

UNDEFINED = "undef"


def convert_smem_descriptor(c: Context, op: ops.SmemDescriptor) -> None:
    w, shared = c.w, c.shared(op.shared)
    value = layout_of(op)
    address = c.item(shared, c.state(op.state).stage)
    if op.start is not None:
        start = c.scalar(op.start)
        if isinstance(start.known, int) and start.known % value.start_unit:
            raise CompileError(
                f"WS0616 a wgmma operand cannot start {start.known} elements into its tile",
                op.loc,
                f"start at a multiple of {value.start_unit} for swizzle {op.swizzle}",
            )
        address = w.add(address, w.multiply(start.text, value.per_start))
    address = w.add(address, shared.offset + op.offset)
    field = w.binary("and", "i32", w.binary("lshr", "i32", address, 4), START_MASK)
    low = w.binary("or", "i32", field, value.leading >> 4 << 16)
    steps = tuple(step >> 4 for step in value.steps)
    c.values[op.result] = Descriptor(low, value.high, steps, op.k_major)


def convert_empty_accumulator(c: Context, op: ops.EmptyAccumulator) -> None:
    kind = op.result.type_as(Accumulator)
    count = num_registers(kind.dtype, *shape_of(kind))
    # Undefined on purpose: writing zeros here would be moves, and serialize wgmma.
    texts = c.w.registers(count) if op.result in c.named else (UNDEFINED,) * count
    c.values[op.result] = Registers(kind.dtype, *shape_of(kind), texts)


def convert_wgmma_fence(c: Context, op: ops.WgmmaFence) -> None:
    # LLVM sinks pure computations to their uses: use the operands here, in the same registers,
    # since a copy would escape the wait that keeps them.
    values = [v for v in c.before_fences.get(id(op), ()) if v in c.values]
    if texts := [x for v in values for x in texts_of(c.w, c.registers(v))]:
        c.w.asm("", [("i32", x) for x in texts])
    c.w.call("llvm.nvvm.wgmma.fence.sync.aligned", "void")


def check_descriptor(value: Descriptor, k_major: bool, steps: int, op: Op) -> None:
    if value.k_major != k_major or len(value.steps) < steps:
        message = f"WS0617 an operand of {op_name(type(op))} differs in layout or size"
        raise CompileError(message, op.loc, IR_HINT)


def convert_wgmma_mma_async(c: Context, op: ops.WgmmaMmaAsync) -> None:
    if op.columns:
        message = "WS0618 codegen cannot emit a single width of a kernel of several widths"
        raise CompileError(message, op.loc, IR_HINT)
    named = c.named.get(op.acc)
    held_back = c.group is not None and op.acc in c.group.results
    acc = c.group.sums[c.group.results[op.acc]] if c.group and held_back else None
    acc = acc or c.registers(named or op.acc)
    dtypes = DTYPES[op.dtypes[0]], DTYPES[op.dtypes[1]]
    if acc.dtype != sum_of(*dtypes):
        message = f"WS0619 wgmma cannot multiply {' and '.join(op.dtypes)} into {acc.dtype}"
        raise CompileError(message, op.loc, IR_HINT)
    steps = op.k // k_step(dtypes[0])
    in_registers = isinstance(op.a.type, Fragment)
    sides = ((op.a, op.a_k_major), (op.b, op.b_k_major))
    for value, k_major in sides[1:] if in_registers else sides:
        check_descriptor(c.descriptor(value), k_major, steps, op)
    accumulate = c.scalar(op.accumulate).text
    if accumulate == "false" and op.acc != named and acc.texts[0] != UNDEFINED:
        accumulate = c.never
    a = texts_of(c.w, c.registers(op.a)) if in_registers else c.descriptor(op.a)
    group, registers = None, acc.texts
    if op.narrower is not None:
        group = c.group = c.group or Group(c.scalar(op.narrower).text, narrowings(op.widths))
    if not named:
        outputs = [f"${i}" for i in range(len(acc.texts))]
        registers = group.registers(op.acc, acc, op.result) if group else outputs
    b, name = c.descriptor(op.b), op.result.name
    product = Product(name, registers, a, b, steps, dtypes, accumulate)
    if group:
        group.products.append(product)
    elif named:
        c.w.asm(*product.ptx(0))
    else:
        # Inputs are tied to outputs, so that the accumulator stays in its registers; one that is
        # added to nothing starts here, and is not carried to here.
        num, tied = len(acc.texts), 0 if accumulate == "false" else len(acc.texts)
        type = register_type(acc.dtype, acc.columns)
        ptx, args = product.ptx(num + tied)
        inputs = [(type, x) for x in acc.texts[:tied]]
        texts = c.w.asm(ptx, [*inputs, *args], [type] * num, tied=range(tied))
        c.values[op.result] = Registers(acc.dtype, *acc.shape, texts)


def convert_wgmma_commit(c: Context, op: ops.WgmmaCommit) -> None:
    if c.group is None:
        c.w.call("llvm.nvvm.wgmma.commit_group.sync.aligned", "void")
        return
    group, c.group = c.group, None
    sums = group.emit(c.w)
    c.values |= {value: sums[place] for value, place in group.results.items()}


def convert_wgmma_wait(c: Context, op: ops.WgmmaWait) -> None:
    """Accumulators pass through, so that LLVM reads them only afterwards, or are copied from their
    names in PTX. Fragments are arguments, so that LLVM keeps them until here.
    """
    waited = [c.registers(c.named.get(a, a)) for a in op.accumulators]
    args = [("i32", x) for v in op.fragments for x in texts_of(c.w, c.registers(v))]
    # Accumulators whose zeros are written first are read after that.
    read = [() if value in c.zeroed else x.texts for value, x in zip(op.result, waited)]
    sums = [
        (register_type(x.dtype, x.columns), text)
        for x, own in zip(waited, read, strict=True)
        for text in own
    ]
    ptx, types = f"wgmma.wait_group.sync.aligned {op.pending};", [type for type, _ in sums]
    if c.named:
        results = c.w.asm("\n".join((ptx, *_moves([text for _, text in sums]))), args, types)
    else:
        results = c.w.asm(ptx, [*sums, *args], types, tied=range(len(types)))
    texts = iter(results)
    for value, x, own in zip(op.result, waited, read, strict=True):
        c.values[value] = Registers(x.dtype, *x.shape, tuple(islice(texts, len(own))))


def _moves(names: Sequence[str]) -> list[str]:
    return [f"mov.b32 ${i}, {name};" for i, name in enumerate(names)]


def convert_zero_unless(c: Context, op: ops.ZeroUnless) -> None:
    """A branch around moves of 0: LLVM would compute a `select` of each register. Registers with
    names in PTX are cleared themselves, since copies would take as many again.
    """
    x, cond, source = c.registers(op.x), c.scalar(op.cond), c.zeroed.get(op.x)
    type = register_type(x.dtype, x.columns)
    if type not in ("float", "i32"):
        raise CompileError(f"WS0620 zero_unless does not support {op.x.type}", op.loc, IR_HINT)
    names = () if source is None else c.registers(source).texts
    inputs = [(type, text) for text in texts_of(c.w, x)] if source is None else []
    count = len(names) + len(inputs)
    lines = [f"@${count + len(inputs)} bra KEEP_${{:uid}};"]
    lines += [f"mov.b32 {name}, 0;" for name in names or [f"${i}" for i in range(count)]]
    ptx = "\n".join(("{", *lines, "KEEP_${:uid}:", *_moves(names), "}"))
    args = [*inputs, ("i1", cond.text)]
    texts = c.w.asm(ptx, args, [type] * count, tied=range(len(inputs)))
    c.values[op.result] = Registers(x.dtype, *x.shape, texts)


def operands_before_fences(kernel: Kernel) -> dict[int, tuple[Value, ...]]:
    """By the id of a fence (all fences are equal): the registers that wgmmas after it read."""
    results = defaultdict[int, dict[Value, None]](dict)
    fence: ops.WgmmaFence | None = None
    for op in kernel.of(ops.WgmmaFence, ops.WgmmaMmaAsync):
        if isinstance(op, ops.WgmmaFence):
            fence = op
        elif isinstance(op.a.type, Fragment) and fence is not None:
            results[id(fence)] |= dict.fromkeys(ops.registers_of(op.a, kernel.definers))
    return {key: tuple(values) for key, values in results.items()}


def convert_as_accumulator(c: Context, op: ops.AsAccumulator) -> None:
    c.values[op.result] = c.registers(op.x)


# Accumulator registers that the PTX declares; LLVM does not see them.
Firsts = Mapping[Value, Value]
HELD = (Accumulator, Fragment)
NONE: tuple[Firsts, Firsts] = ({}, {})


def named_accumulators(kernel: Kernel) -> tuple[Firsts, Firsts]:
    """By accumulator the empty one that it began as, whose registers it has; and the same by
    fragments that only a `zero_unless` reads. None if LLVM allocates the registers.
    """
    uses = Counter([v for op in kernel.ops for v in operands(op) if isinstance(v.type, HELD)])
    first: dict[Value, Value] = {}
    read: dict[Value, Value] = {}
    zeroed: dict[Value, Value] = {}
    for op in kernel.ops:
        match op:
            case ops.EmptyAccumulator(result=result):
                first[result] = result
            case ops.WgmmaMmaAsync(result=result, acc=acc):
                first[result] = first[acc]
                read.clear()
            case ops.WgmmaWait(result=result, accumulators=accumulators):
                read |= {v: first[acc] for v, acc in zip(result, accumulators, strict=True)}
            case ops.ForRange(init=init, args=args, result=result):
                for before, *inside in zip(init, args, result, strict=True):
                    if _is_accumulator(before):
                        first |= dict.fromkeys(inside, first[before])
            case ops.ZeroUnless(x=x):
                # Else zeros would get into what others read, or the registers are others' by now.
                if x not in read or uses[x] > 1:
                    return NONE
                zeroed[x] = read[x]
            case _ if any(map(_is_accumulator, results_of(op))):
                return NONE
            case _:
                pass
        if regions(op):
            read.clear()
            if any(isinstance(v.type, Fragment) for v in results_of(op)):
                return NONE
    for loop in kernel.of(ops.ForRange):
        handed = zip(loop.args, yielded(loop.body), strict=True)
        if any(first.get(a) != first.get(b) for a, b in handed):
            return NONE
    return NONE if any(uses[value] > 1 for value in first) else (first, zeroed)


def _is_accumulator(value: Value) -> bool:
    return isinstance(value.type, Accumulator)
