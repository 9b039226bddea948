"""The partition that multiplies on tensor memory: one thread, which starts products and commits.

Before:
    %acc = for_range(index=%k, ..., init=(%zeros,), args=(%x: f32[m, n],)) {
      ...
      %y: f32[m, n] = contract(a=%a, b=%b, acc=%x)
      tensor_commit(barriers=%empty, state=%s)
      yield(values=(%y,))
    }
    sum_to_tensor(sums=%sums, column=0, state=%out, value=%acc)
    tensor_commit(barriers=%full, state=%out)
After:
    %end = for_range(index=%k, ..., init=(%false,), args=(%started: bool,)) {
      ...
      tensor_product(sums=%sums, state=%out, a=%a, b=%b, accumulate=%started, ...)
      tensor_commit(barriers=%empty, state=%s)
      yield(values=(%true,))
    }
    tensor_commit(barriers=%full, state=%out)

A loop carries of a sum whether anything was added to it yet: the first product overwrites what lies
there. The thread waits for no product, but for slots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from copy import copy
from typing import Any, Protocol

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.op import Op, Region, Value, results_of
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.slot_ops import SumInTensor, SumToTensor, TileInShared, TileInTensor
from wsdsl.ir.tcgen05 import cell_columns
from wsdsl.ir.tensor_ops import TensorProduct
from wsdsl.ir.tile_ops import Contract, Full, If, Yield
from wsdsl.ir.types import SharedTile
from wsdsl.ir.walk import free_values, walk, with_regions, yielded
from wsdsl.lowering.axes import is_tile
from wsdsl.lowering.builder import FLAG, Builder
from wsdsl.lowering.cta_pairs import group_of, halved_axes
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.products import Products
from wsdsl.lowering.slot_writes import clear_beyond, clears
from wsdsl.lowering.tensor_rings import by_one


class Scalars(Protocol):
    """Who lowers what is neither a product nor a loop."""

    builder: Builder
    context: PartitionContext

    def op(self, op: Op) -> None: ...
    def scalar(self, value: Value) -> Value: ...
    def make(self, values: Iterable[Value]) -> None: ...


class TensorProducts:
    """`started` tells of a sum whether anything was added to it."""

    def __init__(self, rest: Scalars, partition: Partition) -> None:
        context = rest.context
        self.builder, self.context, self.rest = context.builder, context, rest
        self.before, self.of_all = partition, bool(clears(partition))
        where = context.row_in_tile, context.column_in_tile, context.narrower
        self.cta_group = group_of(context.kernel)
        shapes = copy(context.shapes)
        shapes.axes = halved_axes(context.kernel, shapes.axes)
        self.operands = Products(context.builder, shapes, *where)
        self.tiles: dict[Value, TileInShared] = {}
        self.in_tensor: dict[Value, TileInTensor] = {}
        self.started: dict[Value, Value] = {}
        self.places: dict[Value, SumToTensor] = {}
        for op in walk(partition.body):
            if isinstance(op, SumToTensor):
                self.places[op.value] = op
        # What a loop carries, and what a product adds to, lies where the result does.
        num = 0
        while num < len(self.places):
            num = len(self.places)
            for op in walk(partition.body):
                if isinstance(op, ForRange):
                    for *held, made in zip(
                        op.init, op.args, yielded(op.body), op.result, strict=True
                    ):
                        self.lie(made, held)
                elif isinstance(op, Contract) and op.acc is not None:
                    self.lie(op.result, [op.acc])

    def lie(self, made: Value, held: list[Value]) -> None:
        if made in self.places:
            self.places |= dict.fromkeys(held, self.places[made])

    @property
    def partition(self) -> Partition:
        with self.builder.region() as first:
            self.context.begin_whole()
            if self.of_all:
                self.context.find_shares()
        return dataclasses.replace(self.before, body=(*first, *self.region(self.before.body)))

    def region(self, region: Region) -> Region:
        with self.builder.region() as ops:
            for op in region:
                self.builder.loc = op.loc
                self.op(op)
        return tuple(ops)

    def op(self, op: Op) -> None:
        b = self.builder
        match op:
            case TileInShared():
                self.tiles[op.result] = op
                clear_beyond(self.context, op)
            case TileInTensor():
                self.in_tensor[op.result] = op
            case SumToTensor():
                pass
            case SumInTensor():
                self.started[op.result] = b.flag(True)
            case Contract():
                self.multiply(op)
            case ForRange():
                self.loop(op)
            case If():
                self.rest.make((*free_values(op.then), *free_values(op.orelse)))
                given = dataclasses.replace(op, cond=self.rest.scalar(op.cond))
                b.add(with_regions(given, self.region))
            case Yield():
                b.add(dataclasses.replace(op, values=tuple(map(self.carried, op.values))))
            case Full() if is_tile(op.result):
                self.started[op.result] = b.flag(False)
            case _:
                assert not any(map(is_tile, results_of(op)))
                self.rest.op(op)

    def carried(self, value: Value) -> Value:
        return self.started[value] if is_tile(value) else self.rest.scalar(value)

    def loop(self, op: ForRange) -> None:
        self.rest.make(free_values(op.body))
        init = tuple(map(self.carried, op.init))
        named: list[tuple[Value, ...]] = []
        for values in (op.args, op.result):
            tiles = [v for v in values if is_tile(v)]
            self.started |= {v: self.builder.value("started", FLAG) for v in tiles}
            named.append(tuple(map(self.carried, values)))
        args, result = named
        body = self.region(op.body)
        ends = dict(start=self.rest.scalar(op.start), stop=self.rest.scalar(op.stop))
        made = dataclasses.replace(op, init=init, args=args, result=result, body=body, **ends)
        self.builder.add(made)

    def multiply(self, op: Contract) -> None:
        b, axes, place = self.builder, self.context.axes, self.places[op.result]
        sides = {axes[name].role: axes[name] for name in op.result.as_tile.axes}
        (k,), (a, c) = op.summed, op.tiles
        first, second, dtypes = op.a, op.b, (a.dtype.name, c.dtype.name)
        scales = [self.in_tensor[v] for v in op.scales]
        if sides["rows"].name not in a.axes:
            first, second, dtypes, scales = second, first, dtypes[::-1], scales[::-1]
        depth = op.depth or (0, axes[k].size)
        there = self.in_tensor.get(first)
        left, left_k, where = (
            _in_columns(there, depth[0])
            if there
            else (*self.operands.operand(self.tiles[first], k, depth, None, op.loc), {})
        )
        right, right_k = self.operands.operand(self.tiles[second], k, depth, None, op.loc)
        product = TensorProduct(
            sums=place.sums,
            state=place.state,
            column=place.column,
            a=left,
            b=right,
            accumulate=self.started[op.acc] if op.acc in self.started else b.flag(False),
            dtype=dtypes[0],
            b_dtype="" if dtypes[0] == dtypes[1] else dtypes[1],
            rows=sides["rows"].size,
            columns=sides["columns"].size,
            k=depth[1] - depth[0],
            a_k_major=left_k,
            b_k_major=right_k,
            cta_group=self.cta_group,
            **where,
            **_scaled(op, scales),
            loc=op.loc,
        )
        b.ops += by_one(self.of_all, product)
        self.started[op.result] = b.flag(True)


def _in_columns(tile: TileInTensor, first: int) -> tuple[Value, bool, dict[str, Any]]:
    """An operand in tensor memory, from an element of what is summed over on."""
    assert isinstance(tile.result.type, SharedTile)
    column = tile.column + cell_columns(tile.result.type.dtype, first)
    return tile.columns, True, dict(a_state=tile.state, a_column=column)


def _scaled(op: Contract, scales: list[TileInTensor]) -> dict[str, Any]:
    """What a product says of the scales of its operands, the left one's first."""
    if not scales:
        return {}
    a, b = scales
    names = dict(a_scale=a.column, b_scale=b.column, scale_dtype=_dtype(op.scales[0]))
    return dict(scales=a.columns, scale_state=a.state, block=op.block, **names)


def _dtype(scale: Value) -> str:
    assert isinstance(scale.type, SharedTile)
    return scale.type.dtype.name
