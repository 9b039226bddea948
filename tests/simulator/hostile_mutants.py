"""Mutants in addition to those of `mutants.py`, which break one op in small ways: the order of ops,
threads, addresses, the number of stages, and trip counts.
"""

import itertools
from collections.abc import Iterator
from dataclasses import fields, replace

from tests.simulator.mutants import DELETED, exchange
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, bound, operands, regions, results_of
from wsdsl.ir.printer import print_head
from wsdsl.ir.rewriter import walk, with_regions
from wsdsl.ir.types import DTYPES, Accumulator, Barriers, Shared, State, Tile

ORDERED = (
    *DELETED,
    ops.WgmmaMmaAsync,
    ops.LoadShared,
    ops.LoadPanels,
    ops.Elect,
    ops.ForRange,
    ops.If,
)
LAST = 24
"""Values before a loop that its bounds may become."""
PLACES = (1024, 2048, 4096, -1024, -2048)


def in_order(region: Region) -> list[int]:
    """Pairs of consecutive ops, except those that are rebuilt around their regions."""
    return [id(op) for op in walk(region) if not regions(op)]


def swaps(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Adjacent ops in reverse order."""
    for at, op in enumerate(walk(kernel.body)):
        if not isinstance(op, ORDERED):
            continue

        def later(region: Region, first: Op = op) -> Region:
            made = [with_regions(x, later) for x in region]
            for n, (x, y) in enumerate(itertools.pairwise(region)):
                if x is first and isinstance(y, ORDERED):
                    made[n : n + 2] = [made[n + 1], made[n]]
            return tuple(made)

        body = later(kernel.body)
        if in_order(body) != in_order(kernel.body):
            yield f"swap op {at}: {print_head(op)}", replace(kernel, body=body)


def others(op: Op, kernel: Kernel) -> Iterator[tuple[str, Op]]:
    """Another barrier, another item, another state, other bytes."""
    for field in ("barriers", "shared"):
        held = getattr(op, field, None)
        kind = Barriers if field == "barriers" else Shared
        for made in kernel.body:
            other = getattr(made, "result", None)
            if not isinstance(held, Value) or not isinstance(other, Value) or other == held:
                continue
            if isinstance(other.type, kind):
                yield f"{field} %{other.name}", replace(op, **{field: other})
    if isinstance(
        op, ops.TmaLoad | ops.ThreadLoad | ops.LoadShared | ops.LoadPanels | ops.SmemDescriptor
    ):
        for by in PLACES:
            yield f"offset {by:+d}", replace(op, offset=op.offset + by)
    if isinstance(op, ops.TmaStore | ops.ThreadStore):
        for by in PLACES[:3]:
            yield f"apart {by}", replace(op, apart=by)
    if isinstance(op, ops.MbarrierArrive):
        for flag in ("each_warp", "each_thread"):
            held = not getattr(op, flag)
            yield f"{flag} {held}", replace(op, **{flag: held})
    if isinstance(op, ops.WgmmaWait):
        yield "pending +2", replace(op, pending=op.pending + 2)
    if isinstance(op, ops.StoreGlobal) and op.pred is not None:
        yield "no pred", replace(op, pred=None)
    if isinstance(op, ops.WarpgroupIndex):
        yield "the first", ops.Constant(result=op.result, value=0)
    if isinstance(op, ops.If):
        yield "the other way if", replace(op, then=op.orelse, orelse=op.then)


def in_scope(
    region: Region, known: tuple[Value, ...] = ()
) -> Iterator[tuple[Op, tuple[Value, ...]]]:
    """Each op, in the order of `walk`, and what it may use."""
    for op in region:
        yield op, known
        for inner in regions(op):
            yield from in_scope(inner, (*known, *bound(op)))
        known = (*known, *results_of(op))


def replace_operand(op: Op, held: Value, other: Value) -> Op:
    """The op with one operand exchanged, wherever it is named."""
    values = {field.name: getattr(op, field.name) for field in fields(op)}
    for name, value in values.items():
        if value == held:
            return replace(op, **{name: other})
        if isinstance(value, tuple) and held in value:
            return replace(op, **{name: tuple(other if v == held else v for v in value)})
    return op


def other_values(op: Op, known: tuple[Value, ...]) -> Iterator[tuple[str, Op]]:
    """Another state or accumulator in scope, another start of an operand, and other bounds of a
    loop, which some other op uses.
    """
    state = getattr(op, "state", None)
    if isinstance(state, Value):
        for other in known:
            if isinstance(other.type, State) and other != state:
                yield f"state %{other.name}", replace(op, state=other)
    for held in operands(op):
        for other in known if isinstance(held.type, Accumulator) else ():
            if other.type == held.type and other not in operands(op):
                yield f"acc %{other.name}", replace_operand(op, held, other)
    if isinstance(op, ops.SmemDescriptor) and op.start is not None:
        for other in known:
            if other.type == op.start.type and other != op.start:
                yield f"start %{other.name}", replace(op, start=other)
    if isinstance(op, ops.ForRange):
        for field in ("start", "stop", "step"):
            held: Value = getattr(op, field)
            for other in known[-LAST:]:
                if other.type == held.type and other not in operands(op):
                    yield f"{field} %{other.name}", replace(op, **{field: other})


def depths(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """All pipelines of one depth with one stage less, or more."""
    for num in sorted({op.num for op in kernel.ops if isinstance(op, ops.Advance)}):
        for by in (-1, 1):

            def region(before: Region, num: int = num, by: int = by) -> Region:
                return tuple(
                    replace(op, num=num + by)
                    if isinstance(op, ops.Advance) and op.num == num
                    else with_regions(op, region)
                    for op in before
                )

            yield f"depth {num} {by:+d}", replace(kernel, body=region(kernel.body))


def moved(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """A release, a wait or a fence two places earlier or later."""
    for at, op in enumerate(walk(kernel.body)):
        if not isinstance(
            op, ops.MbarrierArrive | ops.MbarrierWait | ops.FenceAsyncProxy | ops.WgmmaWait
        ):
            continue
        for by in (-2, 2):

            def visit(region: Region, moving: Op = op, by: int = by) -> Region:
                made = [with_regions(x, visit) for x in region]
                place = next((n for n, x in enumerate(region) if x is moving), -1)
                if place >= 0 and 0 <= place + by < len(made) - 1:
                    made.insert(place + by, made.pop(place))
                return tuple(made)

            body = visit(kernel.body)
            if in_order(body) != in_order(kernel.body):
                yield (
                    f"move {by:+d} op {at}: {print_head(op)}",
                    replace(kernel, body=body),
                )


def fields_of(op: Op, known: tuple[Value, ...]) -> Iterator[tuple[str, Op]]:
    """Every attribute that is a number or a flag, a bit or a unit more and less; every operand
    exchanged for others of its type; the op under a condition that does not hold."""
    for field in fields(op):
        held = getattr(op, field.name)
        if isinstance(held, bool):
            yield f"flag:{field.name}", replace(op, **{field.name: not held})
        elif isinstance(held, int):
            for other in {held + 1, held - 1, held + 32, 2 * held, held // 2} - {held, -1}:
                made = replace(op, **{field.name: other})
                yield f"number:{field.name} {other}", made
    for held in operands(op):
        alike = [x for x in known if x.type == held.type and x != held]
        for other in (*alike[:2], *alike[-4:]):
            yield f"operand %{held.name} %{other.name}", replace_operand(op, held, other)


def omitted(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Ops without results left out, done twice, or under a condition that does not hold."""
    never = Value("never", Tile(DTYPES["bool"]))
    false = ops.Constant(result=never, value=False)
    for at, op in enumerate(walk(kernel.body)):
        if results_of(op) or isinstance(op, ops.Yield) or regions(op):
            continue
        test = ops.If(cond=never, then=(op, ops.Yield()), orelse=(ops.Yield(),))
        for what, made in ("omit", ()), ("double", (op, op)), ("never", (test,)):
            body = exchange(kernel, at, *made).body
            body = (false, *body) if what == "never" else body
            yield f"{what} op {at}: {print_head(op)}", replace(kernel, body=body)


def hostile_mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """(what was broken, the kernel)."""
    yield from swaps(kernel)
    yield from moved(kernel)
    yield from depths(kernel)
    yield from omitted(kernel)
    for at, (op, known) in enumerate(in_scope(kernel.body)):
        changed = others(op, kernel), other_values(op, known), fields_of(op, known)
        for what, new in itertools.chain(*changed):
            yield f"{what} op {at}: {print_head(op)}", exchange(kernel, at, new)
