"""Compare the semaphores of split-K and stream-K in PTX with those of the SCHEDULED kernel.

Both run with numbers for sizes and CTA indices. Of each arrival and wait is compared the address,
and the amount that is added or awaited. The first lane of a warpgroup stands for all its threads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, islice, product
from typing import Any

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import tile_ops as t
from wsdsl.ir.memory_ops import LoadGlobal, MakeTensorMap
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.tensor_accesses import DIRECT
from wsdsl.ir.walk import walk, yielded
from wsdsl.prover.skeleton_letters import UNKNOWN
from wsdsl.prover.skeleton_of_ptx import OPERAND, Jump, Program
from wsdsl.prover.skeleton_registers import read, result, split_address
from wsdsl.prover.skeleton_values import FOLDED, Definition, computed

SIZE, CLUSTERS, APART, DATA = 640, 37, 7, 3
"""Every size, the clusters of the grid, from one to the next, and the value of each load."""
STEPS, MOST = 1 << 12, 8
"""Instructions and semaphores of one thread."""
POINTER = 40
"""Argument n, if it is a pointer, is n << POINTER."""
SEMAPHORE = ("red.release", "red.relaxed", "ld.acquire")
FLAGS = (b.ArriveFlag, b.WaitFlag)
FOLDS = FOLDED | {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "not": lambda x: not x}
END = [("no flag", None)]
Held = dict[Any, Any]
Flags = Iterator[tuple[str, Any]]
"""The argument, the offset and the amount, and the op or the line; UNKNOWN where control is."""


def differing_flag(kernel: Kernel, program: Program, ranks: int) -> tuple[Op | None, str] | None:
    """The first difference. Loads give one number; an unknown branch or bound ends a comparison."""
    steps = _steps(program)
    first, outside = 0, [op for op in kernel.body if not isinstance(op, Partition)]
    for partition in kernel.of(Partition):
        groups = range(first, first + partition.num_warpgroups)
        first = groups.stop
        flags = {id(op) for op in walk(partition.body) if isinstance(op, FLAGS)}
        compared = set[int]()
        for n, rank, group in product(range(8 * bool(flags)), range(ranks), groups):
            if n > 1 and compared >= flags:
                break
            cta = n * APART % CLUSTERS * ranks + rank
            special = {
                "%tid.x": 128 * group, "%cluster_ctarank": cta % ranks,
                "%ctaid.x": cta, "%nctaid.x": CLUSTERS * ranks,
                "%clusterid.x": cta // ranks, "%nclusterid.x": CLUSTERS,
            }  # fmt: skip
            held = {b.WarpgroupIndex: group - groups.start, **special}
            own = chain(_kernel_flags(kernel, [*outside, *partition.body], held), END)
            for has, line in islice(chain(_ptx_flags(program, steps, special), END), MOST):
                wanted, op = (UNKNOWN, None) if has == UNKNOWN else next(own)
                compared.add(id(op))
                if UNKNOWN in (wanted, has) or wanted == has == END[0][0]:
                    break
                if wanted != has or UNKNOWN in wanted:
                    expected = f"expected {wanted} here, the PTX has {has}"
                    return op, f"{expected} in line {line} (thread {128 * group})"
    return None


def _told(at: int | None, amount: int | None) -> str:
    shown = UNKNOWN if amount is None else str(amount % (1 << 32))
    place = UNKNOWN if at is None else f"{at % (1 << POINTER)} of argument {at >> POINTER}"
    return f"a flag at byte {place} by {shown}"


SPECIAL: dict[type[Op], Any] = {
    b.CtaIndex: "%ctaid.x", b.NumCtas: "%nctaid.x", b.CtaRank: "%cluster_ctarank",
    b.ClusterIndex: "%clusterid.x", b.NumClusters: "%nclusterid.x",
    b.WarpgroupIndex: b.WarpgroupIndex,
}  # fmt: skip


def _kernel_flags(kernel: Kernel, region: Sequence[Op], held: Held) -> Flags:
    for op in region:
        match op:
            case b.Elect():
                yield from _kernel_flags(kernel, op.body, held)
            case t.If():
                if (cond := held.get(op.cond)) is None:
                    yield UNKNOWN, op
                body = op.then if cond else op.orelse
                yield from _kernel_flags(kernel, body, held)
                held |= zip(op.result, map(held.get, yielded(body)), strict=True)
            case b.ForRange() if any(isinstance(x, FLAGS) for x in walk(op.body)):
                bounds: list[Any] = [held.get(x) for x in (op.start, op.stop, op.step)]
                if op.claimed or None in bounds:
                    yield UNKNOWN, op
                carried = [held.get(x) for x in op.init]
                for index in range(*bounds):
                    held |= zip((op.index, *op.args), (index, *carried), strict=True)
                    yield from _kernel_flags(kernel, op.body, held)
                    carried = [held.get(x) for x in yielded(op.body)]
                held |= zip(op.result, carried, strict=True)
            case b.ArriveFlag() | b.WaitFlag():
                by = op.count if isinstance(op, b.WaitFlag) else op.by or op.wrap or op.amount
                index = held.get(op.index[0])
                at = None if index is None else _argument(kernel, op.tensor.name) + 4 * index
                yield _told(at, held.get(by) if isinstance(by, Value) else by), op
            case t.Constant():
                held[op.result] = op.value
            case t.DimSize():
                held[op.result] = dict(kernel.sizes).get(op.dim, SIZE)
            case LoadGlobal():
                held[op.result] = DATA
            case t.Map() if op.fn in FOLDS and all(held.get(x) is not None for x in op.args):
                args = [held[x] for x in op.args]
                if args[-1] or op.fn not in ("floordiv", "mod"):
                    held[op.result] = FOLDS[op.fn](*args)
            case _ if type(op) in SPECIAL:
                held[op.result] = held[SPECIAL[type(op)]]  # type: ignore[attr-defined]
            case _:
                pass


def _argument(kernel: Kernel, name: str) -> int:
    """Tensor maps, then pointers, each with the strides of its tensor."""
    direct = {op.tensor.name: op.tensor.as_tensor for op in kernel.of(*DIRECT)}
    before = [*direct][: [*direct].index(name)]
    strides = (max(1, len(direct[tensor].dims)) for tensor in before)
    return len(kernel.of(MakeTensorMap)) + sum(strides) << POINTER


def _steps(program: Program) -> list[tuple[int, str, Any]]:
    """By places in the text: tokens by number, and definitions by name."""
    tokens = [(token.at, "", i) for i, token in enumerate(program.tokens)]
    made = ((name, d) for name, several in program.values.defined.items() for d in several)
    return sorted([*tokens, *((d.at, name, d) for name, d in made)], key=lambda step: step[:2])


def _ptx_flags(program: Program, steps: Sequence[tuple[int, str, Any]], special: Held) -> Flags:
    held, values, i = Held(special), program.values, 0

    def value(text: str, at: int) -> Any:
        number, name = values.constant(text), values.name(text, at)
        # What `elect.sync` makes beside the lane has no definition.
        elected = 1 if name[:2] == "%p" and name not in values.defined else None
        return held.get(name, elected) if number is None else number

    def passes(guard: str, at: int) -> bool | None:
        found = value(guard.removeprefix("!"), at) if guard else 1
        return None if found is None else bool(found) != (guard[:1] == "!")

    def made(d: Definition) -> Any:
        if d.op.startswith("ld.param"):
            number = int(d.operands.rstrip("] ").rpartition("_")[2])
            return number << POINTER if d.op.endswith("64") else SIZE
        if d.op.startswith("ld.global"):
            return DATA
        args = [value(text, d.at) for text in d.args] if read(d) else []
        return args[0] if d.op.startswith("shfl.sync.idx") else result(d, args, computed(d.op))

    for _ in range(STEPS):
        if i == len(steps):
            return
        (at, name, x), i = steps[i], i + 1
        if isinstance(x, Definition):
            if (does := passes(x.guard, at)) is not False:
                held[name] = made(x) if does else None
            continue
        token, of = program.tokens[x], program.read[x]
        does = passes(token.guard, at)
        if isinstance(of, Jump):
            does = does if token.way < 0 else bool(of.may >> special["%tid.x"] & 1)
            if does is None or len(of.targets) > 1:
                break
            if does and not of.targets:
                return
            if does:
                target = next(
                    (token.at for token in program.tokens if token.label in of.targets), -1
                )
                i = bisect_left(steps, target, key=lambda step: step[0])
        elif token.op.startswith(SEMAPHORE) and does is not False:
            args, test = OPERAND.findall(token.args), steps[min(i + 1, len(steps) - 1)][2]
            to, by = args[0], args[-1]
            if token.op.startswith("ld"):
                to, asked = args[1], isinstance(test, Definition) and test.op == "setp.lt.s32"
                by = test.args[1] if asked and test.args[0] == args[0] else ""
            register, plus = split_address(to)
            start = value(register, at)
            told = _told(None if start is None else start + plus, value(by, at) if by else None)
            yield told, of.line
    yield UNKNOWN, None
