"""Rules of SCHEDULED kernels about attributes that must agree: with each other, with the types of
operands, and with the item of SMEM that an op reaches into.

How many bytes an op reads or writes follows from types. An offset that is computed (`shift`,
`start`, an index) is bounded by the prover.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import get_args

from wsdsl.ir import ops
from wsdsl.ir.effects import Access
from wsdsl.ir.hardware.swizzle import PACKED_SPAN, SWIZZLE_SPAN, lines_reached
from wsdsl.ir.hardware.wgmma_shapes import k_step
from wsdsl.ir.op import Kernel, Makers, Op, Problem, Value
from wsdsl.ir.types import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    Accumulator,
    DType,
    Fragment,
    Shared,
    Tensor,
    Tile,
    Type,
)
from wsdsl.ir.verify.fragment_lanes import fault_of_lines

ARITY: dict[str, int] = {
    **dict.fromkeys(ops.UNARY_FUNCTIONS, 1),
    **dict.fromkeys(ops.BINARY_FUNCTIONS, 2),
    **ops.OTHER_FUNCTIONS,
}
Copy = (
    ops.TmaLoad
    | ops.TmaStore
    | ops.PrefetchBox
    | ops.ThreadLoad
    | ops.ThreadStore
    | ops.PrefetchTile
)


def loops_go_forward(kernel: Kernel) -> Iterator[Problem]:
    """A loop's step is known to be positive: also that of a loop that synchronises nothing."""
    for op in kernel.of(ops.ForRange):
        if (_at_least(op.step, kernel.definers) or 0) < 1:
            yield (
                op,
                (
                    "the step may be 0 or negative; supported are constants, CTA counts, "
                    "and their sums and products"
                ),
            )


def _at_least(value: Value, made: Makers) -> int | None:
    """A lower bound of an integer; None if none is known."""
    match made.get(value):
        case ops.Constant(value=int(number)):
            return number
        case ops.NumCtas() | ops.NumClusters():
            return 1
        case ops.DimSize():
            return 0
        case ops.Map(fn=fn, args=(x, y)):
            low, other = _at_least(x, made), _at_least(y, made)
            if fn == "max" and (low is None or other is None):
                return other if low is None else low
            if low is None or other is None:
                return None
            least = made.get(y)
            if fn == "floordiv" and isinstance(least, ops.Map) and least.fn == "min":
                return 1 if x in least.args and other > 0 else None
            if fn == "mul":
                return low * other if min(low, other) >= 0 else None
            return {"add": low + other, "min": min(low, other), "max": max(low, other)}.get(fn)
        case _:
            return None


def barrier_ops_are_of_one_mind(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(ops.MbarrierArrive, ops.SemaphoreArrive, ops.LaunchGrid):
        match op:
            case ops.MbarrierArrive() if op.each_warp and op.each_thread:
                yield op, "each_warp and each_thread exclude each other"
            case ops.SemaphoreArrive() if (op.by is not None) + (op.wrap is not None) > 1:
                yield op, "`by` and `wrap` exclude each other: a flag that wraps is raised by 1"
            case ops.SemaphoreArrive() if op.amount != 1 and (op.by or op.wrap):
                yield op, f"amount={op.amount}, but `by` or `wrap` sets the amount"
            case ops.LaunchGrid() if op.cluster % op.sharing:
                yield op, f"sharing={op.sharing} does not divide a cluster of {op.cluster}"
            case ops.LaunchGrid() if op.scheduler != "split_k" and (op.splits or op.together):
                yield op, 'splits and together need scheduler="split_k"'
            case _:
                pass


def dimensions_exist(kernel: Kernel) -> Iterator[Problem]:
    made = [op.result.type for op in kernel.of(ops.AllocateGlobal)]
    tensors = [*(p.type for p in kernel.params), *made]
    known = {dim for kind in tensors if isinstance(kind, Tensor) for dim in kind.dims}
    known |= {dim for dim, _ in kernel.sizes}
    for op in kernel.of(ops.DimSize):
        if op.dim not in known:
            yield op, f"no tensor has the dimension {op.dim!r}"


def scalars_are_of_their_type(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(ops.Map, ops.Constant):
        match op:
            case ops.Map() if len(op.args) != ARITY[op.fn]:
                yield op, f"{op.fn} takes {ARITY[op.fn]} operands, not {len(op.args)}"
            case ops.Map() if any(not _repeats(v, op.result) for v in op.args):
                yield op, f"the shape of {op.result.type} differs from the operands of {op.fn}"
            case ops.Map(args=args) if op.bits != 24:
                kind = args[-1].type
                if not (isinstance(kind, Tile | Fragment) and kind.dtype.is_float):
                    yield op, "`bits` applies only to floating-point results"
            case ops.Constant(result=Value(type=Tile(dtype=dtype, axes=()))):
                if not _holds(dtype, op.value):
                    yield op, f"{dtype} cannot represent {op.value!r}"
            case ops.Constant():
                yield op, "a constant must be a scalar"
            case _:
                pass


def _repeats(value: Value, made: Value) -> bool:
    """Whether each side of `value` is 1 or that of `made`."""
    sides = ((getattr(v.type, x, 1) for v in (value, made)) for x in ("rows", "columns"))
    return all(own in (1, whole) for own, whole in sides)


def _holds(dtype: DType, number: float | bool) -> bool:
    if dtype.kind == "bool":
        return isinstance(number, bool)
    if isinstance(number, bool) or (dtype.is_integer and not isinstance(number, int)):
        return False
    low, high = dtype.limits
    return dtype.is_float or low <= number <= high


def fragments_have_their_columns(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(
        ops.SliceColumns, ops.JoinColumns, ops.ReduceColumns, ops.MmaSync, ops.ScanColumns, ops.Iota
    ):
        match op:
            case ops.SliceColumns(
                x=Value(type=Fragment() as whole), result=Value(type=Fragment() as part)
            ):
                same = (whole.dtype, whole.rows) == (part.dtype, part.rows)
                if not same or op.start + part.columns > whole.columns or op.start % 8:
                    yield op, f"{part} from column {op.start} on is not a slice of {whole}"
            case ops.JoinColumns(result=Value(type=Fragment() as whole)):
                kinds = [v.type for v in op.parts]
                parts = [k for k in kinds if isinstance(k, Fragment)]
                alike = {(k.dtype, k.rows) for k in parts} == {(whole.dtype, whole.rows)}
                fits = alike and sum(k.columns for k in parts) == whole.columns
                if len(parts) < len(kinds) or not fits:
                    yield op, f"{', '.join(map(str, kinds))} do not join to {whole}"
            case ops.SliceColumns() | ops.JoinColumns():
                yield op, "operands and result must be fragments"
            case ops.ReduceColumns(x=Value(type=Fragment() as x), result=Value(type=kind)):
                one = Tile(x.dtype) if x.rows == 1 else dataclasses.replace(x, columns=1)
                if kind != (x if op.size else one) or (op.size and x.columns % op.size):
                    yield op, f"reducing the columns of {x} does not give {kind}"
                elif x.lanes.striped and op.size:
                    yield op, f"lanes of a striped {x} have no blocks of adjacent columns"
                elif x.lanes.warps > 1 and (op.size or x.columns) > 32 * x.lanes.vector:
                    yield op, f"warps share the columns of {x}: use store_partials, reduce_partials"
            case ops.MmaSync():
                kinds = [(x.type, y.type) for x, y in zip(op.a, op.b, strict=False)]
                fits = all(_multiplies(x, y) for x, y in kinds) and len(op.a) == len(op.b) > 0
                if not fits or op.result.type != Fragment(F32, ops.BLOCK_ROWS, 1):
                    told = ", ".join(f"{x} by {y}" for x, y in kinds)
                    yield op, f"mma_sync cannot multiply {told} to {op.result.type}"
            case ops.ScanColumns(x=Value(type=Fragment() as x), result=Value(type=kind)):
                if kind != x or x.lanes.warps > 1 or x.lanes.striped:
                    yield op, f"a scan of the columns of {x} within a warp does not give {kind}"
            case ops.Iota(result=Value(type=kind)):
                if not isinstance(kind, Fragment) or 1 not in (kind.rows, kind.columns):
                    yield op, "an iota must have one row or one column: 64 x 1, or 1 x w"
            case _:
                pass


def _multiplies(x: Type, y: Type) -> bool:
    """Whether `mma_sync` takes a fragment and a vector."""
    return (
        isinstance(x, Fragment)
        and x == Fragment(x.dtype, ops.BLOCK_ROWS, x.columns)
        and y == Fragment(x.dtype, 1, x.columns)
        and x.dtype in (F16, BF16)
        and x.columns % k_step(x.dtype) == 0
    )


def _reduces_rows(op: ops.StorePartials, kind: Fragment) -> str:
    if kind.rows == 1:
        return f"{kind} has no rows to reduce"
    if op.ctas > 1 or op.barriers is not None or op.state is not None or op.each:
        return "a reduction of rows must stay within a CTA"
    return "warps share the rows" if kind.lanes.warps > 1 else ""


def coordinates_are_whole(kernel: Kernel) -> Iterator[Problem]:
    made = kernel.definers
    copies: tuple[type[Copy], ...] = get_args(Copy)
    for op in kernel.of(*copies):
        tensor = _tensor_of(op, made)
        if tensor is None:
            yield op, "no make_tensor_map defines the tensor of this copy"
            continue
        rank = len(tensor.dims)
        if len(op.coordinates) != rank:
            yield op, f"{len(op.coordinates)} coordinates for a tensor of {rank} dimensions"
        if isinstance(op, ops.ThreadLoad | ops.PrefetchTile):
            if not -1 <= op.row_dim < rank - 1:
                yield op, f"row_dim={op.row_dim} must be a dimension before the last"
            elif op.row_dim < 0 and op.rows != 1:
                yield op, f"{op.rows} rows need a `row_dim`"


def rows_are_told_by_bools(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(ops.LoadGlobal):
        kind = op.result.type
        rows = Fragment(BOOL, kind.rows, 1) if isinstance(kind, Fragment) else None
        narrow = op.tensor.as_tensor.dtype.bits in (8, 16)
        if op.only is not None and (op.only.type != rows or not narrow):
            told = "one bool per row, for elements of 8 or 16 bits"
            yield op, f"only has type {op.only.type}; expected {told}"


def _tensor_of(op: Copy, made: Makers) -> Tensor | None:
    by_map = isinstance(op, ops.TmaLoad | ops.TmaStore | ops.PrefetchBox)
    held = made.get(op.map) if by_map else op
    kind = getattr(getattr(held, "tensor", None), "type", None)
    return kind if isinstance(kind, Tensor) else None


def items_hold_what_is_accessed(kernel: Kernel) -> Iterator[Problem]:
    made = kernel.definers
    for op in kernel.having("shared"):
        shared: object = getattr(getattr(op, "shared", None), "type", None)
        if not isinstance(shared, Shared) or isinstance(op, ops.Boxes):
            continue
        if fault := _layout_fault(op):
            yield op, fault
            continue
        start, end = reach(op, made)
        if end > shared.bytes:
            yield op, f"bytes {start} to {end} exceed an item of {shared.bytes} bytes"


def reach(op: Op, made: Makers) -> tuple[int, int]:
    """Return the range of an item that an op accesses, as far as attributes determine it."""
    if isinstance(op, ops.SmemDescriptor):
        return op.offset, op.offset + DTYPES[op.dtype].size(op.columns) * op.rows
    accesses = (e for e in op.effects(made) if isinstance(e, Access) and e.space == "smem")
    spans = [span for access in accesses for warp in access.spans for span in warp]
    ranges = [span.within or (span.start, span.start + span.size) for span in spans]
    end = max(
        (min(x, span.limit or x) for (_, x), span in zip(ranges, spans, strict=True)), default=0
    )
    return min((start for start, _ in ranges), default=0), end


def _layout_fault(op: Op) -> str:
    """Return why the layout of an access to SMEM is not possible."""
    match op:
        case ops.ClearPanels():
            line, span = op.columns * DTYPES[op.dtype].bytes, SWIZZLE_SPAN[op.swizzle]
            told = f"rows of {line} bytes are not a multiple of the swizzle span of {span} bytes"
            return told if line % span else ""
        case ops.LoadPanels():
            return _of_panels(op)
        case ops.LoadShared(result=Value(type=Tile() | Fragment() as kind)):
            size = kind.dtype.bytes
            if size not in (2, 4) or kind.dtype.bits < 16:
                return f"load_shared needs elements of 16 or 32 bits, not {kind.dtype}"
            if op.offset % size or op.bytes % size:
                return f"bytes {op.offset} to {op.offset + op.bytes} are not multiples of {size}"
            return _shapes_agree(op.index, kind)
        case ops.StorePartials(x=Value(type=Fragment() as kind)):
            if op.over_rows:
                return _reduces_rows(op, kind)
            apart = op.ctas > 1 and op.barriers is None
            return "`barriers` must count the bytes sent to other CTAs" if apart else ""
        case ops.ReducePartials(result=Value(type=Fragment() | Tile() as kind)):
            across = "rows" if op.over_rows else "columns"
            fits = isinstance(kind, Tile) or getattr(kind, across) == 1
            return "" if fits else f"the result must have one element for all {across}, not {kind}"
        case ops.StoreShared(value=Value(type=Fragment() as kind)):
            return _of_store(op, kind)
        case ops.StoreTransposed() | ops.LoadTransposed():
            return fault_of_lines(op)
        case ops.SmemDescriptor():
            line, span = DTYPES[op.dtype].size(op.columns), SWIZZLE_SPAN[op.swizzle]
            told = f"{op.rows} rows of {line} bytes are not multiples of 8 and {span}"
            return told if op.rows % 8 or line % span else ""
        case _:
            return ""


def _shapes_agree(index: Value, kind: Tile | Fragment) -> str:
    own = index.type
    if isinstance(own, Fragment) and isinstance(kind, Fragment):
        alike = (own.rows, own.columns) == (kind.rows, kind.columns)
    else:
        alike = isinstance(own, Tile) and isinstance(kind, Tile)
    integers = isinstance(own, Tile | Fragment) and own.dtype.is_integer
    return "" if alike and integers else f"an index of {own} does not give {kind}"


def _of_panels(op: ops.LoadPanels) -> str:
    kind, span = op.result.type, SWIZZLE_SPAN[op.swizzle]
    if not isinstance(kind, Fragment) or kind.columns % 8:
        return f"load_panels cannot load {kind}"
    line = kind.dtype.size(kind.columns)
    if kind.rows == 1 and (op.rows != 1 or op.start is not None):
        return "a fragment of one row needs a tile of one row and no `start`"
    reached = lines_reached(op.apart) if kind.rows > 1 else 1
    if op.apart != 16 and (op.start is None or op.swizzle in PACKED_SPAN):
        return "`apart` needs a `start` and a tile that is not packed"
    if max(kind.rows, reached) > op.rows or (op.rows > 1 and line % span):
        return f"{kind} does not fit a tile of {op.rows} rows of {span} bytes"
    return ""


def _of_store(op: ops.StoreShared, kind: Fragment) -> str:
    if (op.item is None) == (op.state is None) or (op.item is not None and op.rows):
        return "the destination must be a quarter of an `item`, or rows of the item of a `state`"
    if op.apart != 16 and op.state is None:
        return "`apart` needs a `state`"
    if op.half and (op.state is not None or op.joined):
        return "`half` needs an `item` that is not joined"
    if op.state is not None:
        fits = kind.rows == 64 and kind.columns % 8 == 0 and kind.dtype.bits in (8, 16, 32)
        if not fits or op.start is None or op.transposed or op.rows < lines_reached(op.apart):
            return f"{kind} does not fit a tile of {op.rows} rows"
        return ""
    size = kind.dtype.bytes
    wide, span = (op.line if op.transposed else kind.columns) * size, SWIZZLE_SPAN[op.swizzle]
    whole = not wide % span if op.swizzle == "none" else wide == span
    if kind.rows != 64 or kind.columns % 8 or not whole:
        return f"rows of {wide} bytes of {kind} do not fit swizzle {op.swizzle}"
    return ""


def operands_are_laid_out_alike(kernel: Kernel) -> Iterator[Problem]:
    """The shape that a descriptor has, and the one that the product takes."""
    made = kernel.definers
    for op in kernel.of(ops.WgmmaMmaAsync):
        if not isinstance(op.acc.type, Accumulator):
            continue
        for value, k_major in ((op.a, op.a_k_major), (op.b, op.b_k_major)):
            held = made.get(value)
            if not isinstance(held, ops.SmemDescriptor):
                continue
            depth = held.columns if held.k_major else held.rows
            if held.k_major != k_major:
                yield op, f"{value} is {'K' if held.k_major else 'MN'}-major, unlike the MMA"
            elif held.first % k_step(DTYPES[held.dtype]):
                yield op, f"the operand starts at element {held.first} of K, within a K step"
            elif held.first + op.k > depth:
                yield op, f"K {held.first} to {held.first + op.k} exceeds an operand of {depth}"
