"""Loops, ifs and the election of one thread."""

from bisect import bisect_right
from collections.abc import Sequence, Set
from contextlib import ExitStack
from itertools import accumulate, islice

from wsdsl.codegen import nvvm
from wsdsl.codegen.arithmetic.byte_maps import of_words, words_of_pairs
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import texts_of
from wsdsl.codegen.llvm_types import in_words, llvm_types, not_carried, shape_of
from wsdsl.codegen.value_registers import Registers, Scalar, StateAt, Storage
from wsdsl.ir.op import Value
from wsdsl.ir.ops import Elect, ForRange, If, Yield
from wsdsl.ir.types import Accumulator, Fragment, Tile


def registers_of(c: Context, value: Value) -> tuple[str, ...]:
    """The operands that carry a value through a phi."""
    operand: Storage = c.values[value]
    match operand:
        case Scalar():
            return (operand.text,)
        case Registers():
            if in_words(operand.dtype, operand.shape):
                return operand.words or words_of_pairs(c.w, operand)
            return texts_of(c.w, operand)
        case StateAt():
            return (operand.stage, operand.parity)
        case _:
            raise not_carried(f"%{value.name}: {value.type}")


def _known(c: Context, values: Sequence[Value]) -> list[Value]:
    """Those that LLVM carries: accumulators with names of their own stay where they are."""
    return [value for value in values if value not in c.named]


def _flat(c: Context, values: Sequence[Value]) -> list[str]:
    return [text for value in values for text in registers_of(c, value)]


def _rebuild(c: Context, values: Sequence[Value], texts: Sequence[str]) -> None:
    """Define values that LLVM carries in registers `texts`."""
    rest = iter(texts)
    for value in values:
        own = tuple(islice(rest, len(llvm_types(value.type))))
        match value.type:
            case Tile(dtype, ()):
                c.values[value] = Scalar(own[0], dtype)
            case Fragment() | Accumulator() as kind:
                dtype, shape = kind.dtype, shape_of(kind)
                is_words = in_words(dtype, shape)
                c.values[value] = (
                    of_words(c.w, dtype, own, shape) if is_words else Registers(dtype, *shape, own)
                )
            case _:
                c.values[value] = StateAt(*own)


def convert_for_range(c: Context, op: ForRange) -> None:
    """A test before the loop and one at its end, so that the body is straight-line code without a
    branch between two wgmmas.

    Indices that are equal before the loop, as those of two rows of one group, have one phi if they
    are equal after each iteration: else the loop is written again.
    """
    mark, apart = c.w.marked(), set[Value]()
    while differing := _emit_loop(c, op, apart):
        c.w.back_to(mark)
        apart |= differing


def _emit_loop(c: Context, op: ForRange, apart: Set[Value]) -> set[Value]:
    """Emit the loop; return the arguments whose registers differ after an iteration. `apart`:
    arguments with all their phis.
    """
    w = c.w
    start, stop, step = c.scalar(op.start), c.scalar(op.stop), c.scalar(op.step)
    if stop.known == 1 and step.known is None:
        # LLVM would remove the loop of one iteration, and join its body with the code after it.
        hidden = w.asm_value("", [("i32", stop.text)], tied=(0,), pure=True)
        stop = Scalar(hidden, stop.dtype, nonnegative=stop.nonnegative)
    init, args = _known(c, op.init), _known(c, op.args)
    types = [t for v in init for t in llvm_types(v.type)]
    first = _flat(c, init)
    equal = _equal_registers(init, first, [arg not in apart for arg in args])
    body, end = w.name("loop"), w.name("loop_end")
    before = w.block
    w.branch(w.compare("slt", start.text, stop.text), body, end, likely=True)
    w.begin(body)
    index_phi, *phis = w.phis(["i32", *(t for i, t in enumerate(types) if equal[i] == i)])
    index, own = index_phi[1], iter(phis)
    results = {i: next(own) for i, like in enumerate(equal) if like == i}
    c.values[op.index] = Scalar(index, start.dtype, nonnegative=start.nonnegative)
    _rebuild(c, args, [results[like][1] for like in equal])
    last = _flat(c, _known(c, c.convert(c, op.body)))
    wrong = {i for i, like in enumerate(equal) if last[i] != last[like]}
    if wrong:
        ends = list(accumulate(len(llvm_types(v.type)) for v in init))
        return {args[bisect_right(ends, i)] for i in wrong}
    following = last[-1] if op.claimed else w.value(f"add nsw i32 {index}, {step.text}")
    again = w.compare("slt", following, stop.text)
    latch = w.block
    w.fill(index_phi, "i32", [(start.text, before), (following, latch)])
    for i, phi in results.items():
        w.fill(phi, types[i], [(first[i], before), (last[i], latch)])
    w.branch(again, body, end, likely=True)
    w.begin(end)
    _join(c, _known(c, op.result), types, [(first, before), (last, latch)])
    return set()


def _equal_registers(
    values: Sequence[Value], texts: Sequence[str], may: Sequence[bool]
) -> list[int]:
    """For each register of the values the first equal one, if that is an integer of the same value,
    and is computed: values that begin as a constant mostly differ later.
    """
    results: list[int] = []
    for value, ask in zip(values, may, strict=True):
        kind, at = value.type, len(results)
        own = texts[at : at + len(llvm_types(kind))]
        whole = ask and isinstance(kind, Fragment) and kind.dtype.name in ("i32", "u32", "bool")
        results += [
            at + (own.index(text) if whole and text.startswith("%") else i)
            for i, text in enumerate(own)
        ]
    return results


def convert_if(c: Context, op: If) -> None:
    w = c.w
    then, orelse, end = w.name("then"), w.name("else"), w.name("if_end")
    w.branch(c.scalar(op.cond).text, then, orelse)
    sources: list[tuple[list[str], str]] = []
    for label, region in ((then, op.then), (orelse, op.orelse)):
        w.begin(label)
        sources.append((_flat(c, c.convert(c, region)), w.block))
        w.jump(end)
    w.begin(end)
    _join(c, op.result, [t for v in op.result for t in llvm_types(v.type)], sources)


def _join(
    c: Context,
    result: Sequence[Value],
    types: Sequence[str],
    sources: Sequence[tuple[list[str], str]],
) -> None:
    phis = c.w.phis(types)
    for i, (phi, type) in enumerate(zip(phis, types, strict=True)):
        c.w.fill(phi, type, [(texts[i], block) for texts, block in sources])
    _rebuild(c, result, [name for _, name in phis])


def convert_elect(c: Context, op: Elect) -> None:
    w = c.w
    with ExitStack() as around:
        if c.place.inside:
            first = w.add(w.multiply(c.threads.warpgroup, 4), c.threads.warp)
            own = w.compare("eq", first, 4 * c.place.first_warpgroup + c.place.warp)
            around.enter_context(w.where(own))
        if c.place.inside:
            elected = w.call("llvm.nvvm.elect.sync", "{ i32, i1 }", [("i32", nvvm.ALL_LANES)])
            one = w.value(f"extractvalue {{ i32, i1 }} {elected}, 1")
        else:
            one = w.compare("eq", c.threads.tid, 0)
        around.enter_context(w.where(one))
        around.enter_context(c.at(elected=True))
        c.convert(c, op.body)


def convert_yield(c: Context, op: Yield) -> None:
    """The op that has the region reads the values."""
