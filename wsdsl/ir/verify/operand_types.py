"""Types that operands and results of ops may have, by the names of fields and of ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain

from wsdsl.ir import types as t
from wsdsl.ir.op import Kernel, Op, Value, operands_in, results_of
from wsdsl.ir.op_fields import names_of, op_name
from wsdsl.ir.ops import Contract, Reduce

Kinds = tuple[type, ...]
TILES: Kinds = (t.Tile, t.Fragment, t.SharedTile)
OPERANDS: dict[str, Kinds] = {
    name: kinds
    for names, kinds in {
        "axis into summed across": (t.Axis,),
        "barriers full empty": (t.Barriers,),
        "map": (t.TensorMap,),
        "memory": (t.TensorMemory,),
        "ring": (t.Ring,),
        "scales columns": (t.Columns,),
        "shared": (t.Shared,),
        "state a_state scale_state shared_state": (t.State,),
        "table tensor": (t.Tensor,),
        "accumulators loads": (t.Accumulator,),
        "acc": (t.Accumulator, t.Tile),
        "fragments": (t.Fragment,),
        "a b": (*TILES, t.Columns, t.MatrixDescriptor),
        "args x value parts before i only a_scale b_scale": TILES,
        "store_shared.value send_fragment.value tcgen05_st.value": (t.Fragment,),
        "index": (*TILES, t.Axis),
        "sums": (t.Tile, t.Columns),
        "slot": (t.Slot, t.Tile),
        "init values": (*TILES, t.State, t.Accumulator, t.Slot),
    }.items()
    for name in names.split()
}
"""Any other operand is a scalar: of these names a bool, else i32."""
I32 = t.Tile(t.I32)
FRAGMENT_BITS = 256 * 32 * t.THREADS
FLAGS = ("cond", "accumulate", "pred", "started")


@cache
def _operand_kinds(cls: type[Op]) -> Sequence[tuple[str, Kinds, t.Tile]]:
    """Return each operand field of a class with its types or, if there are none, its scalar."""
    own = {
        n: OPERANDS.get(f"{op_name(cls)}.{n}", OPERANDS.get(n, ()))
        for n in names_of(cls, "operand")
    }
    return [(n, kinds, t.Tile(t.BOOL if n in FLAGS else t.I32)) for n, kinds in own.items()]


def _axes(value: Value) -> set[str]:
    return {*getattr(value.type, "axes", ())}


def values_have_legal_types(kernel: Kernel) -> Iterator[tuple[Op | None, str]]:
    if not kernel.body:
        yield None, "the kernel has no ops"
    for p in kernel.params:
        if not isinstance(p.type, t.Tensor) and p.type != t.Tile(getattr(p.type, "dtype", t.I32)):
            yield None, f"parameter {p} is {p.type}; expected a tensor or a scalar"
    by_mmas = kernel.level == "partitioned" and bool(kernel.of(Contract))
    tiles: list[tuple[Op | None, t.Type]] = [(op, v.type) for v, op in kernel.definers.items()]
    tiles += [(None, v.type) for v in kernel.params]
    tiles += [(op, tile) for op in kernel.ops for tile in chain(*getattr(op, "layouts", ()))]
    axes = {kind.name for _, kind in tiles if isinstance(kind, t.Axis)}
    for op, kind in tiles:
        for axis in getattr(kind, "axes", ()):
            if axis not in axes:
                yield op, f"{kind}: no op defines the axis {axis}"
    for value, op in kernel.definers.items():
        kind = value.type
        if isinstance(kind, t.Fragment):
            bits = kind.rows * kind.columns * kind.dtype.bits
            whole = kind.lanes == t.ACCUMULATOR and kind.rows > 1
            if not 0 < bits <= FRAGMENT_BITS or 64 % kind.rows or (whole and kind.rows < 64):
                yield None, f"{value} is {kind}, which exceeds the registers of a warpgroup"
        elif by_mmas and isinstance(kind, t.Axis) and kind.role == "rows" and kind.size % 64:
            yield op, f"{kind}: tiles of MMAs need a multiple of 64 rows"
    for op in kernel.ops:
        name = op_name(type(op))
        if isinstance(op, Reduce) and _axes(op.x) != {op.axis} | _axes(op.result):
            yield op, f"a reduction of {op.x.type} over {op.axis} cannot give {op.result.type}"
        for field, kinds, scalar in _operand_kinds(type(op)):
            for value in operands_in(op, (field,)):
                if not isinstance(value.type, kinds) if kinds else value.type != scalar:
                    told = " or ".join(one.__name__ for one in kinds) if kinds else str(scalar)
                    yield op, f"{name}: {field}={value} is {value.type}; expected {told}"
        made = results_of(op)[0].type if op.result_type else None
        if op.result_type and not isinstance(made, op.result_type):
            yield op, f"{name} returns {made}; expected {op.result_type.__name__}"
        axes, numbers = name in ("for_tiles", "for_work"), name != "for_tiles"
        for value in operands_in(op, ("index",)) if "index" in names_of(type(op), "bind") else ():
            if not (axes if isinstance(value.type, t.Axis) else numbers and value.type == I32):
                yield op, f"{name}: {value} is {value.type}; expected an axis or an i32"
