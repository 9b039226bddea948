"""Lower elementwise ops, indices and reductions to ops on fragments."""

import dataclasses
from collections.abc import Callable, Container, Sequence

from wsdsl.ir import ops
from wsdsl.ir.analysis.factors import significant_bits
from wsdsl.ir.hardware.wgmma_shapes import k_step
from wsdsl.ir.op import Makers, Op, Value, operands
from wsdsl.ir.ops import BLOCK_ROWS, FoldRows, Iota, MmaSync, ReduceColumns, ScanColumns
from wsdsl.ir.rewriter import replace_operands
from wsdsl.ir.types import ACCUMULATOR, BF16, F16, F32, I32, Axis, DType, Tile
from wsdsl.lowering import column_sums
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_tiles import RegisterTile, covering, narrow
from wsdsl.lowering.zero_padding import neutral, zero_outside

Lookup = Callable[[Value], RegisterTile]


def compute(op: Op, context: PartitionContext, pieces: Lookup) -> RegisterTile:
    """Return the fragments of the op's result, which are computed on demand."""
    match op:
        case ops.Index(axis=Value(type=Axis(name=name))):
            return context.indices(name)
        case ops.Reduce() if context.axes[op.axis].role == "rows":
            x = _inside_rows(op, context, pieces(op.x))
            return column_sums.reduced(op, context, x)
        case FoldRows():
            x = _inside_rows(op, context, pieces(op.x))
            return column_sums.folded(op, context, x)
        case ops.Reduce():
            masked = op.fn != "add" or not _is_zero_outside(op.x, op.axis, context)
            clipped = masked and not context.is_full(op.axis)
            found = op.x if clipped else _compared(op, context.made)
            factors = () if clipped else _exact_factors(op, context.made)
            if vectors := _rows_and_vector(factors, context):
                return _reduce_by_mma(op, context, *map(pieces, vectors))
            return _reduce(op, context, pieces(found), masked, [*map(pieces, factors)])
        case ops.Scan():
            masked = not _is_zero_outside(op.x, op.axis, context)
            return _scan(op, context, pieces(op.x), masked)
        case ops.ReduceBlocks():
            masked = op.fn != "add" or not _is_zero_outside(op.x, op.axis, context)
            return _reduce_blocks(op, context, pieces(op.x), masked)
        case ops.Map(fn="floordiv" | "mod") if (found := divided_indices(op, context)) is not None:
            return found
        case ops.Map() | ops.Cast() | ops.Bitcast() | ops.Full():
            return _elementwise(op, context, pieces)
        case _:
            raise NotImplementedError(f"no tile lowering for {type(op).__name__}")


def divided_indices(op: ops.Map, context: PartitionContext) -> RegisterTile | None:
    """Return the result of `//` or `%` on indices, if it needs no division per element."""
    find = block_indices if op.fn == "floordiv" else remainder_indices
    return find(op, context)


def _inside_rows(
    op: ops.Reduce | FoldRows, context: PartitionContext, x: RegisterTile
) -> RegisterTile:
    """Return the operand of a reduction, with neutral elements outside of its range."""
    if op.fn == "add" and _is_zero_outside(op.x, op.axis, context):
        return x
    dtype = op.x.as_tile.dtype
    return with_inside(x, context, op.axis, dtype, neutral(op.fn, dtype))


def block_indices(op: ops.Map, context: PartitionContext) -> RegisterTile | None:
    """Return `index(axis) // number` as a number per fragment, if no fragment crosses a
    multiple.
    """
    x, size = map(context.made.get, op.args)
    if not (isinstance(x, ops.Index) and isinstance(size, ops.Constant) and size.value > 0):
        return None
    return context.blocks(x.axis.as_axis.name, int(size.value))


def remainder_indices(op: ops.Map, context: PartitionContext) -> RegisterTile | None:
    """Return `index(axis) % number` as the indices minus a number per fragment, if no fragment
    crosses a multiple; as the indices in the tile if it has whole blocks.
    """
    blocks, b = block_indices(op, context), context.builder
    if blocks is None:
        return None
    (name,), size = op.result.axes, op.args[1]
    indices, own = context.indices(name), context.shapes.of((name,))
    number = context.made[size]
    assert isinstance(number, ops.Constant)
    whole = own.rows is None and name not in context.shares
    whole = whole and context.axes[name].size % number.value == 0

    def piece(i: int, j: int) -> Value:
        if whole:
            rest = b.value(op.result.name, own.piece(I32, j))
            start = b.integer(own.first_column(j) % int(number.value))
            return b.add(Iota(result=rest, start=start)).result
        begin = b.map("mul", blocks.least.get(i, j), size, wish="begin")
        return b.map("sub", indices.get(i, j), begin, wish=op.result.name)

    return RegisterTile(own, piece)


def _elementwise(
    op: ops.Map | ops.Cast | ops.Bitcast | ops.Full, context: PartitionContext, pieces: Lookup
) -> RegisterTile:
    b, kind = context.builder, op.result.as_tile
    shape, dtype = context.shapes.of(kind.axes), kind.dtype
    arguments = {v: pieces(v) for v in operands(op)}
    if context.shapes.lanes != ACCUMULATOR:
        # Reduced values of rows come first, which needs fewer registers.
        order = sorted(arguments, key=lambda v: arguments[v].shape.columns is not None)
        arguments = {v: arguments[v] for v in order}

    def piece(i: int, j: int) -> Value:
        least = {v: held.least.get(i, j) for v, held in arguments.items()}
        swap = {v: least[v] for v in operands(op)}
        key = tuple(swap.values())
        if small and key in found:
            return found[key]
        kind = covering(dtype, swap.values()) if small else shape.piece(dtype, j)
        made = b.value(op.result.name, kind)
        b.add(dataclasses.replace(replace_operands(op, swap), result=made))
        found[key] = made
        return made

    found: dict[tuple[Value, ...], Value] = {}
    small = any(held.narrow for held in arguments.values())
    return narrow(shape, dtype, b, piece) if small else RegisterTile(shape, piece)


def _compared(op: ops.Reduce, made: Makers) -> Value:
    """Return the operand of a maximum or minimum in 16 bits, two elements at once, if it is f32
    only for the result. Elements that may be outside of the row are selected by predicates, for
    which ptxas would wait between loads.
    """
    wide = made.get(op.x)
    if op.fn != "add" and isinstance(wide, ops.Cast) and op.x.as_tile.dtype == F32:
        own = wide.x.as_tile.dtype
        return wide.x if own.is_float and own.bits == 16 else op.x
    return op.x


def _exact_factors(op: ops.Reduce, made: Makers) -> tuple[Value, ...]:
    """Return the factors of products that are reduced by addition, if f32 represents the products
    exactly: `fma` then has the result of `mul` and `add`.
    """
    product = made.get(op.x)
    if op.fn != "add" or not isinstance(product, ops.Map) or product.fn != "mul":
        return ()
    exact = op.x.as_tile.dtype == F32 and significant_bits(op.x, made) <= F32.significant_bits
    return product.args if exact else ()


def _rows_and_vector(factors: tuple[Value, ...], context: PartitionContext) -> tuple[Value, ...]:
    """Return the rows and the vector whose elements are multiplied, if `mma_sync` takes them."""
    casts = [op for v in factors if isinstance(op := context.made.get(v), ops.Cast)]
    found = sorted((op.x for op in casts), key=lambda v: -len(v.axes))
    kinds = {v.as_tile.dtype for v in found}
    fits = kinds in ({F16}, {BF16}) and [len(v.axes) for v in found] == [2, 1]
    if not fits or context.shapes.lanes != ACCUMULATOR or context.shapes.in_tensor_memory:
        return ()
    shape, (step,) = context.shapes.of(found[0].axes), map(k_step, kinds)
    along = shape.columns == found[1].axes[0] and shape.height == BLOCK_ROWS
    return tuple(found) if along and not any(w % step for w in shape.widths) else ()


def _reduce_by_mma(
    op: ops.Reduce, context: PartitionContext, rows: RegisterTile, vector: RegisterTile
) -> RegisterTile:
    """Add up exact products by `mma_sync`, of a thread and of the lanes that share its rows."""
    b, kind = context.builder, op.result.as_tile
    shape, chunks = context.shapes.of(kind.axes), range(len(rows.shape.widths))

    def piece(i: int, _: int) -> Value:
        parts = [(rows.get(i, j), vector.least.get(0, j)) for j in chunks]
        result, shared = b.value(op.result.name, shape.piece(kind.dtype, 0)), context.shared_rows
        a, by = (tuple(v) for v in zip(*parts, strict=True))
        total = b.add(MmaSync(result=result, a=a, b=by, loc=op.loc)).result
        if not shared.are_shared(rows.shape.lanes, op.ctas):
            return total
        result = b.value(op.result.name, shape.piece(kind.dtype, 0))
        return shared.reduce(op.fn, total, op.ctas, result, op.loc)

    return RegisterTile(shape, piece)


def _reduce(
    op: ops.Reduce,
    context: PartitionContext,
    x: RegisterTile,
    masked: bool,
    factors: Sequence[RegisterTile],
) -> RegisterTile:
    """Chunks of one width are combined elementwise, then the columns of one are reduced. `factors`:
    those of exact products.
    """
    b = context.builder
    assert isinstance(op.result.type, Tile) and x.shape.columns == op.axis
    shape, dtype = context.shapes.of(op.result.type.axes), op.result.type.dtype
    work = F32 if op.fn == "add" and dtype.is_float else dtype

    def wide(value: Value) -> Value:
        return b.cast(value, work, "wide", loc=op.loc)

    adds = op.fn == "add"
    inside = RegisterTile(x.shape, lambda i, j: wide(x.get(i, j)) if adds else x.get(i, j))
    if masked:
        own = work if adds else x.get(0, 0).as_fragment.dtype
        inside = with_inside(inside, context, op.axis, own, neutral(op.fn, own))

    def of_width(i: int, chunks: list[int]) -> Value:
        if factors:
            total = inside.get(i, chunks[0])
            for chunk in chunks[1:]:
                args = (tile.least.get(i, chunk) for tile in factors)
                total = b.map("fma", *args, total, type=total.type, wish="partial")
        else:
            total = b.joined(op.fn, (inside.get(i, chunk) for chunk in chunks), "partial")
        total = wide(total)
        made = b.value(op.result.name, shape.piece(work, 0))
        if context.shared_rows.are_shared(x.shape.lanes, op.ctas):
            return context.shared_rows.reduce(op.fn, total, op.ctas, made, op.loc)
        return b.add(ReduceColumns(result=made, fn=op.fn, x=total, loc=op.loc)).result

    def piece(i: int, j: int) -> Value:
        widths = x.shape.widths
        alike = [[c for c, w in enumerate(widths) if w == own] for own in dict.fromkeys(widths)]
        made = b.joined(op.fn, [of_width(i, chunks) for chunks in alike], op.result.name)
        return b.cast(made, dtype, "sum", loc=op.loc)

    return RegisterTile(shape, piece)


def _reduce_blocks(
    op: ops.ReduceBlocks, context: PartitionContext, x: RegisterTile, masked: bool
) -> RegisterTile:
    """Chunks with several blocks by themselves; those of one block together, as a column."""
    b, dtype = context.builder, op.result.as_tile.dtype
    shape = context.shapes.of(op.result.as_tile.axes)
    column = context.shapes.of(tuple(a for a in op.result.as_tile.axes if a != op.axis))
    assert x.shape.columns == op.axis
    if masked:
        x = with_inside(x, context, op.axis, dtype, neutral(op.fn, dtype))
    known: dict[tuple[int, int], Value] = {}

    def of_block(i: int, block: int) -> Value:
        chunks = [j for j in range(len(shape.widths)) if shape.first_column(j) // op.size == block]
        parts = list[Value]()
        for width in dict.fromkeys(shape.widths[j] for j in chunks):
            own = [x.get(i, j) for j in chunks if shape.widths[j] == width]
            total = b.joined(op.fn, own, "partial")
            made = b.value(op.result.name, column.piece(dtype, 0))
            parts.append(b.add(ReduceColumns(result=made, fn=op.fn, x=total, loc=op.loc)).result)
        return b.joined(op.fn, parts, op.result.name)

    def piece(i: int, j: int) -> Value:
        if shape.widths[j] > op.size:
            made = b.value(op.result.name, shape.piece(dtype, j))
            reduced = ReduceColumns(result=made, fn=op.fn, x=x.get(i, j), size=op.size, loc=op.loc)
            return b.add(reduced).result
        place = i, shape.first_column(j) // op.size
        if place not in known:
            known[place] = of_block(*place)
        return known[place]

    return narrow(shape, dtype, b, piece)


def _scan(op: ops.Scan, context: PartitionContext, x: RegisterTile, masked: bool) -> RegisterTile:
    """Scan each chunk separately, and add the sum of the chunks before."""
    b, dtype = context.builder, op.result.as_tile.dtype
    shape = context.shapes.of(op.result.as_tile.axes)
    column = context.shapes.of(tuple(a for a in op.result.as_tile.axes if a != op.axis))
    assert x.shape.columns == op.axis
    if masked:
        x = with_inside(x, context, op.axis, dtype, neutral("add", dtype))
    sums: dict[tuple[int, int], Value] = {}

    def up_to(i: int, j: int) -> Value:
        """Return the sum of the chunks up to j."""
        if (i, j) not in sums:
            before = up_to(i, j - 1) if j else None
            made = b.value("chunk", column.piece(dtype, 0))
            own = b.add(ReduceColumns(result=made, fn="add", x=x.get(i, j), loc=op.loc)).result
            sums[i, j] = own if before is None else b.map("add", before, own, wish="before")
        return sums[i, j]

    def piece(i: int, j: int) -> Value:
        before = up_to(i, j - 1) if j else None
        made = b.value(op.result.name, shape.piece(dtype, j))
        scanned = b.add(ScanColumns(result=made, x=x.get(i, j), loc=op.loc)).result
        return scanned if before is None else b.map("add", scanned, before, wish=op.result.name)

    return RegisterTile(shape, piece)


def computed_operand(
    op: ops.Contract, in_shared: Container[Value], pieces: Lookup, context: PartitionContext
) -> RegisterTile | None:
    """Return the transformed operand of an MMA, if it has one: zeros outside of the contraction
    axis."""
    for operand in (op.a, op.b):
        if operand not in in_shared:
            return with_zeros_outside(operand, pieces(operand), context)
    return None


def with_zeros_outside(
    value: Value, x: RegisterTile, context: PartitionContext, axis: str | None = None
) -> RegisterTile:
    """Return the fragments of a tile with zeros outside of the loop's range along an axis, by
    default the columns: only the last tile needs time for this.
    """
    axis = axis or x.shape.columns
    assert isinstance(value.type, Tile) and axis is not None
    if _is_zero_outside(value, axis, context) or context.is_full(axis):
        return x
    b, dtype = context.builder, value.type.dtype

    def piece(i: int, j: int) -> Value:
        held = x.get(i, j)
        result = b.value("masked", held.type)
        whole = context.is_whole(axis)
        with b.region() as then:
            b.add(ops.Yield(values=(held,), loc=b.loc))
        with b.region() as orelse:
            masked = with_inside(x, context, axis, dtype, 0.0 if dtype.is_float else 0)
            b.add(ops.Yield(values=(masked.get(i, j),), loc=b.loc))
        b.add(
            ops.If(result=(result,), cond=whole, then=tuple(then), orelse=tuple(orelse), loc=b.loc)
        )
        return result

    return RegisterTile(x.shape, piece)


def _is_zero_outside(value: Value, axis: str, context: PartitionContext) -> bool:
    """Whether it is so by itself. Beyond the end of a part there are other elements."""
    return not context.tiles[axis].is_clipped and zero_outside(value, axis, context.made)


def with_inside(
    x: RegisterTile, context: PartitionContext, name: str, dtype: DType, rest: int | float
) -> RegisterTile:
    """The tile with `rest` in what lies outside of what is walked along one of its axes."""
    b, indices = context.builder, context.indices(name)
    if context.is_full(name):
        return x

    def inside(i: int, j: int) -> Value:
        value, columns = x.get(i, j), indices.get(i, j)
        valid = context.is_inside(name, columns)
        constant = b.constant(rest, Tile(dtype), "neutral")
        return b.map("where", valid, value, constant, type=value.type, wish="masked")

    return RegisterTile(x.shape, inside)
