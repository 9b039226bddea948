"""Reject, at its line and by name, each construct of the language that is not lowered yet.

Before and after: the same kernel; all findings are raised at once as a CompileError.

Why here: before anything is built on the kernel.
"""

from collections.abc import Iterator, Mapping

from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir import ops
from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.hardware.tma_box import MAX_RANK
from wsdsl.ir.hardware.wgmma_shapes import MAX_COLUMNS, OPERANDS, may_be_mn_major, sum_of
from wsdsl.ir.op import Kernel, Makers, Op, Region, Value, operands, regions, used_inside, walk
from wsdsl.ir.types import F32, Axis, DType, Tile
from wsdsl.lowering.axes import loop_variable, output_nest, with_outer
from wsdsl.lowering.axis_blocks import MOST
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.held_rows import MOST_CTAS, room_for_rows
from wsdsl.lowering.packed_operands import unfit_packing
from wsdsl.lowering.product_operands import computed_operands, multiplied, with_casts
from wsdsl.lowering.spread_rows import spread_axes
from wsdsl.lowering.store_hazards import apart, may_meet, same_place, stored_in
from wsdsl.reachability import reached

SCALAR_DTYPES = (
    "f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2",
    "i32", "u32", "i16", "u16", "i8", "u8", "bool",
)  # fmt: skip


IN_SMEM = "leave Schedule.operand_transform out, so that functions of loads are in SMEM; or "
BOTH = "store one of them in a previous kernel, and load it"
BESIDE = (
    f'{BOTH}; operand_transform="smem" computes in SMEM elementwise functions of loads that '
    "contract no axis across the rows of another operand there"
)


def verify_lowerable(kernel: Kernel) -> Kernel:
    findings = [
        *_structure(kernel),
        *_whole_dimensions(kernel),
        *_stored_once(kernel),
        *_products(kernel),
        *_scalars(kernel),
        *_blocks(kernel),
        *_top(kernel),
        *_nibbles(kernel),
        *_order_of_memory(kernel),
        *unfit_packing(kernel),
    ]
    if findings:
        last = max((f.loc.line for f in findings if f.loc), default=0)
        findings.sort(key=lambda f: f.loc.line if f.loc else last + 1)
        raise CompileError(tuple(dict.fromkeys(findings)))
    return kernel


def _structure(kernel: Kernel) -> Iterator[Finding]:
    loops = [op for op in kernel.body if regions(op)]
    for extra in loops[1:]:
        told = "WS0310 a kernel with a second loop nest is not lowered yet"
        yield Finding(told, extra.loc, "move it to a separate kernel")
    nest, _ = output_nest(kernel)
    if not nest and len(loops) < 2:
        yield Finding(
            "WS0312 the outermost loop must be parallel, without values carried between tiles",
            loops[0].loc if loops else kernel.loc,
            "loop over the output's tiles with `for … in tiles(…)` around this; or carry nothing, "
            "and add to a tensor: S[0] += sum(x, over=n)",
        )


def _stored_once(kernel: Kernel) -> Iterator[Finding]:
    made = kernel.definers
    apart: dict[ops.Store, list[str]] = {}
    for loop in (
        x for x in output_nest(kernel)[0] if not (isinstance(x, ops.ForTiles) and x.whole)
    ):
        for op, ifs in with_outer(loop.body, (ops.If,)):
            if not isinstance(op, ops.Store) or op.accumulate:
                continue
            conditions = tuple(around.cond for around in ifs)
            if _depends(op.index, loop.index, made):
                chosen = _depends(conditions, loop.index, made)
                if isinstance(loop, ops.ForTiles) and not chosen and may_meet(op, loop, made):
                    yield _meeting(op, loop)
            elif not conditions:
                apart.setdefault(op, []).append(f"`{loop_variable(loop.index.name)}`")
    for op, loops in apart.items():
        names = " and ".join(loops)
        yield Finding(
            f"WS0313 all iterations of {names} store to the same elements, in no order",
            op.loc,
            f"store at {names}, add instead (`+=`), or loop over {names} inside and store after "
            f"{'that loop' if len(loops) == 1 else 'those loops'}",
        )


def _meeting(store: ops.Store, loop: ops.ForTiles) -> Finding:
    name, size = loop_variable(loop.index.name), loop.index.as_axis.size
    return Finding(
        f"WS0314 tiles of `{name}` may store to the same elements, in no order",
        store.loc,
        f"use (end({name}) - 1) // {size}, which differs for each of them, or add (`+=`)",
    )


def _depends(values: tuple[Value, ...], index: Value, made: Makers) -> bool:
    """Whether any of the values depends on a loop's index."""

    def after(value: Value) -> tuple[Value, ...]:
        op = made.get(value)
        if isinstance(op, ops.ForTiles) and value == op.index:
            # A part of a dimension that begins elsewhere in each iteration is another one.
            return (op.start,) if op.start else ()
        if op is None or value == getattr(op, "index", None):
            return ()
        return (*operands(op), *used_inside(op))

    return index in reached(values, after)


def _whole_dimensions(kernel: Kernel) -> Iterator[Finding]:
    """Check dimensions that are one tile: taken whole (`:`), or reduced outside of loops."""
    known, room = dict(kernel.sizes), room_for_rows(kernel)
    for op in kernel.ops:
        most = MAX_COLUMNS
        if isinstance(op, ops.Whole) and isinstance(op.result.type, Axis):
            dim, least, at = op.result.type.dim, 1, op.loc
            most = room.get(op.result.type.name, most)
            told, hint = f"`{dim}` is taken whole (`:`)", f"use `for … in tiles({dim})`"
        elif isinstance(op, ops.ForTiles) and op.whole and isinstance(op.index.type, Axis):
            dim, least, axis = op.index.type.dim, 0, op.index.type.name
            at = next((inner for inner in walk(op.body) if _reduces(inner, axis)), op).loc
            most = MOST_CTAS * most if axis in spread_axes(kernel) else room.get(axis, most)
            told = f"all of `{dim}` is reduced here"
            hint = (
                f"loop over it inside, `for {axis} in tiles({dim})`, and carry the result; or add "
                f"to a tensor, `S[…] += sum(x, over={axis})`; or reduce each tile separately, in "
                f"`tiles({dim}, by=128)`"
            )
        else:
            continue
        if dim not in known:
            told = f"WS0315 {told}, so its size must be known at compile time"
            yield Finding(told, at, f"compile({dim}=128), or call the kernel with arrays")
        elif not least <= known[dim] <= most:
            limit = f"it has {known[dim]} elements; one tile has {least} to {most}"
            yield Finding(f"WS0316 {told}, and {limit}", at, hint)


def _reduces(op: Op, axis: str) -> bool:
    if isinstance(op, ops.Contract):
        return axis in op.summed
    return isinstance(op, ops.Reduce | ops.Scan | ops.TopK) and op.axis == axis


def _products(kernel: Kernel) -> Iterator[Finding]:
    made = kernel.definers
    for op in kernel.of(ops.Contract):
        (a, b), shared = op.tiles, op.summed
        if len(shared) > 1:
            variables = ", ".join(map(loop_variable, shared))
            told = f"WS0317 a matmul that contracts {len(shared)} axes ({variables}) is not lowered"
            yield Finding(told, op.loc, "contract one axis, and loop over the other with `each`")
        for free, side in zip(op.free, ("first", "second"), strict=True):
            if len(free) != 1 and len(shared) == 1:
                yield Finding(
                    f"WS0318 the {side} operand of `@` has {len(free)} free axes; the tensor cores "
                    "take 1",
                    op.loc,
                    _by_element(op)
                    if not free
                    else f"loop over one with `each`: for {loop_variable(free[0])} in each(…)",
                )
        if sum_of(a.dtype, b.dtype) is None and not op.scales:
            loaded = all(isinstance(made.get(v), ops.Load) for v in (op.a, op.b))
            yield Finding(
                f"WS0319 the tensor cores do not support `@` of {a.dtype} and {b.dtype}",
                op.loc,
                "declare them as tf32, which takes f32 arrays and ignores their lower 13 bits"
                if a.dtype == b.dtype == F32 and loaded
                else f"write `{with_casts(op)}`: {OPERANDS}",
            )
        computed = [v for v in computed_operands(kernel, op) if v not in decoded(kernel).tiles]
        if computed:
            yield from _computed(kernel, op, computed, made)
        for load in (made.get(op.a), made.get(op.b)):
            if isinstance(load, ops.Load):
                yield from _operand(load, op, made)


def _by_element(product: ops.Contract) -> str:
    """The hint for a matmul without tensor cores, whose operations round to their dtype."""
    (a, b), (axis,) = product.tiles, product.summed
    wide = sum_of(a.dtype, b.dtype) or a.dtype
    first, second = (
        f"cast({x}, {wide})" if t.dtype != wide else x for x, t in (("a", a), ("b", b))
    )
    return f"for a @ b write sum({first} * {second}, over={loop_variable(axis)})"


def _computed(
    kernel: Kernel, product: ops.Contract, computed: list[Value], made: Makers
) -> Iterator[Finding]:
    """Check operands from registers: one per MMA, in the layout of its accumulators."""
    locs = [made[v].loc for v in computed if v in made]
    at = next((loc for loc in locs if loc), product.loc)
    instead = IN_SMEM if kernel.schedule and kernel.schedule.operand_transform else ""
    if len(computed) > 1:
        yield Finding(
            "WS0320 both operands of this matmul are transformed; the tensor cores take 1 from "
            "registers",
            product.loc,
            BESIDE if decoded(kernel).tiles else instead + BOTH,
        )
    for value in computed:
        if value.as_tile.dtype.bits != 16:
            yield Finding(
                f"WS0321 a transformed operand of `@` is {value.as_tile.dtype}; the tensor cores "
                "take bf16 and f16 from registers",
                at,
                f"{instead}convert both operands to bf16 or f16: cast(…, bf16)",
            )


def _operand(load: ops.Load, product: ops.Contract, made: Makers) -> Iterator[Finding]:
    last, name, dtype = load.last, load.tensor.name, load.dtype
    rows = [v for v in load.index if isinstance(v.type, Tile) and v.type.axes]
    if rows:
        row, text = (loc.written if loc else "x" for loc in (made[rows[0]].loc, load.loc))
        yield Finding(
            f"WS0322 gathered rows of `{name}` as an operand of `@` are not lowered yet",
            load.loc,
            f"write `where({row} >= 0, {text}, {0.0 if dtype.is_float else 0})`, which is computed",
        )
    elif last is None:
        yield Finding(
            f"WS0323 the last dimension of `{name}`, the contiguous one, must be an axis of the "
            "operand: TMA copies 16 contiguous bytes or more",
            load.loc,
            "transpose the tensor",
        )
    elif len(load.index) > MAX_RANK:
        told = f"WS0324 `{name}` has {len(load.index)} dimensions; TMA supports {MAX_RANK}"
        yield Finding(told, load.loc, "merge dimensions")
    elif last.name not in product.summed and not may_be_mn_major(dtype):
        along = ", ".join(product.summed)
        yield Finding(
            f"WS0325 `{name}` is {dtype}, and its last dimension is not the contraction axis "
            f"`{along}`: the tensor cores take only 16-bit types that way",
            load.loc,
            f"store the transpose of `{name}`, with `{along}` contiguous",
        )


def _scalars(kernel: Kernel) -> Iterator[Finding]:
    for p in kernel.params:
        if isinstance(p.type, Tile) and p.type.dtype.name not in SCALAR_DTYPES:
            wide = "f32" if p.type.dtype.is_float else "i32"
            told = f"WS0326 `{p.name}`: scalars of {p.type.dtype} are not lowered"
            yield Finding(told, kernel.loc, f"declare it as {wide}")


def _blocks(kernel: Kernel) -> Iterator[Finding]:
    for op in kernel.of(ops.ReduceBlocks):
        if op.size & (op.size - 1) or op.size > MOST:
            told = f"WS0327 blocks of {op.size} are not lowered; powers of two up to {MOST} are"
            hint = f"use tiles, for {op.axis} in tiles(…, by={op.size}), and reduce each"
            yield Finding(told, op.loc, hint)


def _top(kernel: Kernel) -> Iterator[Finding]:
    known = dict(kernel.sizes)
    for op in kernel.of(ops.TopK):
        dim = op.into.as_axis.dim
        if known.get(dim, 0) > MOST_OF_TOP:
            limit = f"up to {MOST_OF_TOP} largest elements of an axis are lowered"
            told = f"WS0328 `{dim}` is {known[dim]}; {limit}, by one reduction each"
            yield Finding(told, op.loc, "sort before the call")


MOST_OF_TOP = 32


def _nibbles(kernel: Kernel) -> Iterator[Finding]:
    """Reject stores of half a byte whose other half another thread may store."""
    parts = {loop.index.type for loop in kernel.of(ops.ForTiles) if walks_a_part(loop)}
    for op in kernel.of(ops.Store):
        if op.dtype.bits != 4 or (op.last is not None and op.last not in parts):
            continue
        alone = "single elements" if op.last is None else "a part"
        yield Finding(
            f"WS0329 `{op.tensor.name}` is {op.dtype}, 2 elements per byte, and this stores "
            f"{alone} of its rows, which overwrites other halves of bytes",
            op.loc,
            f"store to a tensor of {_byte_of(op.dtype)}, and convert it to {op.dtype} in a kernel "
            f"that loops over whole rows: {op.tensor.name}[m, n] = T[m, n]",
        )


def _byte_of(dtype: DType) -> str:
    return "f8e4m3" if dtype.is_float else f"{dtype.kind[0]}8"


def _walked_alike(kernel: Kernel) -> Mapping[Value, str]:
    """Map indices of consecutive loops in the output space to their dimension and variable: loops
    with equal ones have the same tiles in the same threads.
    """
    loops = (op for op in output_nest(kernel)[1] if isinstance(op, ops.ForTiles))
    whole = (op.index for op in loops if not walks_a_part(op))
    return {v: f"{v.as_axis.dim} by {loop_variable(v.as_axis.name)}" for v in whole}


def _order_of_memory(kernel: Kernel) -> Iterator[Finding]:
    """Reject loads of stored tensors: loads move to their use, and stores complete later."""
    made, alike = kernel.definers, _walked_alike(kernel)
    stored: dict[Value, list[ops.Store]] = {}
    for op in kernel.of(ops.Store):
        stored.setdefault(op.tensor, []).append(op)

    def read_back(block: Region, before: frozenset[Value]) -> Iterator[Finding]:
        """`before`: the tensors that are stored before it, here or around it."""
        for op in block:
            if isinstance(op, (ops.Load, ops.Lookup)) and op.tensor in stored:
                elementwise = isinstance(op, ops.Load) and op.result not in multiplied(kernel)
                same = isinstance(op, ops.Load) and all(
                    same_place(op, store, made, alike) or apart(op, store, made)
                    for store in stored[op.tensor]
                )
                if op.tensor in before or not (same and elementwise):
                    told = f"WS0330 the kernel loads and stores `{op.tensor.name}`, and this load "
                    told += "is not elementwise before the store"
                    yield Finding(told, op.loc, "store to another tensor")
            for inner in regions(op):
                yield from read_back(inner, before)
            before |= stored_in(op)

    yield from read_back(kernel.body, frozenset())
