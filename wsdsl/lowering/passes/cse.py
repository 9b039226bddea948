"""Run CSE, DCE and constant folding on scalars (SCHEDULED). Loops of one trip and comparisons of
numbers are folded, as LLVM would fold them, so that the PTX still is the kernel's.

Before:
    %c64: i32 = constant(value=64)
    %t: i32 = map(fn="add", args=(%m, %c64))
    %c64_1: i32 = constant(value=64)
    %t_1: i32 = map(fn="add", args=(%m, %c64_1))
After:
    %c64: i32 = constant(value=64)
    %t: i32 = map(fn="add", args=(%m, %c64))

CSE is limited to scalars, including loads of tensors that the kernel does not write: to compute a
fragment again is cheaper than to keep it in registers.

Why here: last, so that the kernel that is read, proved and emitted is the short one.
"""

import operator
from functools import partial

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import written_tensors
from wsdsl.ir.op import Kernel, Op, Region, Value, attributes_of, operands, regions, results_of
from wsdsl.ir.rewriter import replace_operands, rewrite, with_regions, yielded
from wsdsl.ir.types import Tile

Numbers = dict[Value, int | float | bool]
Bounds = frozenset[tuple[Value, ...]]
Known = dict[tuple[object, ...], Value]


def cse(kernel: Kernel) -> Kernel:
    body = _hoist_constants(kernel)
    numbers: Numbers = {op.result: op.value for op in body if isinstance(op, ops.Constant)}
    written = written_tensors(kernel) if kernel.of(ops.LoadGlobal) else frozenset[str]()
    return kernel.with_body(_drop_unused(_Sharing(numbers, written).region(body, {}), set()))


def _hoist_constants(kernel: Kernel) -> Region:
    """Move scalar constants and sizes before the partitions; they need no register."""
    known = (ops.Constant, ops.DimSize, ops.LaunchNarrowing)
    rest = rewrite(kernel.body, lambda op: () if type(op) in known else (op,))
    return (*kernel.of(*known), *rest)


class _Sharing:
    """CSE and constant folding of regions, in one traversal: definitions come before uses."""

    def __init__(self, numbers: Numbers, written: frozenset[str]) -> None:
        self.numbers, self.written = numbers, written
        self.swap: dict[Value, Value] = {}

    def region(self, region: Region, known: Known, run: Bounds = frozenset()) -> Region:
        """`known`: values by all that determines them; `run`: bounds of the loops around."""
        kept, swap = list[Op](), self.swap
        for op in region:
            op = replace_operands(op, swap, inside=False)
            if isinstance(op, ops.Map) and (told := _compared(op, self.numbers, run)) is not None:
                self.numbers[op.result] = told
                op = ops.Constant(result=op.result, value=told, loc=op.loc)
            if key := _key(op, self.written):
                made = results_of(op)[0]
                if (before := known.setdefault(key, made)) is not made:
                    swap[made] = before
                    continue
            elif isinstance(op, ops.ForRange) and _turns_once(op, self.numbers):
                swap.update({op.index: op.start, **dict(zip(op.args, op.init, strict=True))})
                kept += self.region(op.body[:-1], known, run)
                last = (swap.get(v, v) for v in yielded(op.body))
                swap.update(zip(op.result, last, strict=True))
                continue
            elif regions(op):
                within = run | {(op.start, op.stop)} if isinstance(op, ops.ForRange) else run
                op = with_regions(op, lambda body, run=within: self.region(body, {**known}, run))
            kept.append(op)
        return tuple(kept)


def _compared(op: ops.Map, numbers: Numbers, run: Bounds) -> bool | None:
    """Return the value of a comparison of numbers, or of the bounds of a loop that runs."""
    if op.fn not in ops.COMPARISONS:
        return None
    if all(v in numbers for v in op.args):
        return getattr(operator, op.fn)(*(numbers[v] for v in op.args))
    runs = (op.fn == "lt" and op.args in run) or (op.fn == "gt" and op.args[::-1] in run)
    return True if runs else None


def _turns_once(loop: ops.ForRange, numbers: Numbers) -> bool:
    if not all(v in numbers for v in (loop.start, loop.stop, loop.step)):
        return False
    start, stop, step = (numbers[v] for v in (loop.start, loop.stop, loop.step))
    return start < stop <= start + step


def _key(op: Op, written: frozenset[str]) -> tuple[object, ...] | None:
    """Return all that determines the value of an op of scalars that may be shared."""
    if not op.repeatable:
        return None
    if isinstance(op, ops.LoadGlobal) and (op.in_order or op.tensor.name in written):
        return None
    kind, fields = results_of(op)[0].type, attributes_of(op)
    if not isinstance(kind, Tile) or kind.axes:
        return None
    # 1, 1.0 and True are equal to Python, not to a kernel.
    return (type(op), kind.dtype.name, fields, *map(type, fields), *[v.name for v in operands(op)])


def _drop_unused(region: Region, used: set[Value]) -> Region:
    """Run DCE from the end to the start. `used`: the values used after the region, and then in it,
    too.
    """
    kept: list[Op] = []
    for op in reversed(region):
        if not op.repeatable or not used.isdisjoint(results_of(op)):
            kept.append(with_regions(op, partial(_drop_unused, used=used)) if regions(op) else op)
            used.update(operands(op))
    return tuple(reversed(kept))
