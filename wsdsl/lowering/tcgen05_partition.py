"""The partition that multiplies on tensor memory: one thread, which starts products and commits.

Before:
    %acc = for_range(index=%k, ..., init=(%zeros,), args=(%x: f32[m, n],)) {
      ...
      %y: f32[m, n] = contract(a=%a, b=%b, acc=%x)
      tcgen05_commit(barriers=%empty, state=%s)
      yield(values=(%y,))
    }
    sum_to_tensor(sums=%sums, column=0, state=%out, value=%acc)
    tcgen05_commit(barriers=%full, state=%out)
After:
    %end = for_range(index=%k, ..., init=(%false,), args=(%started: bool,)) {
      ...
      tcgen05_mma(sums=%sums, state=%out, a=%a, b=%b, accumulate=%started, ...)
      tcgen05_commit(barriers=%empty, state=%s)
      yield(values=(%true,))
    }
    tcgen05_commit(barriers=%full, state=%out)

A loop carries of a sum whether anything was added to it yet: the first product overwrites what lies
there. The thread waits for no product, but for slots.
"""

import dataclasses
from collections.abc import Iterable
from copy import copy
from typing import Any, Protocol

from wsdsl.ir import ops
from wsdsl.ir.hardware.tcgen05_shapes import LANES, cell_columns
from wsdsl.ir.op import Op, Region, Value, results_of, with_fields
from wsdsl.ir.rewriter import free_values, with_regions
from wsdsl.ir.types import Axis, SharedTile
from wsdsl.ir.verify.pipeline_stages import sum_places
from wsdsl.lowering.builder import FLAG, Builder
from wsdsl.lowering.cta_pairs import group_of, halved_axes
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.products import Products
from wsdsl.lowering.slot_writes import clear_beyond, clears


class Scalars(Protocol):
    """Who lowers what is neither a product nor a loop."""

    builder: Builder
    context: PartitionContext

    def op(self, op: Op) -> None: ...
    def scalar(self, value: Value) -> Value: ...
    def make(self, values: Iterable[Value]) -> None: ...


class TensorProducts:
    """`started` tells of a sum whether anything was added to it."""

    def __init__(self, rest: Scalars, partition: ops.Partition) -> None:
        context = rest.context
        self.builder, self.context, self.rest = context.builder, context, rest
        self.before, self.of_all = partition, bool(clears(partition))
        where = context.row_in_tile, context.column_in_tile, context.narrower
        self.cta_group = group_of(context.kernel)
        shapes = copy(context.shapes)
        shapes.axes = halved_axes(context.kernel.schedule, shapes.axes)
        self.operands = Products(context.builder, shapes, *where)
        self.tiles: dict[Value, ops.TileInShared] = {}
        self.in_tensor: dict[Value, ops.TileInTensor] = {}
        self.started: dict[Value, Value] = {}
        self.places = sum_places(partition.body, ops.SumToTensor)

    @property
    def partition(self) -> ops.Partition:
        with self.builder.region() as first:
            self.context.begin_whole()
            if self.of_all:
                self.context.find_shares()
        return dataclasses.replace(self.before, body=(*first, *self.region(self.before.body)))

    def region(self, region: Region) -> Region:
        return self.builder.each(region, self.op)

    def op(self, op: Op) -> None:
        b = self.builder
        match op:
            case ops.TileInShared():
                self.tiles[op.result] = op
                clear_beyond(self.context, op)
            case ops.TileInTensor():
                self.in_tensor[op.result] = op
            case ops.SumToTensor():
                pass
            case ops.SumInTensor():
                self.started[op.result] = b.flag(True)
            case ops.Contract():
                self.multiply(op)
            case ops.ForRange():
                self.loop(op)
            case ops.If():
                self.rest.make((*free_values(op.then), *free_values(op.orelse)))
                b.add(with_regions(with_fields(op, cond=self.rest.scalar(op.cond)), self.region))
            case ops.Yield():
                b.add(with_fields(op, values=tuple(map(self.carried, op.values))))
            case ops.Full() if op.result.is_tile:
                self.started[op.result] = b.flag(False)
            case _:
                assert not any(v.is_tile for v in results_of(op))
                self.rest.op(op)

    def carried(self, value: Value) -> Value:
        return self.started[value] if value.is_tile else self.rest.scalar(value)

    def loop(self, op: ops.ForRange) -> None:
        self.rest.make(free_values(op.body))
        init = tuple(map(self.carried, op.init))
        named: list[tuple[Value, ...]] = []
        for values in (op.args, op.result):
            tiles = [v for v in values if v.is_tile]
            self.started |= {v: self.builder.value("started", FLAG) for v in tiles}
            named.append(tuple(map(self.carried, values)))
        args, result = named
        body = self.region(op.body)
        ends = dict(start=self.rest.scalar(op.start), stop=self.rest.scalar(op.stop))
        self.builder.add(with_fields(op, init=init, args=args, result=result, body=body, **ends))

    def multiply(self, op: ops.Contract) -> None:
        """128 rows at a time, the sums of each beside those of the ones before."""
        rows = self._sides(op)["rows"].size
        for first in range(0, rows, LANES):
            product = self._product(op, first, min(LANES, rows))
            with self.builder.elected(self.of_all):
                self.builder.add(product)
        self.started[op.result] = self.builder.flag(True)

    def _sides(self, op: ops.Contract) -> dict[str, Axis]:
        axes = self.context.axes
        return {axes[name].role: axes[name] for name in op.result.as_tile.axes}

    def _product(self, op: ops.Contract, row: int, rows: int) -> ops.Tcgen05Mma:
        """Of so many rows, from one on."""
        b, axes = self.builder, self.context.axes
        place, sides = self.places[op.result], self._sides(op)
        (k,), (a, c) = op.summed, op.tiles
        first, second, dtypes = op.a, op.b, (a.dtype.name, c.dtype.name)
        scales = [self.in_tensor[v] for v in op.scales]
        if sides["rows"].name not in a.axes:
            first, second, dtypes, scales = second, first, dtypes[::-1], scales[::-1]
        depth, columns = op.depth or (0, axes[k].size), sides["columns"].size
        there, start = self.in_tensor.get(first), b.integer(row) if row else None
        left, left_k, where = (
            self._in_columns(there, depth[0], row)
            if there
            else (*self.operands.operand(self.tiles[first], k, depth, start, op.loc), {})
        )
        right, right_k = self.operands.operand(self.tiles[second], k, depth, None, op.loc)
        where |= dict(sums=place.sums, state=place.state, loc=op.loc, cta_group=self.cta_group)
        kinds = dict(dtype=dtypes[0], b_dtype="" if dtypes[0] == dtypes[1] else dtypes[1])
        size = dict[str, Any](rows=rows, columns=columns, k=depth[1] - depth[0])
        return ops.Tcgen05Mma(
            a=left,
            b=right,
            a_k_major=left_k,
            b_k_major=right_k,
            column=place.column + row // LANES * columns,
            accumulate=self.started[op.acc] if op.acc in self.started else b.flag(False),
            **where,
            **kinds,
            **size,
            **_scaled(op, scales),
        )

    def _in_columns(
        self, tile: ops.TileInTensor, first: int, row: int
    ) -> tuple[Value, bool, dict[str, Any]]:
        """An operand in tensor memory, from an element of what is summed over on."""
        kind = tile.result.type_as(SharedTile)
        of_rows = cell_columns(kind.dtype, self.context.axes[kind.axes[-1]].size)
        column = tile.column + row // LANES * of_rows + cell_columns(kind.dtype, first)
        return tile.columns, True, dict(a_state=tile.state, a_column=column)


def _scaled(op: ops.Contract, scales: list[ops.TileInTensor]) -> dict[str, Any]:
    """What a product says of the scales of its operands, the left one's first."""
    if not scales:
        return {}
    a, b = scales
    dtype = op.scales[0].type_as(SharedTile).dtype.name
    names = dict(a_scale=a.column, b_scale=b.column, scale_dtype=dtype)
    return dict(scales=a.columns, scale_state=a.state, block=op.block, **names)
