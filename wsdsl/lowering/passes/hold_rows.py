"""Take out loops along rows that a tile has whole, so that what is loaded of a row is held.

Before:
    %s2: f32[m] = for_tiles(index=%n: axis<n of N by 8192 columns>, init=(%s0,), args=(%s,)) {
      %x: bf16[m, n] = load(tensor=%X, index=(%m, %n))
      ...
      yield(values=(%s1,))
    }
    for_tiles(index=%n_1: axis<n_1 of N by 8192 columns>) {
      %x_1: bf16[m, n_1] = load(tensor=%X, index=(%m, %n_1))
      ...
    }
After:
    %n: axis<n of N by 8192 columns> = whole()
    %x: bf16[m, n] = load(tensor=%X, index=(%m, %n))
    ...

Loops over one dimension have one axis then, and what they load of the same place is loaded once, if
nothing is stored there in between. The CTAs of a cluster share rows that are too long for one, and
have a tile each: the axis becomes the innermost loop of the output.

Why here: tile sizes say which loops have one turn; partitions come next.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial

from wsdsl.ir.op import Kernel, Op, Region, Value, with_fields
from wsdsl.ir.ops import DimLoop, ForTiles, Reduce, ReduceBlocks, Whole, Yield
from wsdsl.ir.rewriter import definitions, replace_operands, retype, with_regions, yielded
from wsdsl.ir.types import Axis, Sizes, Tile
from wsdsl.lowering.axes import axes_of, output_nest
from wsdsl.lowering.batch_coarsening import loaded_once
from wsdsl.lowering.cooperation import cluster_along
from wsdsl.lowering.held_rows import are_held, held_axes


def hold_rows(kernel: Kernel) -> Kernel:
    assert kernel.schedule is not None
    held, axes = held_axes(kernel), axes_of(kernel)
    if not are_held(kernel, kernel.schedule, {name: axes[name].size for name in held}):
        return kernel
    ctas = {name: cluster_along(kernel.schedule, name) for name in held}
    first: dict[str, Value] = {}
    for op in kernel.ops:
        if (index := _taken(op)) is not None and index.as_axis.name in held:
            first.setdefault(index.as_axis.dim, index)
    nest = [op.index for op in output_nest(kernel)[0]]
    outer = {index.as_axis.dim: index for index in nest if isinstance(index.type, Axis)}
    same = {name: (outer | first)[axes[name].dim] for name in held}
    apart = [i for i in first.values() if ctas[i.as_axis.name] > 1 and i.as_axis.dim not in outer]
    whole = [i for i in first.values() if i not in apart and i not in nest]
    body = _without(kernel.body, same, {*nest}, {})
    body = _renamed(kernel, body, same, ctas)
    for index in apart:
        body = _around(body, index, nest[-1])
    body = (*(Whole(result=index, loc=kernel.loc) for index in whole), *body)
    return kernel.with_body(loaded_once(body, {}))


def _taken(op: Op) -> Value | None:
    return op.index if isinstance(op, ForTiles) else op.result if isinstance(op, Whole) else None


def _around(region: Region, index: Value, last: Value) -> Region:
    """A loop over the tiles of a cluster's CTAs around what the output's `last` loop runs."""
    kept: list[Op] = []
    for op in region:
        if isinstance(op, DimLoop) and op.index == last:
            inner = ForTiles(index=index, body=op.body, loc=op.loc)
            kept.append(with_fields(op, body=(inner, Yield())))
        else:
            kept.append(with_regions(op, partial(_around, index=index, last=last)))
    return tuple(kept)


def _without(
    region: Region, same: Mapping[str, Value], nest: set[Value], swap: dict[Value, Value]
) -> Region:
    """The region with the loops' bodies in their place, but for the output's."""
    kept: list[Op] = []
    for op in region:
        op = replace_operands(op, swap, inside=False)
        index = _taken(op)
        held = index is not None and index not in nest and index.as_axis.name in same
        if held and isinstance(op, Whole):
            swap[op.result] = same[op.result.as_axis.name]
        elif held and isinstance(op, ForTiles):
            swap |= {op.index: same[op.index.as_axis.name]}
            swap |= dict(zip(op.args, op.init, strict=True))
            kept += _without(op.body[:-1], same, nest, swap)
            last = (swap.get(v, v) for v in yielded(op.body))
            swap |= dict(zip(op.result, last, strict=True))
        else:
            kept.append(with_regions(op, partial(_without, same=same, nest=nest, swap=swap)))
    return tuple(kept)


def _renamed(kernel: Kernel, body: Region, same: Mapping[str, Value], ctas: Sizes) -> Region:
    """Tiles along one of the axes are along the one that stands for it, and reduced with those of
    so many CTAs.
    """
    names = {name: index.as_axis.name for name, index in same.items()}

    def change(value: Value) -> Value:
        kind = value.type
        if not isinstance(kind, Tile) or not {*kind.axes} & names.keys():
            return value
        axes = tuple(names.get(axis, axis) for axis in kind.axes)
        return Value(value.name, dataclasses.replace(kind, axes=axes))

    swap = {v: change(v) for v in definitions(kernel)}

    def reduced(op: Op) -> Op:
        if isinstance(op, Reduce) and op.axis in names:
            op = with_fields(op, axis=names[op.axis], ctas=ctas[op.axis])
        elif isinstance(op, ReduceBlocks) and op.axis in names:
            op = with_fields(op, axis=names[op.axis])
        return with_regions(op, lambda inner: tuple(reduced(o) for o in inner))

    return tuple(reduced(op) for op in retype(body, swap))
