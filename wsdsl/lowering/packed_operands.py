"""Check loads and tiles of packed tensors (`ir/hardware/packed_layout.py`).

Threads read them as fragments of 64 x 64 blocks: from SMEM, whose layout is that in memory, as
inputs of transformed operands, and from GMEM in kernels without MMAs, whose columns are along the
last dimension.
"""

from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir.analysis.intervals import may_begin_anywhere
from wsdsl.ir.hardware.packed_layout import MAX_PACKED_RANK, packed_swizzle
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.ops import Contract, ForTiles, Load, Lookup, Store
from wsdsl.ir.rewriter import made_of
from wsdsl.ir.types import Axis, Sizes, Tensor
from wsdsl.lowering.product_operands import computed_operands, is_elementwise, multiplied
from wsdsl.lowering.register_layout import reduces_across
from wsdsl.lowering.schedule_findings import extent_fault


def packable_tensors(kernel: Kernel) -> list[Value]:
    """Return the parameters of a TILE kernel whose loads all fit."""
    fitting, others = set[Value](), set[Value]()
    fits = _fitting(kernel)
    for load in kernel.of(Load):
        (fitting if load in fits else others).add(load.tensor)
    others |= {op.table for op in kernel.of(Lookup)}
    return [p for p in kernel.params if p in fitting - others and _has_order(p)]


def unfit_packing(kernel: Kernel) -> Iterator[Finding]:
    """Reject loads of packed tensors for anything but a transformed operand of their layout."""
    fits = _fitting(kernel)
    for load in kernel.of(Load):
        name = load.tensor.name
        if load.packed and name in kernel.unaligned:
            told = f"WS0336 {name} is packed, and its data begin at no multiple of 16 bytes"
            yield Finding(told, load.loc, f"copy {name}.data, or pass {name} unpacked")
        elif load.packed and load not in fits:
            yield Finding(
                f"WS0308 {name} is packed, and this does not load whole tiles of it for a "
                "transformed operand of `@` that contracts its last dimension, or in a kernel "
                "without `@` whose other tensors have their rows along the same axes",
                load.loc,
                f"pass {name} unpacked, or an unpacked copy of it for this",
            )
    for lookup in kernel.of(Lookup):
        if isinstance(lookup.table.type, Tensor) and lookup.table.type.packed:
            message = f"WS0309 {lookup.table.name} is packed, and a lookup needs an unpacked table"
            yield Finding(message, lookup.loc, f"pass {lookup.table.name} unpacked")


def packed_faults(kernel: Kernel, sizes: Sizes) -> Iterator[Finding]:
    """Reject tiles of packed tensors that do not have whole blocks."""
    told = set[str]()
    for load in kernel.of(Load):
        for axis in load.axes if load.packed else ():
            if sizes[axis.name] % PACKED_LINES and axis.name not in told:
                told.add(axis.name)
                blocks = f"blocks of {PACKED_LINES} x {PACKED_LINES}"
                limit = f"a multiple of {PACKED_LINES}: {load.tensor.name} is packed in {blocks}"
                yield extent_fault(kernel, axis.name, sizes[axis.name], limit, load.loc)


def _has_order(param: Value) -> bool:
    kind = param.type
    ranks = range(2, MAX_PACKED_RANK + 1)
    return isinstance(kind, Tensor) and len(kind.dims) in ranks and bool(packed_swizzle(kind.dtype))


def _fitting(kernel: Kernel) -> set[Load]:
    """Loads that computed operands are made of, element by element, whose last two indices are the
    operand's axes, the one that is summed over last; without MMAs, of tiles of the only two axes.
    """
    made, found = kernel.definers, set[Load]()
    loops = (op for op in kernel.of(ForTiles) if may_begin_anywhere(op, made))
    parts = {op.index.type.name for op in loops if isinstance(op.index.type, Axis)}
    if not kernel.of(Contract):
        tiles = [op for op in kernel.of(Load, Store) if len(op.axes) > 1]
        names = {tuple(axis.name for axis in op.axes) for op in tiles}
        whole = len(names) == 1 and not reduces_across(kernel) and not parts & {*next(iter(names))}
        loads = (op for op in tiles if isinstance(op, Load))
        return {op for op in loads if whole and op.axes == tuple(v.type for v in op.index[-2:])}
    for product in kernel.of(Contract):
        for operand in computed_operands(kernel, product):
            for _, op in made_of((operand,), made, is_elementwise):
                if isinstance(op, Load) and _lies_like(op, operand, product.summed, parts):
                    found.add(op)
    return {load for load in found if load.result not in multiplied(kernel)}


def _lies_like(load: Load, operand: Value, summed: tuple[str, ...], parts: set[str]) -> bool:
    last = load.index[-2:]
    names = tuple(v.type.name for v in last if isinstance(v.type, Axis))
    return (
        len(load.axes) == 2
        and names == load.result.axes
        and {*names} == {*operand.as_tile.axes}
        and names[1:] == summed
        and not parts & {*names}
    )
