"""Rules of SCHEDULED kernels about operands of wgmma in registers."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from wsdsl.ir import ops
from wsdsl.ir.effects import Arrive
from wsdsl.ir.op import Kernel, Makers, Op, Problem, Region, bound, operands_in, regions, results_of
from wsdsl.ir.op_fields import names_of
from wsdsl.ir.ops import ConvertLayout, ForRange, If, Loop
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import Fragment, Value

TAKING = {"a", "fragments", "init", "values"}
"""Operands of MMAs and waits for them, and values that loops carry, by the names of fields."""


def operands_are_converted(kernel: Kernel) -> Iterator[Problem]:
    """One op converts a fragment to the layout of an operand, and MMAs in flight read it, across
    iterations of loops.
    """
    for op in kernel.ops if any(map(is_operand, kernel.defined)) else ():
        if not isinstance(op, (Loop, ConvertLayout)):
            for v in filter(is_operand, (*results_of(op), *bound(op))):
                yield op, f"{v} is {v.type}: only `convert_layout` gives an operand"
        others = tuple([name for name in names_of(type(op), "operand") if name not in TAKING])
        for v in filter(is_operand, operands_in(op, others)):
            yield op, f"{v} is {v.type}: only wgmma can use it"


def is_operand(value: Value) -> bool:
    return isinstance(value.type, Fragment) and value.type.layout == "operand"


def _reads_registers(kernel: Kernel) -> bool:
    return any(isinstance(op.a.type, Fragment) for op in kernel.of(ops.WgmmaMmaAsync))


def register_operands_are_fenced(kernel: Kernel) -> Iterator[Problem]:
    """No MMA reads registers that were written after the last fence. Values that a loop or a branch
    yields may be moved to other registers there.
    """
    if not _reads_registers(kernel):
        return
    made = kernel.definers

    def visit(
        region: Region, loose: frozenset[Value]
    ) -> Generator[Problem, None, frozenset[Value]]:
        """Returns what may have been written since the last fence, as `loose` was in front."""
        for op in region:
            if isinstance(op, ops.WgmmaFence):
                loose = frozenset()
            elif (
                isinstance(op, ops.WgmmaMmaAsync)
                and isinstance(op.a.type, Fragment)
                and not loose.isdisjoint(ops.registers_of(op.a, made))
            ):
                yield op, f"no wgmma_fence follows the last write to the registers of {op.a}"
            if inside := regions(op):
                before = loose.union(bound(op))
                loose = frozenset() if isinstance(op, If) else loose
                for inner in inside:
                    loose |= yield from visit(inner, before)
            loose = loose.union(results_of(op))
        return loose

    yield from visit(kernel.body, frozenset())


def register_operands_are_kept(kernel: Kernel) -> Iterator[Problem]:
    """A fragment is always the same registers. So the products that read it must be over before it
    is made again: a wait that keeps it is in the same iteration, and covers their group. The
    prover, to which it is a name, objects where no wait has the name, not where a later one has.
    """
    if not _reads_registers(kernel):
        return
    made, waits = kernel.definers, kernel.of(ops.WgmmaWait)
    carried = carried_operands(kernel)
    waited = {carried.get(v, v) for wait in waits for v in wait.fragments}
    depth: dict[Value, int] = {}

    def visit(region: Region, around: tuple[tuple[Region, int], ...]) -> Iterator[Problem]:
        for i, op in enumerate(region):
            path = (*around, (region, i))
            depth.update(dict.fromkeys(results_of(op), len(path)))
            depth.update(dict.fromkeys(bound(op), len(path) + 1))
            if isinstance(op, ops.WgmmaMmaAsync) and isinstance(op.a.type, Fragment):
                own = max(depth.get(v, 1) for v in ops.registers_of(op.a, made))
                named = any(_names(wait.fragments, op.a, made) for wait in waits)
                named |= carried.get(op.a, op.a) in waited
                if named and not _kept(op.a, path, own - 1, kernel):
                    yield op, f"{op.a} may be overwritten before a wgmma_wait that names it"
            for inner in regions(op):
                yield from visit(inner, path)

    yield from visit(kernel.body, ())


def carried_operands(kernel: Kernel) -> dict[Value, Value]:
    """Operands in registers that loops carry, each with one of its names: the values that
    a loop begins with, has in an iteration, yields and returns are the same registers.
    """
    found: dict[Value, Value] = {}
    for loop in kernel.of(ForRange):
        names = zip(loop.init, loop.args, yielded(loop.body), loop.result, strict=True)
        for own in names:
            if is_operand(own[1]):
                old = {found.get(v, v) for v in own}
                alike = [v for v, first in found.items() if first in old]
                found |= dict.fromkeys((*old, *own, *alike), own[1])
    return found


def _kept(value: Value, path: tuple[tuple[Region, int], ...], own: int, kernel: Kernel) -> bool:
    """From the product at the end of `path` on, out to region `own` of it, in which its operand is
    made; if a loop carries that, also in the next iteration and after the loop.
    """
    commits = 0
    for level in range(len(path) - 1, -1, -1):
        region, at = path[level]
        for op in region[at + 1 :]:
            if _covers(op, value, commits, kernel):
                return True
            commits += _commits((op,), kernel)
        if level > own:
            continue
        loop = path[level - 1][0][path[level - 1][1]] if level else None
        if not isinstance(loop, ForRange) or value not in yielded(region):
            return False
        place = yielded(region).index(value)
        if not _kept_anew(region, value, loop.args[place], commits, kernel):
            return False
        value, own = loop.result[place], level - 1
    return False


def _kept_anew(body: Region, value: Value, arg: Value, commits: int, kernel: Kernel) -> bool:
    """In the iteration that follows, before the registers of `value` are written."""
    written = {*ops.registers_of(value, kernel.definers)}
    for op in body:
        if _covers(op, arg, commits, kernel):
            return True
        if written & {*results_of(op)}:
            return False
        commits += _commits((op,), kernel)
    return False


def _covers(op: Op, value: Value, commits: int, kernel: Kernel) -> bool:
    """`commits`: groups closed since the product, its own among them."""
    if isinstance(op, ops.WgmmaWait):
        return commits > op.pending and _names(op.fragments, value, kernel.definers)
    if not isinstance(op, If):
        return False

    def arm(region: Region) -> bool:
        own = commits
        for inner in region:
            if _covers(inner, value, own, kernel):
                return True
            own += _commits((inner,), kernel)
        return False

    return arm(op.then) and arm(op.orelse)


def _commits(region: Region, kernel: Kernel) -> int:
    """How many groups it closes at least; a loop may not run."""
    count = 0
    for op in region:
        if Arrive("wgmma") in kernel.effects_of[id(op)]:
            count += 1
        elif isinstance(op, If):
            count += min(_commits(op.then, kernel), _commits(op.orelse, kernel))
    return count


def _names(fragments: tuple[Value, ...], value: Value, made: Makers) -> bool:
    """Some of `fragments` hold all of the registers of `value`."""
    # A fragment has more registers than its slice.
    parts = [(part, v) for v in fragments for part in ops.parts_of(made.get(v))]
    inside = [part for part, v in parts if _columns(part) <= _columns(v)]
    if value in fragments or (inside and _names(tuple(inside), value, made)):
        return True
    whole = ops.parts_of(made.get(value))
    return bool(whole) and all(_names(fragments, part, made) for part in whole)


def _columns(value: Value) -> int:
    return value.type.columns if isinstance(value.type, Fragment) else 0
