"""Which loop of a kernel is a sum that several CTAs may share: what split-K and stream-K cut.

It stands in the output loops, beside no other loop and behind no store, carries nothing but sums
that begin as zeros (`fuse_accumulators` sees to it), each of which only ever grows by what is added
to it, and writes nothing. What comes after it then is done once, with the whole sums. Where rows
are reduced, and pieces leave lines (`leaves_lines`), the greatest and the least may be carried too,
and each piece may go over its part again behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, regions
from wsdsl.ir.tile_ops import OVER_AXIS, Contract, ForEach, ForTiles, If, Map, Store
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import unnumbered, used_inside, walk, yielded
from wsdsl.lowering.axes import axes_of, loop_variable, tile_axes
from wsdsl.lowering.lanes import reduces_rows
from wsdsl.lowering.zeros import adds_outside, tiles_of_zeros

HINT = 'use scheduler="persistent"'


def cut_loop(body: Region, *, lines: bool = False) -> ForTiles | None:
    """The loop, in the body of the output loops; None if there is none, see `why_not`."""
    loops = [op for op in body if isinstance(op, ForTiles)]
    return loops[0] if loops and not list(why_not(body, lines=lines)) else None


def contracted_variable(body: Region) -> str | None:
    """The variable of the first loop that carries anything. Whether CTAs can share it, others
    say.
    """
    loop = next((op for op in body if isinstance(op, ForTiles) and op.init), None)
    if loop is None or not isinstance(loop.index.type, Axis):
        return None
    return loop_variable(loop.index.type.name)


def leaves_lines(kernel: Kernel, reduction: str | None) -> bool:
    """Whether each piece of a tile leaves a line of what it has for each column."""
    return reduction == "parallel" and reduces_rows(kernel)


def why_not(body: Region, *, lines: bool = False) -> Iterator[Finding]:
    """What keeps the kernel's contraction from being cut; into pieces that leave `lines`."""
    loops = [op for op in body if regions(op)]
    if lines:
        loops = [op for op in loops if op is loops[0] or not goes_again(loops[0], op)]
    if len(loops) != 1 or not isinstance(loops[0], ForTiles) or not loops[0].init:
        others = [op for op in loops if not (isinstance(op, ForTiles) and op.init)]
        found = next(iter([*others, *loops[1:]]), None)
        told = "only a kernel with one sequential loop over tiles, a sum, can be cut into pieces"
        if isinstance(found, If):
            told = "a kernel with an `if` beside its sum can not be cut into pieces"
        hint = f"choose by where(…), or {HINT}" if isinstance(found, If) else HINT
        yield Finding(told, found.loc if found else None, hint)
        return
    loop = loops[0]
    if loop.start is not None or loop.stop is not None:
        yield Finding("a loop over a part of a dimension can not be cut", loop.loc, HINT)
    if written := next((op for op in walk(loop.body) if isinstance(op, Store)), None):
        yield Finding("a loop that stores can not be cut into pieces", written.loc, HINT)
    if before := next((op for op in body[: body.index(loop)] if isinstance(op, Store)), None):
        told = "what is stored in front of a sum can not be stored once for all of its pieces"
        yield Finding(told, before.loc, f"store it behind the sum, or {HINT}")
    behind = body[body.index(loop) + 1 :]
    if product := next((op for op in walk(behind) if isinstance(op, Contract)), None):
        yield Finding("a product behind a sum can not be made of its pieces", product.loc, HINT)
    zeros = tiles_of_zeros(body)
    for init, arg, last in zip(loop.init, loop.args, yielded(loop.body), strict=True):
        if lines and joined_by(loop.body, arg, last) != "add":
            continue  # What it begins with changes nothing where it is joined once more.
        if not (isinstance(arg.type, Tile) and arg.type.axes and arg.type.dtype.bits == 32):
            yield Finding(
                f"`{unnumbered(arg.name)}` is carried, and is no tile of 32-bit sums",
                loop.loc,
                HINT,
            )
        elif init not in zeros or not grows(loop.body, arg, last):
            yield Finding(
                f"`{unnumbered(arg.name)}` is no plain sum: it can not be cut", loop.loc, HINT
            )


def goes_again(cut: Op, loop: Op) -> bool:
    """Whether a loop behind the one that is cut goes over the same dimension, carries nothing, and
    stores at its indices, or places that are computed from them: each piece then has its own part
    of it, with the whole sums.
    """
    if not isinstance(cut, ForTiles) or not isinstance(loop, ForTiles) or loop.init:
        return False
    part = loop.start or loop.stop or loop.whole
    index, name = loop.index, loop.index.as_axis.name
    places = [op.index for op in walk(loop.body) if isinstance(op, Store)]
    own = all(any(v == index or name in tile_axes(v) for v in place) for place in places)
    return not part and loop.dim == cut.dim and own


def joined_by(body: Region, arg: Value, last: Value) -> str:
    """By which function what a loop carries is joined with others, and nothing else is done to it:
    "add" if there is no such one.
    """
    if arg == last:
        return "add"
    return next((fn for fn in ("max", "min") if grows(body, arg, last, fn=fn)), "add")


def grows(
    body: Region, arg: Value, last: Value, *, by_products: bool = False, fn: str = "add"
) -> bool:
    """Whether `last` is `arg` and what is added to it (`by_products`: by these alone; or joined to
    it by another `fn`), and nobody reads it on the way, nor what the body hands on of it.
    """
    users = [op for op in body if arg in {*operands(op), *used_inside(op)}]
    if len(users) != 1 or arg == last:
        return len(users) == 1
    match users[0]:
        case Contract(acc=acc, result=following) if acc == arg and fn == "add":
            pass
        case Map() if by_products:
            return False
        case Map(fn=own, args=args, result=following) if own == fn and args.count(arg) == 1:
            pass
        case Map(fn="fma", args=(a, b, c), result=following) if (
            fn == "add" and c == arg and arg not in (a, b)
        ):
            pass
        case ForTiles() | ForEach() as loop if arg in loop.init and arg not in used_inside(loop):
            i = loop.init.index(arg)
            how = dict[str, Any](by_products=by_products, fn=fn)
            if not grows(loop.body, loop.args[i], yielded(loop.body)[i], **how):
                return False
            following = loop.result[i]
        case _:
            return False
    return grows(body, following, last, by_products=by_products, fn=fn)


def why_not_shared(
    kernel: Kernel, body: Region, told: str = ", and all consumers hold the same"
) -> Iterator[Finding]:
    """What keeps consumers that share a tile from handing on their parts of it by themselves."""
    loop, axes = cut_loop(body), axes_of(kernel)
    assert loop is not None
    for sum in loop.result:
        if isinstance(sum.type, Tile) and not any(axes[a].role == "rows" for a in sum.type.axes):
            name = unnumbered(sum.name)
            yield Finding(f"`{name}` has no rows{told}", loop.loc, "use consumers=1")


def why_not_parallel(kernel: Kernel, body: Region) -> Iterator[Finding]:
    """What keeps CTAs from finishing a tile by columns."""
    loop, axes = cut_loop(body, lines=reduces_rows(kernel)), axes_of(kernel)
    assert loop is not None
    columns = {a for a, axis in axes.items() if axis.role == "columns"}
    hint = 'use reduction="serial"'
    own: set[str] = set()
    for sum in loop.result:
        if not columns & {*sum.as_tile.axes}:
            told = f"`{unnumbered(sum.name)}` has no columns that could be cut into slices"
            yield Finding(told, loop.loc, hint)
        own |= columns & {*sum.as_tile.axes}
    if len(own) > 1:
        told = f"the sums have different columns: {', '.join(sorted(map(loop_variable, own)))}"
        yield Finding(told, loop.loc, hint)
    outside = list(walk(tuple(op for op in body if op != loop)))
    for op in outside:
        if isinstance(op, OVER_AXIS) and op.axis in columns:
            told = f"this needs whole rows: all columns of `{op.axis}`"
            yield Finding(told, op.loc, hint)
        if isinstance(op, Contract):
            yield Finding("this product is of whole tiles", op.loc, hint)
    stores = [op for op in outside if isinstance(op, Store)]
    for op in stores:
        does = "add" if op.accumulate else "store"
        if not own & _axes(op):
            told = f"each slice of the columns would {does} this once more"
            yield Finding(told, op.loc, hint)
    for first, op in combinations(stores, 2):
        if first.tensor == op.tensor and first.index != op.index:
            told = f"slices of the columns may store the same elements of `{op.tensor.name}`"
            yield Finding(told, op.loc, hint)


def _axes(op: Store) -> set[str]:
    """All that the place of what is stored depends on."""
    kinds = [v.type for v in op.index]
    named = {kind.name for kind in kinds if isinstance(kind, Axis)}
    return named | {a for kind in kinds if isinstance(kind, Tile) for a in kind.axes}


def why_not_by_cluster(kernel: Kernel, body: Region) -> Iterator[Finding]:
    """What keeps the CTAs of a cluster from sharing a sum: they send fragments of 64 rows, and all
    of them take the same number of steps, so that the last may be beyond the end.
    """
    yield from why_not_parallel(kernel, body)
    yield from why_not_shared(kernel, body, told="")
    loop = cut_loop(body)
    assert loop is not None
    for arg in adds_outside(loop, body):
        name, dim = unnumbered(arg.name), loop.index.as_axis.dim
        told = f"what a step beyond the end of {dim} adds to `{name}` may not be 0"
        yield Finding(told, loop.loc)
