"""Read tiles of the compute context from global memory and from pipeline stages."""

from collections.abc import Callable
from math import gcd

from wsdsl.diagnostics import CompileError
from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.op import Makers, Value
from wsdsl.ir.types import Axis, Fragment, Sizes
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.product_operands import operand_lines
from wsdsl.lowering.register_layout import loads_packed
from wsdsl.lowering.register_tiles import RegisterTile, covering, narrow

Find = Callable[[Value], RegisterTile]


def load_piece(op: ops.Load | ops.Lookup, context: PartitionContext, find: Find) -> RegisterTile:
    """A tile (or scalar) read directly, in the accumulator's layout, when it is asked for."""
    b = context.builder
    if isinstance(op, ops.Load) and op.packed and not loads_packed(context.kernel):
        message = f"WS0334 {op.tensor.name} is packed, and this load is not pipelined"
        raise CompileError(message, op.loc, f"pass {op.tensor.name} unpacked")
    shape, dtype = context.shapes.of(op.result.as_tile.axes), op.result.as_tile.dtype
    entries = [entry_of(v, context, find) for v in op.index]
    found: dict[tuple[Value, ...], Value] = {}

    def piece(i: int, j: int) -> Value:
        places = tuple(_place(op, n, context, e.least.get(i, j)) for n, e in enumerate(entries))
        if places in found:
            return found[places]
        load = ops.LoadGlobal(
            result=b.value(op.result.name, covering(dtype, places)),
            tensor=op.tensor,
            index=places,
            vector=vector_of(op.tensor, op.index, context),
            in_order=context.in_order,
            loc=op.loc,
        )
        found[places] = b.add(load).result
        return found[places]

    return narrow(shape, dtype, b, piece, op.tensor)


def _place(op: ops.Load | ops.Lookup, dim: int, context: PartitionContext, place: Value) -> Value:
    """Of a tensor that the kernel stores, elements outside of the part that a loop walks may be
    stored by other CTAs, and are not read: they are at -1, which is in no tensor.
    """
    kind, b = op.index[dim].type, context.builder
    if not isinstance(kind, Axis) or not context.tiles[kind.name].is_clipped:
        return place
    if all(store.tensor != op.tensor for store in context.kernel.of(ops.Store)):
        return place
    inside = context.is_inside(kind.name, place)
    return b.map("where", inside, place, b.integer(-1), type=place.type, wish="place")


def read_elements(op: ops.ElementsInShared, context: PartitionContext, find: Find) -> RegisterTile:
    """Read an operand at its first use; the stage must not have been released."""
    b = context.builder
    dtype, (rows, columns) = op.result.as_tile.dtype, op.result.as_tile.axes
    shape, lines = context.shapes.of((rows, columns)), context.axes[rows].size
    last = context.axes[columns]
    shares = last.size // context.shapes.own(columns)
    packed = op.tensor.as_tensor.packed
    swizzle, _ = operand_lines(last.size, dtype, last.role, shares, packed)
    span = SWIZZLE_SPAN[swizzle]
    wide = dtype.count(span)
    # Whole panels, or a part of one: a depth of 48 is 16 and 32, panels of f32 have 32 columns.
    begins = (shape.first_column(j) for j in range(len(shape.widths)))
    steps = zip(begins, (min(width, wide) for width in shape.widths), shape.widths, strict=True)
    if any(first % step or width % step or wide % step for first, step, width in steps):
        load = ops.Load(result=op.result, tensor=op.tensor, index=op.index, loc=op.loc)
        return load_piece(load, context, find)
    read: dict[tuple[int, int], Value] = {}

    def panels(i: int, first: int, columns: int) -> Value:
        """The columns from `first` on, where a panel begins."""
        if (i, first) not in read:
            made = ops.LoadPanels(
                result=b.value(op.result.name, Fragment(dtype, 64, columns)),
                shared=op.shared,
                offset=op.offset + first // wide * lines * span,
                state=op.state,
                start=context.row_in_tile(rows, i),
                rows=lines,
                swizzle=swizzle,
                apart=shape.apart,
                loc=op.loc,
            )
            read[i, first] = b.add(made).result
        return read[i, first]

    def piece(i: int, j: int) -> Value:
        first, width = shape.first_column(j), shape.widths[j]
        if width % wide == 0:
            return panels(i, first, width)
        panel = panels(i, first // wide * wide, wide)
        made = b.value(op.result.name, shape.piece(dtype, j))
        return b.add(ops.SliceColumns(result=made, x=panel, start=first % wide, loc=op.loc)).result

    return RegisterTile(shape, piece)


def read_values(op: ops.ValuesInShared, context: PartitionContext) -> RegisterTile:
    """Read a tile of one axis from a stage at once, which is released before its first use."""
    b = context.builder
    (axis,), dtype = op.result.as_tile.axes, op.result.as_tile.dtype
    shape = context.shapes.of((axis,))
    found: dict[Value | float, Value] = {}
    first = None if op.last is None else b.remainder(op.last, TMA_ALIGN // dtype.bytes)

    def piece(i: int, j: int) -> Value:
        index = context.places(axis, op.every, i, j)
        key = b.known.get(index, index)
        if key not in found:
            made = ops.LoadShared(
                result=b.value(op.result.name, covering(dtype, (index,))),
                shared=op.shared,
                offset=op.offset,
                bytes=op.bytes,
                state=op.state,
                first=first,
                index=index,
                stride=op.stride,
                loc=op.loc,
            )
            found[key] = b.add(made).result
        return found[key]

    pieces = narrow(shape, dtype, b, piece)
    pieces.least.all()
    return pieces


def entry_of(value: Value, context: PartitionContext, find: Find) -> RegisterTile:
    return context.indices(value.type.name) if isinstance(value.type, Axis) else find(value)


def vector_of(tensor: Value, index: tuple[Value, ...], context: PartitionContext) -> int:
    """Return the number of adjacent columns of a vector, aligned to it in an aligned row, as two of
    4 bits always are: those that a lane has, of at most 16 bytes.
    """
    axis, by = along(index[-1], context.made, context.static)
    last, bits = axis.type, tensor.as_tensor.dtype.bits
    if not isinstance(last, Axis):
        return 1
    role = context.shapes.axes[last.name].role
    if role != "columns" and last.name != context.shapes.flat:
        return 1
    if bits == 4:
        return gcd(2, by)
    if context.shapes.lanes.striped:
        return 1
    if context.tiles[last.name].shifted or tensor.name in context.kernel.unaligned:
        return 1
    return gcd(min(context.shapes.lanes.vector, TMA_ALIGN * 8 // bits), by)


def along(index: Value, made: Makers, static: Sizes) -> tuple[Value, int]:
    """Return the axis of an index that leaves adjacent elements adjacent, and the greatest common
    divisor of the numbers it is moved by, or taken modulo: `index(axis) % 12 + 16` is the axis, and
    4; 0 if there are no such numbers.
    """
    match made.get(index):
        case ops.Index(axis=axis):
            return axis, 0
        case ops.Map(fn="add" | "sub" | "mod" as fn, args=(x, y)):
            if fn == "add" and isinstance(made.get(x), ops.Constant):
                x, y = y, x
            by = made.get(y)
            value = (
                static.get(by.dim) if isinstance(by, ops.DimSize) else getattr(by, "value", None)
            )
            if isinstance(value, int) and (value or fn != "mod"):
                axis, before = along(x, made, static)
                return axis, gcd(before, value)
        case _:
            pass
    return index, 0
