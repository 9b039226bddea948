"""Find the contraction loop of a kernel that split-K and stream-K split among CTAs.

It is the only loop in the output loops, after no store, carries nothing but accumulators that begin
as zeros (`fuse_accumulators` sees to it) and are only ever added to, and stores nothing. The
epilogue then runs once, with the whole accumulators. Where rows are reduced, and each split stores
a partial result per column (`leaves_lines`), the loop may also carry a maximum and a minimum, and
each split may traverse its part of the dimension again after the loop.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from wsdsl.diagnostics import Finding, Loc
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, regions
from wsdsl.ir.ops import OVER_AXIS, Contract, DimLoop, ForTiles, If, Map, Store
from wsdsl.ir.rewriter import unnumbered, used_inside, walk, yielded
from wsdsl.ir.types import Axis, Tile
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.register_layout import reduces_rows
from wsdsl.lowering.zero_padding import adds_outside, tiles_of_zeros

HINT = 'use scheduler="persistent"'


def cut_loop(body: Region, *, lines: bool = False) -> ForTiles | None:
    """Return the loop, in the body of the output loops; None if `why_not` has a reason."""
    loops = [op for op in body if isinstance(op, ForTiles)]
    return loops[0] if loops and not list(why_not(body, lines=lines)) else None


def contracted_variable(body: Region) -> str | None:
    """Return the variable of the first loop that carries values, which CTAs may split."""
    loop = next((op for op in body if isinstance(op, ForTiles) and op.init), None)
    if loop is None or not isinstance(loop.index.type, Axis):
        return None
    return loop_variable(loop.index.type.name)


def leaves_lines(kernel: Kernel, reduction: str | None) -> bool:
    """Whether each split of a tile stores a partial result per column."""
    return reduction == "parallel" and reduces_rows(kernel)


def why_not(body: Region, *, lines: bool = False) -> Iterator[Finding]:
    """Say why the contraction cannot be split; `lines`: into partial results per column."""
    for why, loc, hint in _reasons(body, lines):
        yield Finding(f"WS0451 the contraction cannot be split: {why}", loc, hint)


def _reasons(body: Region, lines: bool) -> Iterator[tuple[str, Loc | None, str]]:
    loops = [op for op in body if regions(op)]
    if lines:
        loops = [op for op in loops if op is loops[0] or not goes_again(loops[0], op)]
    if len(loops) != 1 or not isinstance(loops[0], ForTiles) or not loops[0].init:
        others = [op for op in loops if not (isinstance(op, ForTiles) and op.init)]
        found = next(iter([*others, *loops[1:]]), None)
        why, hint = "the kernel needs 1 sequential loop over tiles, with an accumulator", HINT
        if isinstance(found, If):
            why, hint = "an `if` is outside its loop", f"select with where(…), or {HINT}"
        yield why, found.loc if found else None, hint
        return
    loop = loops[0]
    if loop.start is not None or loop.stop is not None:
        yield "its loop covers a part of a dimension", loop.loc, HINT
    if written := next((op for op in walk(loop.body) if isinstance(op, Store)), None):
        yield "its loop stores", written.loc, HINT
    if before := next((op for op in body[: body.index(loop)] if isinstance(op, Store)), None):
        hint = f"store after the loop, or {HINT}"
        yield "each split would repeat this store before its loop", before.loc, hint
    after = body[body.index(loop) + 1 :]
    if product := next((op for op in walk(after) if isinstance(op, Contract)), None):
        yield "this matmul after its loop needs the whole result", product.loc, HINT
    zeros = tiles_of_zeros(body)
    for init, arg, last in zip(loop.init, loop.args, yielded(loop.body), strict=True):
        name = unnumbered(arg.name)
        if lines and joined_by(loop.body, arg, last) != "add":
            continue  # A maximum's or minimum's initial value may be joined once more.
        if not (isinstance(arg.type, Tile) and arg.type.axes and arg.type.dtype.bits == 32):
            yield f"`{name}` is not a 32-bit accumulator tile", loop.loc, HINT
        elif init not in zeros or not grows(loop.body, arg, last):
            yield f"`{name}` does not start at 0, or is not only added to", loop.loc, HINT


def goes_again(cut: Op, loop: Op) -> bool:
    """Whether a loop after the split one traverses the same dimension, carries nothing, and stores
    at its indices, or at indices that are computed from them: each split then has a part of it,
    with the whole accumulators.
    """
    if not isinstance(cut, ForTiles) or not isinstance(loop, ForTiles) or loop.init:
        return False
    part = loop.start or loop.stop or loop.whole
    index, name = loop.index, loop.index.as_axis.name
    places = [op.index for op in walk(loop.body) if isinstance(op, Store)]
    own = all(any(v == index or name in v.axes for v in place) for place in places)
    return not part and loop.dim == cut.dim and own


def joined_by(body: Region, arg: Value, last: Value) -> str:
    """Return the only function that joins a carried value with others, "add" by default."""
    if arg == last:
        return "add"
    return next((fn for fn in ("max", "min") if grows(body, arg, last, fn=fn)), "add")


def grows(
    body: Region, arg: Value, last: Value, *, by_products: bool = False, fn: str = "add"
) -> bool:
    """Whether `last` is `arg` plus other values (`by_products`: MMAs alone; or joined by another
    `fn`), and nothing else reads the values between the two.
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
        case DimLoop() as loop if arg in loop.init and arg not in used_inside(loop):
            i = loop.init.index(arg)
            how = dict[str, Any](by_products=by_products, fn=fn)
            if not grows(loop.body, loop.args[i], yielded(loop.body)[i], **how):
                return False
            following = loop.result[i]
        case _:
            return False
    return grows(body, following, last, by_products=by_products, fn=fn)


def why_not_shared(
    kernel: Kernel, body: Region, told: str = " for consumers to split"
) -> Iterator[Finding]:
    """Say why consumers that split a tile cannot store its partial results independently."""
    loop, axes = cut_loop(body), axes_of(kernel)
    assert loop is not None
    for sum in loop.result:
        if isinstance(sum.type, Tile) and not any(axes[a].role == "rows" for a in sum.type.axes):
            told = f"WS0452 `{unnumbered(sum.name)}` has no rows{told}"
            yield Finding(told, loop.loc, "use consumers=1")


def why_not_parallel(kernel: Kernel, body: Region) -> Iterator[Finding]:
    """Say why CTAs cannot reduce the partial results of a tile by slices of its columns."""
    for why, loc in _reasons_by_columns(kernel, body):
        told = f"WS0453 CTAs cannot reduce slices of the columns: {why}"
        yield Finding(told, loc, 'use reduction="serial"')


def _reasons_by_columns(kernel: Kernel, body: Region) -> Iterator[tuple[str, Loc | None]]:
    loop, axes = cut_loop(body, lines=reduces_rows(kernel)), axes_of(kernel)
    assert loop is not None
    columns = {a for a, axis in axes.items() if axis.role == "columns"}
    own: set[str] = set()
    for sum in loop.result:
        if not columns & {*sum.as_tile.axes}:
            yield f"`{unnumbered(sum.name)}` has no columns", loop.loc
        own |= columns & {*sum.as_tile.axes}
    if len(own) > 1:
        differ = ", ".join(sorted(map(loop_variable, own)))
        yield f"accumulators have different columns, {differ}", loop.loc
    outside = list(walk(tuple(op for op in body if op != loop)))
    for op in outside:
        if isinstance(op, OVER_AXIS) and op.axis in columns:
            yield f"this needs whole rows, all columns of `{op.axis}`", op.loc
        if isinstance(op, Contract):
            yield "this matmul needs whole tiles", op.loc
    stores = [op for op in outside if isinstance(op, Store)]
    for op in stores:
        if not own & _axes(op):
            yield f"each slice would repeat this {'add' if op.accumulate else 'store'}", op.loc
    for first, op in combinations(stores, 2):
        if first.tensor == op.tensor and first.index != op.index:
            yield f"slices may store the same elements of `{op.tensor.name}`", op.loc


def _axes(op: Store) -> set[str]:
    """Return the axes that the index of a store depends on."""
    kinds = [v.type for v in op.index]
    named = {kind.name for kind in kinds if isinstance(kind, Axis)}
    return named | {a for kind in kinds if isinstance(kind, Tile) for a in kind.axes}


def why_not_by_cluster(kernel: Kernel, body: Region) -> Iterator[Finding]:
    """Say why the CTAs of a cluster cannot split a contraction: they send fragments of 64 rows, and
    all of them take equally many steps, so that the last may be beyond the end.
    """
    yield from why_not_parallel(kernel, body)
    yield from why_not_shared(kernel, body, told="")
    loop = cut_loop(body)
    assert loop is not None
    for arg in adds_outside(loop, body):
        name, dim = unnumbered(arg.name), loop.index.as_axis.dim
        told = f"WS0454 a step beyond the end of {dim} may add to `{name}` other values than 0"
        yield Finding(told, loop.loc)
