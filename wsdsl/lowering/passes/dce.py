"""Run DCE (TILE): remove unused values, loops with unused results, and unused carried variables.

Before:
    %r: bf16[m, n] = load(tensor=%R, index=(%m, %n))
    %wide: f32[m, n] = cast(x=%r)
    %y: f32[m, n], %z: f32 = for_tiles(index=%k: axis<K>, init=(%a, %b), args=(%p, %q)) {
        ...
        yield(values=(%p_1, %q_1))
    }
    store(tensor=%C, index=(%m, %n), value=%y)
After:
    %y: f32[m, n] = for_tiles(index=%k: axis<K>, init=(%a,), args=(%p,)) {
        ...
        yield(values=(%p_1,))
    }
    store(tensor=%C, index=(%m, %n), value=%y)

Why here: first, so that no pass counts, loads or waits for dead values.
"""

from collections.abc import Sequence
from functools import partial
from itertools import compress

from wsdsl.ir.op import Kernel, Op, Region, Value, operands, regions, results_of, with_fields
from wsdsl.ir.ops import DimLoop, ForTiles, If, Whole, Yield
from wsdsl.ir.rewriter import walk, with_regions, yielded
from wsdsl.ir.types import Axis, Tile


def dce(kernel: Kernel) -> Kernel:
    return kernel.with_body(without_unused(kernel.body))


def without_unused(body: Region) -> Region:
    """The body of a TILE kernel, but for what no store needs."""
    needed: set[Value] = set()
    count = -1
    while count < len(needed):
        count = len(needed)
        _add_needed(body, needed)
    return _shortened(body, needed)


def _add_needed(body: Region, needed: set[Value]) -> None:
    """Add the operands of needed ops, one step further around a loop per call."""
    for op in reversed(body):
        if not _stays(op, needed):
            continue
        match op:
            case DimLoop():
                for four in zip(op.result, op.args, op.init, yielded(op.body), strict=True):
                    needed.update(four if needed & {*four[:2]} else ())
                if isinstance(op, ForTiles):
                    bounds = op.start, op.stop, op.every, op.offset
                    needed.update(v for v in bounds if v is not None)
            case If():
                needed.add(op.cond)
                for three in zip(op.result, yielded(op.then), yielded(op.orelse), strict=True):
                    needed.update(three if three[0] in needed else ())
            case Yield():
                pass
            case _:
                needed.update(operands(op))
        for inner in regions(op):
            _add_needed(inner, needed)


def _stays(op: Op, needed: set[Value]) -> bool:
    """Whether its results are needed, or it does something. A dimension that is taken whole is
    needed where a tile has its axis, though nothing is loaded along it.
    """
    if isinstance(op, Whole) and isinstance(kind := op.result.type, Axis):
        along = (v.type.axes for v in needed if isinstance(v.type, Tile))
        return op.result in needed or any(kind.name in axes for axes in along)
    inner = (o for o in walk((op,)) if not isinstance(o, Yield))
    does = any(not results_of(o) and not regions(o) for o in inner)
    return does or isinstance(op, Yield) or not needed.isdisjoint(results_of(op))


def _shortened(body: Region, needed: set[Value], carried: Sequence[bool] = ()) -> Region:
    """`carried`: which of the values stay that the body yields."""
    made: list[Op] = []
    for op in body:
        if not _stays(op, needed):
            continue
        stay, names = carried, ("values",) if isinstance(op, Yield) else ()
        if isinstance(op, DimLoop | If):
            stay = [v in needed for v in op.result]
            op = with_regions(op, partial(_shortened, needed=needed, carried=stay))
            names = ("result",) if isinstance(op, If) else ("result", "init", "args")
        if names and not all(stay):
            kept = {n: tuple(compress(getattr(op, n), stay)) for n in names}
            op = with_fields(op, **kept)
        made.append(op)
    return tuple(made)
