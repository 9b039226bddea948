"""Let the tensor cores multiply operands by the scales of their blocks, where they can.

Before:
    %kb: i32[k] = map(fn="floordiv", args=(%k_index, %c32))
    %a: f8e4m3[m, k] = load(tensor=%A, index=(%m, %k))
    %s: f8e8m0[m, k] = load(tensor=%a_scale, index=(%m, %kb))
    %x: f32[m, k] = map(fn="mul", args=(%wide_a, %wide_s))
    %p: f32[m, n] = contract(a=%x, b=%y)
After:
    %a: f8e4m3[m, k] = load(tensor=%A, index=(%m, %k))
    %s: f8e8m0[m, k] = load(tensor=%a_scale, index=(%m, %k), block=32)
    %p: f32[m, n] = contract(a=%a, b=%b, a_scale=%s, b_scale=%t, block=32)

Or, where scales lie in atoms (`ir/hardware/scale_factor_atoms.py`): the same of a tensor [.., ..,
2, 256]. Both operands have one scale each, of types and blocks that an instruction takes, TMA takes
what they are loaded from, the kernel does not write that, and sums over all of a dimension; other
products stay as they are. Of operands of fewer than 8 bits, the tensor cores take f4e2m1 beside
f4e2m1 as it lies in a tensor; others are cast to f8e4m3, which has all of their values.

Why here: in front of `move_factors`, which makes factors of a sum of what is left.
"""

from collections.abc import Callable, Mapping
from typing import Any

from wsdsl.ir.analysis.factors import Factored, split, taken_as, unwidened
from wsdsl.ir.analysis.scale_factor_indices import block_in_atoms, in_atoms
from wsdsl.ir.hardware.block_scale_factors import KINDS, are_scaled, kind_of
from wsdsl.ir.op import Kernel, Makers, Op, Value, with_fields
from wsdsl.ir.ops import Cast, Contract, Load, Map
from wsdsl.ir.rewriter import Namer, definitions, rewrite
from wsdsl.ir.types import Axis, DType, Tile
from wsdsl.lowering.passes.dce import without_unused
from wsdsl.lowering.scale_loads import blocks_of, kept_out
from wsdsl.lowering.tmem_accumulators import summed_parts


def scale_products(kernel: Kernel) -> Kernel:
    if not kernel.target.has_tensor_memory:
        return kernel
    made, namer = kernel.definers, Namer.of(kernel)
    axes = {v.as_axis.name: v for v in definitions(kernel) if isinstance(v.type, Axis)}
    out, in_parts = kept_out(kernel), summed_parts(kernel)

    def scaled(op: Op) -> tuple[Op, ...]:
        sides = _sides(op, made) if isinstance(op, Contract) else None
        if not isinstance(op, Contract) or sides is None:
            return (op,)
        k, (a, b) = op.summed[0], (tile for tile, _ in sides)
        found = (_scale(side, k, axes, made) for side in sides)
        loads = [load for load in found if load is not None]
        alike = {(load.dtype.name, load.block, in_atoms(load)) for load in loads}
        if len(loads) < 2 or len(alike) > 1:
            return (op,)
        ((dtype, block, _),) = alike
        types = _types(a, b, lambda a, b: kind_of(a.name, b.name, dtype, block))
        read = (load for load in (*loads, made.get(a), made.get(b)) if isinstance(load, Load))
        if types is None or k in in_parts or out & {load.tensor.name for load in read}:
            return (op,)
        scales = [Value(namer.again(load.result.name), load.result.type) for load in loads]
        own: list[Op] = [with_fields(load, result=v) for load, v in zip(loads, scales, strict=True)]
        tiles = list[Value]()
        for tile, taken in zip((a, b), types, strict=True):
            tiles.append(tile)
            if taken != tile.as_tile.dtype:
                tiles[-1] = Value(namer.again(tile.name), Tile(taken, tile.as_tile.axes))
                own.append(Cast(result=tiles[-1], x=tile, loc=op.loc))
        where = dict[str, Any](a_scale=scales[0], b_scale=scales[1], block=block)
        return (*own, with_fields(op, a=tiles[0], b=tiles[1], **where))

    return kernel.with_body(without_unused(rewrite(kernel.body, scaled)))


def _sides(op: Contract, made: Makers) -> tuple[Factored, Factored] | None:
    """Both operands and their factors; one that is computed has one factor."""
    if len(op.summed) != 1:
        return None
    k = op.summed[0]
    a, b = (split(v, k, made) or _made(v, k, made) for v in (op.a, op.b))
    if a is None or b is None or not (a[1] and b[1]):
        return None
    types = _types(a[0], b[0], are_scaled)
    return (a, b) if types and are_scaled(*types) == op.result.as_tile.dtype else None


def _types(a: Value, b: Value, fit: Callable[[DType, DType], Any]) -> tuple[DType, DType] | None:
    """Those that two tiles are multiplied as: their own, if they fit, or what they are taken as."""
    own = a.as_tile.dtype, b.as_tile.dtype
    return next((types for types in (own, taken_as(*own)) if fit(*types)), None)


def _made(value: Value, k: str, made: Makers) -> Factored | None:
    """An operand of 8 bits that is computed, and its scale."""
    op = made.get(value)
    if not isinstance(op, Map) or op.fn != "mul":
        return None
    sides = [unwidened(v, made) for v in op.args]
    for tile, factor in (sides, sides[::-1]):
        whole = {*tile.as_tile.axes} == {*value.as_tile.axes} and len(value.as_tile.axes) == 2
        if whole and k in factor.as_tile.axes and not isinstance(made.get(tile), Load):
            return tile, [factor]
    return None


def _scale(side: Factored, k: str, axes: Mapping[str, Value], made: Makers) -> Load | None:
    """What loads the only factor of an operand: a scale for each block of a row, which lies behind
    the last one of that row, or in an atom.
    """
    tile, factors = side
    op = made.get(unwidened(factors[0], made)) if len(factors) == 1 else None
    if not isinstance(op, Load) or len(tile.as_tile.axes) != 2:
        return None
    if {*op.result.as_tile.axes} != {*tile.as_tile.axes}:
        return None
    (across,) = (axes[name] for name in tile.as_tile.axes if name != k)
    summed = axes[k]
    *others, last = op.index
    if blocks_of(last, made) is not None:
        axis, block = blocks_of(last, made) or (summed, 0)
        rows = [v for v in others if isinstance(v.type, Axis)]
        fits = axis == summed and rows == [across] and not any(v.is_tile for v in others)
        return with_fields(op, index=(*others, summed), block=block) if fits else None
    before = op.index[:-4]
    sizes = sorted({kind.block for kind in KINDS})
    block = block_in_atoms(op, across.as_axis.name, k, made, sizes)
    if not block or any(v.is_tile or isinstance(v.type, Axis) for v in before):
        return None
    kind = Tile(op.result.as_tile.dtype, (across.as_axis.name, k))
    made_of = Value(op.result.name, kind)
    return with_fields(op, result=made_of, index=(*before, across, summed), block=block)
