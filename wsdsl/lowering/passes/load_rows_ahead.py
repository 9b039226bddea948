"""Load rows that are seldom taken from elsewhere an iteration before they are.

Before:
    %acc2 = for_range(index=%k, ..., step=%c64, init=(%p0, ...), args=(%p1, ...)) {
      %kept: frag<bool[64x1]> = map(fn="lt", args=(%p1, %c64))
      %x: frag<bf16[64x32]> = load_global(tensor=%V, index=(%p1, %columns))
      %y: frag<bf16[64x32]> = map(fn="where", args=(%kept, %x, %w))
      ...
      yield(values=(%p2, ...))
    }
After:
    %x0 = load_global(tensor=%V, index=(%p0, %columns0), only=%kept0)
    %acc2, ... = for_range(index=%k, ..., init=(%p0, ..., %x0, %kept0),
                              args=(%p1, ..., %x1, %kept1)) {
      %y: frag<bf16[64x32]> = map(fn="where", args=(%kept1, %x1, %w))
      fence_async_proxy()
      %kept2: frag<bool[64x1]> = map(fn="lt", args=(%p2, %c64))
      %x2 = load_global(tensor=%V, index=(%p2, %columns2), in_order=True, only=%kept2)
      ...
      yield(values=(%p2, ..., %x2, %kept2))
    }

A warp that takes such a row waits for memory, and with it the three others that share its product
and whoever shares the tensor cores: with one row of 128 kept, a third of a warpgroup's steps. The
load stands behind what reads the last one, whose registers it takes, and behind the fence by which
slots go back, which waits for all that a thread has begun to load; it has most of an iteration.
Nobody reads what it brings for other rows. These are not loaded, each by a predicate: at a branch
between products and their wait ptxas starts another product, of nothing, which the wait then leaves
in flight instead.

What says where the rows are, and is loaded an iteration ahead, is then loaded two ahead. A load
that takes another one of its own iteration stands where the choice is, and loads what that takes.
One of what the kernel writes stays as it is.

Why here: behind `lower_tiles`, which cuts operands where products are.
"""

import dataclasses
from collections import Counter
from collections.abc import Container, Iterator, Mapping

from wsdsl.ir import rewriter
from wsdsl.ir.analysis.tensor_accesses import written_tensors
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of, with_fields
from wsdsl.ir.ops import FenceAsyncProxy, ForRange, LoadGlobal, Map, MbarrierArrive, SyncWarp, Yield
from wsdsl.ir.types import BOOL, Fragment
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.loads_ahead import with_place


def load_rows_ahead(kernel: Kernel) -> Kernel:
    if not kernel.of(LoadGlobal):
        return kernel
    b, used = Builder(rewriter.Namer.of(kernel)), Counter(rewriter.uses(kernel.body))
    stored = written_tensors(kernel)

    def change(op: Op) -> Region:
        if not isinstance(op, ForRange):
            return (op,)
        with b.region() as made:
            for choice, load in choices_of_rows(op.body, used, stored):
                op = _ahead(op, choice, load, b)
            b.add(op)
        return tuple(made)

    return kernel.with_body(rewriter.rewrite(kernel.body, change))


def _ahead(loop: ForRange, choice: Map, load: LoadGlobal, b: Builder) -> ForRange:
    """The loop with this load an iteration ahead; adds the first one in front of it."""
    kept = choice.args[0]
    needed = with_place(loop.body, load, kept)
    if not needed:
        return _beside(loop, choice, load)
    # What the next iteration was loaded already would have to be waited for.
    read, made = {v for op in needed for v in operands(op)}, rewriter.definers(loop.body)
    for arg, last in zip(loop.args, rewriter.yielded(loop.body), strict=True):
        before = made.get(last)
        if arg in read and isinstance(before, LoadGlobal) and with_place(loop.body, before):
            loop = _carried(loop, before, with_place(loop.body, before), None, before, b)
            made = rewriter.definers(loop.body)
    return _carried(loop, load, needed, kept, choice, b)


def _beside(loop: ForRange, choice: Map, load: LoadGlobal) -> ForRange:
    """The loop with this load where the choice is, of the rows that it takes."""
    at, own = loop.body.index(choice), with_fields(load, only=choice.args[0])
    body = (op for op in (*loop.body[:at], own, *loop.body[at:]) if op is not load)
    return with_fields(loop, body=tuple(body))


def _carried(
    loop: ForRange, load: LoadGlobal, needed: Region, kept: Value | None, reader: Op, b: Builder
) -> ForRange:
    """The loop that carries what a load brings, which is made behind its `reader` for the next
    iteration, of rows that are `kept` if that is given.
    """
    b.loc = load.loc
    read = {kept, *(v for op in needed for v in operands(op))}
    nexts = dict(zip(loop.args, rewriter.yielded(loop.body), strict=True))
    known = {last for arg, last in nexts.items() if arg in read}
    firsts = dict(zip(loop.args, loop.init, strict=True)) | {loop.index: loop.start}
    first = _add(needed, kept, load, firsts, b)
    fenced = _behind_fences(loop.body)
    ends = (i for i, op in enumerate(loop.body) if op is reader or known & {*results_of(op)})
    at = max(1 + max(ends), fenced)
    with b.region() as ahead:
        nexts[loop.index] = b.plus(loop.index, loop.step, "next")
        following = _add(needed, kept, load, nexts, b, in_order=fenced > 0)
    carried = [(load.result, first.result, following.result)]
    if kept and first.only and following.only and following.only != kept:
        # Not made anew: of what it is made, the next one may then take the registers.
        carried.append((kept, first.only, following.only))
    args = {value: b.value(value.name, value.type) for value, _, _ in carried}
    swap = {load.result: args[load.result]}
    body = (op for op in (*loop.body[:at], *ahead, *loop.body[at:-1]) if op is not load)
    last = (*(swap.get(v, v) for v in rewriter.yielded(loop.body)), *(v for _, _, v in carried))
    return with_fields(
        loop,
        result=(*loop.result, *(b.value(value.name, value.type) for value in args)),
        init=(*loop.init, *(v for _, v, _ in carried)),
        args=(*loop.args, *args.values()),
        body=(
            *(rewriter.replace_operands(op, args if op is reader else swap) for op in body),
            Yield(values=last, loc=loop.loc),
        ),
    )


def _behind_fences(body: Region) -> int:
    """Behind the last fence for slots that go back: it waits for all loads that have begun."""
    at = 0
    for i, op in enumerate(body):
        follows = at == i and isinstance(op, SyncWarp | MbarrierArrive)
        at = i + 1 if follows or isinstance(op, FenceAsyncProxy) else at
    return at


def _add(
    needed: Region,
    kept: Value | None,
    load: LoadGlobal,
    swap: dict[Value, Value],
    b: Builder,
    in_order: bool = False,
) -> LoadGlobal:
    """What the load needs, and the load, of another iteration."""
    others = tuple(op for op in needed if op is not load)
    b.copy(others, swap)
    made = rewriter.replace_operands(load, swap)
    assert isinstance(made, LoadGlobal)
    result, only = b.value(load.result.name, load.result.type), kept and swap.get(kept, kept)
    in_order = in_order or made.in_order
    return b.add(dataclasses.replace(made, result=result, only=only, in_order=in_order))


# Outlier rows.
def choices_of_rows(
    region: Region, used: Mapping[Value, int], stored: Container[str]
) -> Iterator[tuple[Map, LoadGlobal]]:
    """Each such choice, with the load, in the same region and of what nobody writes; `used`: how
    often a value is.
    """
    loads = {op.result: op for op in region if isinstance(op, LoadGlobal)}
    for op in region:
        if isinstance(op, Map) and op.fn == "where" and is_by_rows(op):
            load = loads.get(op.args[1])
            if load and load.tensor.name not in stored and not load.in_order:
                yield from ((op, load),) if used[load.result] == 1 else ()


def is_by_rows(op: Map) -> bool:
    """Whether a choice is between fragments of such elements, by a condition for each row."""
    cond, chosen, other = op.args
    kind = op.result.type
    return (
        isinstance(kind, Fragment)
        and kind.rows > 1
        and kind.columns > 1
        and (kind.dtype.bits == 8 or (kind.dtype.bits == 16 and kind.dtype.is_float))
        and chosen.type == other.type == kind
        and cond.type == Fragment(BOOL, kind.rows, 1)
    )
