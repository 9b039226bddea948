"""Indices of a loop over `each` that a CTA takes one after the other, since their tiles read
something that is the same for all: cosines that all heads are turned by, a mask of all channels.

What is the same is loaded, and made, once in front of them. `Schedule.tile` says how many it takes,
by the loop's variable.
"""

from functools import partial
from typing import Any

from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, regions, results_of
from wsdsl.ir.ops import ForEach, ForRange, ForWork, Load, Map, Store, Yield
from wsdsl.ir.rewriter import replace_operands, walk, with_regions
from wsdsl.lowering.axes import groups_of, output_nest
from wsdsl.lowering.builder import INT, Builder
from wsdsl.lowering.register_layout import holds_vectors, turned


@once
def taken_in_turns(kernel: Kernel) -> ForEach | None:
    """The loop, of a kernel with roles; None if there is none."""
    nest, body = output_nest(kernel)
    groups = groups_of(kernel)
    each = [loop for loop in nest if isinstance(loop, ForEach) and loop not in groups]
    if not each or any(regions(op) for op in body):
        return None
    stores = [op for op in body if isinstance(op, Store) and not op.accumulate]
    scattered = any(each[-1].index not in op.index for op in stores)
    if scattered or not holds_vectors(kernel) or turned(kernel):
        return None
    same, _ = in_front(body, each[-1].index)
    # A row or column takes next to nothing.
    whole = any(isinstance(op, Load) and len(op.result.axes) > 1 for op in same)
    return each[-1] if whole else None


def in_front(body: Region, index: Value) -> tuple[Region, Region]:
    """What is the same for all indices, and the rest."""
    stored = {op.tensor for op in body if isinstance(op, Store)}
    same, rest, own = list[Op](), list[Op](), {index}
    for op in body:
        read = isinstance(op, Load) and op.tensor in stored
        if own & {*operands(op)} or read or isinstance(op, Store | Yield):
            rest.append(op)
            own |= {*results_of(op)}
        else:
            same.append(op)
    return tuple(same), tuple(rest)


def one_by_one(b: Builder, op: ForWork, index: Value, first: Value, size: Value) -> Region:
    """What a work item does for its indices, of which it has the first."""
    same, rest = in_front(loaded_once(op.body, {}), index)
    stop = b.map("min", b.map("sub", size, first, wish="left"), b.integer(op.turns), wish="stop")
    turn = b.value("turn", INT)
    own = Map(result=index, fn="add", args=(first, turn), loc=op.loc)
    body = own, *(o for o in rest if not isinstance(o, Yield)), Yield()
    bounds = dict[str, Any](start=b.integer(0), stop=stop, step=b.integer(1))
    return *same, ForRange(index=turn, body=body, loc=op.loc, **bounds)


def loaded_once(region: Region, swap: dict[Value, Value]) -> Region:
    """Equal loads of a block are one, as far as nothing is stored to the tensor between them."""
    known: dict[tuple[object, ...], Value] = {}
    kept: list[Op] = []
    for op in region:
        op = replace_operands(op, swap, inside=False)
        inner = list(walk((op,))) if regions(op) else [op]
        stored = {o.tensor for o in inner if isinstance(o, Store)}
        known = {key: value for key, value in known.items() if key[0] not in stored}
        if isinstance(op, Load):
            key = (op.tensor, op.index, op.result.type)
            if key in known:
                swap[op.result] = known[key]
                continue
            known[key] = op.result
        kept.append(with_regions(op, partial(loaded_once, swap=swap)))
    return tuple(kept)
