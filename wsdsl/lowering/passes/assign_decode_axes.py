"""Give the axes of a decode partition names and roles of their own.

Before:
    %ring = pipeline(depth=4, layouts=((i8[n, k],),))
    partition(role="decode") {
      for_work(index=(%m: axis<m of M by 128 rows>, %n: axis<n of N by 256 columns>), ...) {
        for_tiles(index=%k: axis<k of K by 64>) {
          %slot = consumer_wait(ring=%ring)
          %w: i8[n, k] = slot_elements(slot=%slot, field=0, tensor=%W, index=(%n, %k))
After:
    %ring = pipeline(depth=4, layouts=((i8[n_decode, k_decode],),))
    partition(role="decode") {
      for_work(index=(%m: axis<m of M by 128 rows>, %n: axis<n_decode of N by 256 rows>), ...) {
        for_tiles(index=%k: axis<k_decode of K by 64 columns>) {
          %slot = consumer_wait(ring=%ring)
          %w: i8[n_decode, k_decode] = slot_elements(slot=%slot, field=0, ...)

Its fragments run along the lines of the tiles that it writes, those of the consumers as the
product's sums do.

Why here: whatever cuts the partitions' loops alike knows them by their axes, and has done so.
"""

import dataclasses
from collections.abc import Callable, Iterable

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, bound, operands, results_of, with_fields
from wsdsl.ir.rewriter import Namer, definitions, retype, rewrite, walk
from wsdsl.ir.types import Axis, Role, Tile, Type
from wsdsl.lowering.axes import axes_of


def assign_decode_axes(kernel: Kernel) -> Kernel:
    body = list(kernel.body)
    for place, op in enumerate(kernel.body):
        if isinstance(op, ops.Partition) and op.role == "decode":
            rings = {ring.result: ring for ring in body if isinstance(ring, ops.Pipeline)}
            others = tuple(other for other in kernel.body if other is not op)
            names = _names(kernel, others, _roles(op, rings))
            change = _change(names)
            own = (*_taken_whole(kernel, op, names), *op.body)
            body[place] = with_fields(op, body=_retyped(own, change, names))
            read = {inner.ring for inner in walk(op.body) if isinstance(inner, ops.ConsumerWait)}
            body = [
                _laid_out(ring, change)
                if isinstance(ring, ops.Pipeline) and ring.result in read
                else ring
                for ring in body
            ]
    return kernel.with_body(tuple(body))


def _roles(partition: ops.Partition, rings: dict[Value, ops.Pipeline]) -> dict[str, Role]:
    """Of the axes of what the partition writes, whose lines run along the last one."""
    slots = {op.result: op for op in walk(partition.body) if isinstance(op, ops.ProducerAcquire)}
    found: dict[str, Role] = {}
    for op in walk(partition.body):
        if isinstance(op, ops.StoreToSlot):
            slot = slots[op.slot]
            rows, columns = rings[slot.ring].layouts[slot.layout][op.field].axes
            found |= {rows: "rows", columns: "columns"}
    return found


def _names(kernel: Kernel, others: Region, roles: dict[str, Role]) -> dict[str, tuple[str, Role]]:
    """By axis, its name and role in the partition. The name stays of an axis that no op outside of
    the partition defines: a dimension that products take whole."""
    namer = Namer(v.type.name for v in definitions(kernel) if isinstance(v.type, Axis))
    shared = _defined(others)
    return {
        axis: (namer.new(f"{axis}_decode") if axis in shared else axis, role)
        for axis, role in roles.items()
    }


def _defined(region: Region) -> set[str]:
    """Names of axes."""
    values = (v for op in walk(region) for v in (*results_of(op), *bound(op)))
    return {v.type.name for v in values if isinstance(v.type, Axis)}


def _taken_whole(kernel: Kernel, partition: ops.Partition, names: Iterable[str]) -> list[ops.Whole]:
    """Axes along which the partition computes tiles, and which only others index tensors by."""
    namer, missing = Namer.of(kernel), {*names} - _defined(partition.body)
    return [
        ops.Whole(result=Value(namer.new(name), axes_of(kernel)[name]), loc=partition.loc)
        for name in sorted(missing)
    ]


def _change(names: dict[str, tuple[str, Role]]) -> Callable[[Type], Type]:
    def change(kind: Type) -> Type:
        if isinstance(kind, Axis) and kind.name in names:
            name, role = names[kind.name]
            return dataclasses.replace(kind, name=name, role=role)
        if isinstance(kind, Tile):
            return Tile(kind.dtype, tuple(names[x][0] if x in names else x for x in kind.axes))
        return kind

    return change


def _over(op: Op, names: dict[str, tuple[str, Role]]) -> Op:
    """What is reduced is named, too."""
    if not isinstance(op, ops.ReduceBlocks) or op.axis not in names:
        return op
    return with_fields(op, axis=names[op.axis][0])


def _retyped(
    region: Region, change: Callable[[Type], Type], names: dict[str, tuple[str, Role]]
) -> Region:
    values = {v for op in walk(region) for v in (*results_of(op), *bound(op), *operands(op))}
    made = retype(region, {v: Value(v.name, change(v.type)) for v in values})
    return rewrite(made, lambda op: (_over(op, names),))


def _laid_out(op: ops.Pipeline, change: Callable[[Type], Type]) -> ops.Pipeline:
    changed = [[change(tile) for tile in layout] for layout in op.layouts]
    layouts = tuple(tuple(t for t in layout if isinstance(t, Tile)) for layout in changed)
    return with_fields(op, layouts=layouts)
