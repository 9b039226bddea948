"""Evaluate a TILE kernel in NumPy: its semantics.

Tiles are exact: one at the edge of its dimension is as short as what is left, so nothing is masked.
By default a loop whose iterations are independent takes its range as one tile, and one that carries
variables iterates over tiles of `CARRIED_TILE`; results do not depend on the sizes. Where it says a
size itself (`tiles(N, by=128)`), that is taken.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.analysis.factors import factored
from wsdsl.ir.analysis.scale_factor_indices import in_atoms
from wsdsl.ir.hardware.scale_factor_atoms import place_of
from wsdsl.ir.op import Kernel, Makers, Op, Region, Value, results_of
from wsdsl.ir.types import Axis, Sizes, Tile
from wsdsl.simulator.reference import arithmetic
from wsdsl.simulator.reference.arithmetic import Array, dtype_of, numpy_dtype
from wsdsl.simulator.reference.bound_arrays import (
    Arguments,
    GlobalTensor,
    bind_arguments,
    inside_of,
)

CARRIED_TILE = 256


@np.errstate(all="ignore")
def evaluate(kernel: Kernel, arrays: Mapping[str, Any], tile: Sizes | None = None) -> None:
    """Run a TILE kernel; outputs are written in place. `tile` sizes loops by their variable."""
    if kernel.level != "tile":
        raise ValueError(f"the reference reads the TILE level, not {kernel.level}")
    arguments = bind_arguments(kernel, arrays)
    _Evaluator(arguments, dict(tile or {})).start(kernel)
    arguments.write_back()


class _Evaluator:
    def __init__(self, arguments: Arguments, tile: dict[str, int]) -> None:
        self.arguments = arguments
        self.tile = tile
        self.values: dict[str, Array] = {}
        self.ranges: dict[str, range] = {}
        self.made: Makers = {}
        self.blocks: dict[str, int] = {}
        """By axis: of how many elements its tiles must be a multiple."""

    def start(self, kernel: Kernel) -> None:
        self.made = kernel.definers
        for op in kernel.of(ops.ReduceBlocks):
            self.blocks[op.axis] = math.lcm(self.blocks.get(op.axis, 1), op.size)
        for p in kernel.params:
            if isinstance(p.type, Tile):
                value = np.asarray(self.arguments.scalars[p.name]).astype(numpy_dtype(p.type.dtype))
                self.values[p.name] = value
        self.run(kernel.body)

    def run(self, region: Region) -> tuple[Array, ...]:
        """The values that the region yields."""
        for op in region:
            match op:
                case ops.Yield():
                    return tuple(self.values[v.name] for v in op.values)
                case ops.ForTiles():
                    self.for_tiles(op)
                case ops.ForEach():
                    carried = tuple(self.values[v.name] for v in op.init)
                    for i in range(self.arguments.size(op.dim)):
                        self.values[op.index.name] = np.asarray(i, np.int32)
                        self.define(op.args, carried)
                        carried = self.run(op.body)
                    self.define(op.result, carried)
                case ops.If():
                    chosen = op.then if bool(self.values[op.cond.name]) else op.orelse
                    self.define(op.result, self.run(chosen))
                case ops.Store():
                    self.store(op)
                case ops.Whole():
                    axis = op.result.as_axis
                    self.ranges[axis.name] = range(self.arguments.size(axis.dim))
                case _:
                    (result,) = results_of(op)
                    self.values[result.name] = self.compute(op)
        return ()

    def define(self, results: tuple[Value, ...], values: tuple[Array, ...]) -> None:
        for value, operand in zip(results, values, strict=True):
            self.values[value.name] = operand

    def for_tiles(self, op: ops.ForTiles) -> None:
        axis = op.index.as_axis
        size = self.arguments.size(axis.dim)
        start = max(0, int(self.values[op.start.name])) if op.start else 0
        stop = min(size, int(self.values[op.stop.name])) if op.stop else size
        step = CARRIED_TILE if op.init else max(1, stop - start)
        step = axis.size or (step if op.whole else self.tile.get(axis.name, step))
        step = -(-step // self.blocks.get(axis.name, 1)) * self.blocks.get(axis.name, 1)
        carried = tuple(self.values[v.name] for v in op.init)
        outer = self.ranges.get(axis.name)
        for first in range(start, stop, step):
            self.ranges[axis.name] = range(first, min(first + step, stop))
            self.define(op.args, carried)
            carried = self.run(op.body)
        if outer is not None:
            self.ranges[axis.name] = outer
        self.define(op.result, carried)

    def compute(self, op: Op) -> Array:
        get = self.values
        match op:
            case ops.Constant():
                dtype = dtype_of(op.result)
                if dtype.is_float:
                    return arithmetic.round_float(np.asarray(op.value, np.float64), dtype)
                return np.asarray(op.value).astype(numpy_dtype(dtype))
            case ops.Full():
                shape = tuple(len(self.range_of(a)) for a in op.result.as_tile.axes)
                return np.full(shape, get[op.value.name])
            case ops.Map():
                placed = [self.place(a, op.result.as_tile.axes) for a in op.args]
                return arithmetic.apply(op.fn, placed, dtype_of(op.args[-1]), dtype_of(op.result))
            case ops.Cast():
                x = get[op.x.name]
                return arithmetic.convert(x, dtype_of(op.x), dtype_of(op.result), op.saturate)
            case ops.Bitcast():
                return arithmetic.reinterpret(get[op.x.name], dtype_of(op.x), dtype_of(op.result))
            case ops.Reduce():
                axis = op.x.as_tile.axes.index(op.axis)
                return arithmetic.reduce(op.fn, get[op.x.name], dtype_of(op.x), axis)
            case ops.TopK():
                return self.top_k(op)
            case ops.Scan():
                axis = op.x.as_tile.axes.index(op.axis)
                return arithmetic.scan(get[op.x.name], dtype_of(op.x), axis)
            case ops.ReduceBlocks():
                axis, start = op.x.as_tile.axes.index(op.axis), self.range_of(op.axis).start
                x, dtype = get[op.x.name], dtype_of(op.x)
                return arithmetic.reduce_blocks(op.fn, x, dtype, axis, op.size, start)
            case ops.Index():
                value = self.range_of(op.axis.as_axis.name)
                return np.arange(value.start, value.stop, dtype=np.int32)
            case ops.End():
                return np.asarray(self.range_of(op.axis.as_axis.name).stop, np.int32)
            case ops.Block():
                return np.asarray(self.range_of(op.axis.as_axis.name).start // op.size, np.int32)
            case ops.DimSize():
                return np.asarray(self.arguments.size(op.dim), np.int32)
            case ops.Contract():
                return self.contract(op)
            case ops.Lookup():
                table = self.arguments.tensors[op.table.name]
                return _gather(table, [get[op.i.name]], get[op.i.name].shape)
            case ops.Load():
                return self.load(op)
            case _:
                raise NotImplementedError(f"the reference does not support {type(op).__name__}")

    def top_k(self, op: ops.TopK) -> Array:
        axes, into = op.result.as_tile.axes, op.into.as_axis.name
        own, count = self.range_of(op.axis), len(self.range_of(into))
        ordered = (*(a for a in axes if a != into), op.axis)
        x = self.place(op.x, ordered)
        places = np.broadcast_to(np.arange(own.start, own.stop, dtype=np.int32), x.shape)
        if op.before:
            last = (*ordered[:-1], into)
            before = [self.place(v, last) for v in op.before]
            x, places = (np.concatenate(c, -1) for c in zip(before, (x, places), strict=True))
        result = arithmetic.top_k(x, places, dtype_of(op.x), count)[op.places]
        return np.moveaxis(result, -1, axes.index(into))

    def range_of(self, axis: str) -> range:
        """A whole dimension may be named in a new tile's type before any load takes it."""
        return self.ranges[axis] if axis in self.ranges else range(self.arguments.size(axis))

    def place(self, value: Value, axes: tuple[str, ...]) -> Array:
        """A value with its axes where `axes` has them, ones elsewhere."""
        own, operand = value.as_tile.axes, self.values[value.name]
        if own == axes:
            return operand
        operand = operand.transpose(sorted(range(len(own)), key=lambda i: axes.index(own[i])))
        keep = tuple(slice(None) if a in own else None for a in axes)
        return operand[keep] if axes else operand

    def contract(self, op: ops.Contract) -> Array:
        a, b = op.a.as_tile.axes, op.b.as_tile.axes
        shared = [x for x in a if x in b]
        where = [a.index(x) for x in shared], [b.index(x) for x in shared]
        dtype = dtype_of(op.result)
        wide = np.float64 if dtype.is_float else np.int64
        left, right = (x.astype(wide) for x in self.operands(op))
        total = arithmetic.contracted(left, right, where)
        free = [x for x in (*a, *b) if x not in shared]
        axes = op.result.as_tile.axes
        total = total.transpose([free.index(x) for x in axes])
        if op.acc is not None:
            total = total + self.place(op.acc, axes).astype(wide)
        return arithmetic.round_total(total, dtype)

    def operands(self, op: ops.Contract) -> list[Array]:
        """The operands, multiplied by their factors without rounding."""
        results: list[Array] = []
        sides = factored(op, self.made) or ((op.a, []), (op.b, []))
        for value, (tile, factors) in zip((op.a, op.b), sides, strict=True):
            axes = value.as_tile.axes
            operand = arithmetic.multiplicand(self.place(tile, axes), dtype_of(tile))
            scales = dict(zip((op.a, op.b), op.scales, strict=False))
            for factor in (*factors, *([scales[value]] if scales else [])):
                wide = arithmetic.widen(self.place(factor, axes))
                operand = operand.astype(np.float64) * wide
            shape = [len(self.range_of(a)) for a in axes]
            results.append(np.broadcast_to(operand, shape) if factors or scales else operand)
        return results

    def positions(self, index: tuple[Value, ...], axes: tuple[str, ...]) -> list[Array]:
        """For each dimension the indices that an access takes, broadcast over `axes`."""
        results: list[Array] = []
        for entry in index:
            if isinstance(entry.type, Axis):
                value = self.range_of(entry.type.name)
                shape = [len(value) if a == entry.type.name else 1 for a in axes]
                results.append(np.arange(value.start, value.stop).reshape(shape))
            else:
                results.append(self.place(entry, axes).astype(np.int64))
        return results

    def slices(self, tensor: GlobalTensor, index: tuple[Value, ...]) -> tuple[Any, ...] | None:
        """The access as basic slices, if it is one that lies inside the tensor."""
        results: list[Any] = []
        for entry, size in zip(index, tensor.array.shape, strict=True):
            if isinstance(entry.type, Axis):
                value = self.range_of(entry.type.name)
                if value.stop > size:
                    return None
                results.append(slice(value.start, value.stop))
            elif entry.as_tile.axes:
                return None
            else:
                at = int(self.values[entry.name])
                if not 0 <= at < size:
                    return None
                results.append(at)
        names = [e.type.name for e in index if isinstance(e.type, Axis)]
        return tuple(results) if len(set(names)) == len(names) else None

    def load(self, op: ops.Load) -> Array:
        tensor, axes = self.arguments.tensors[op.tensor.name], op.result.as_tile.axes
        simple = self.slices(tensor, op.index) if op.block == 1 else None
        if simple is not None:
            return np.array(tensor.array[simple])
        shape = tuple(len(self.range_of(a)) for a in axes)
        index = self.positions(op.index, axes)
        if op.block > 1:
            *others, row, last = index
            block = last // op.block
            place = place_of(row, block) if in_atoms(op) else (row, block)
            index = [*others, *place]
        return _gather(tensor, index, shape)

    def store(self, op: ops.Store) -> None:
        tensor = self.arguments.tensors[op.tensor.name]
        named = ((e.type.name,) if isinstance(e.type, Axis) else e.as_tile.axes for e in op.index)
        axes = tuple(dict.fromkeys(axis for names in named for axis in names))
        placed = self.place(op.value, axes)
        value = arithmetic.convert(placed, dtype_of(op.value), tensor.dtype, saturate=True)
        simple = self.slices(tensor, op.index)
        if simple is not None and not op.accumulate:
            tensor.array[simple] = value
            return
        shape = tuple(len(self.range_of(a)) for a in axes)
        index = self.positions(op.index, axes)
        # Elements outside the tensor are dropped.
        inside = inside_of(tensor.array, index, shape)
        at = tuple(np.broadcast_to(i, shape)[inside] for i in index)
        value = np.broadcast_to(value, shape)[inside]
        if op.accumulate:
            tensor.add(at, value)
        else:
            tensor.array[at] = value


def _gather(tensor: GlobalTensor, index: list[Array], shape: tuple[int, ...]) -> Array:
    """Elements at the given indices; those outside the tensor are 0."""
    inside = inside_of(tensor.array, index, shape)
    value = np.zeros(shape, tensor.array.dtype)
    value[inside] = tensor.array[tuple(np.broadcast_to(i, shape)[inside] for i in index)]
    return value
