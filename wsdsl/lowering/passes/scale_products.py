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

Or, where scales lie in atoms (`ir/scale_atoms.py`): the same of a tensor [.., .., 2, 256]. Both
operands have one scale each, of types and blocks that an instruction takes, and the kernel
does not write what they are loaded from; other products stay as they are.

Why here: in front of `move_factors`, which makes factors of a sum of what is left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from wsdsl.ir.block_scales import KINDS, are_scaled, kind_of
from wsdsl.ir.factors import Factored, factored, widens
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.scale_atoms import block_in_atoms, in_atoms
from wsdsl.ir.tile_ops import Cast, Contract, Load, Store
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import Namer, rewrite
from wsdsl.lowering.axes import is_tile
from wsdsl.lowering.passes.drop_unused import without_unused
from wsdsl.lowering.scale_loads import blocks_of


def scale_products(kernel: Kernel) -> Kernel:
    if not kernel.target.has_tensor_memory:
        return kernel
    made, namer = kernel.definers, Namer.of(kernel)
    stored = {op.tensor for op in kernel.of(Store)}

    def scaled(op: Op) -> tuple[Op, ...]:
        sides = factored(op, made, are_scaled) if isinstance(op, Contract) else None
        if not isinstance(op, Contract) or sides is None:
            return (op,)
        a, b = (tile for tile, _ in sides)
        loads = [load for side in sides if (load := _scale(side, op.summed[0], made))]
        alike = len({(load.dtype.name, load.block, in_atoms(load)) for load in loads}) == 1
        if len(loads) < 2 or not alike or stored & {load.tensor for load in loads}:
            return (op,)
        block, dtypes = loads[0].block, (a.as_tile.dtype.name, b.as_tile.dtype.name)
        if kind_of(*dtypes, loads[0].dtype.name, block) is None:
            return (op,)
        own = [_named(load, namer) for load in loads]
        where = dict[str, Any](a_scale=own[0].result, b_scale=own[1].result, block=block)
        return (*own, dataclasses.replace(op, a=a, b=b, **where))

    body = rewrite(kernel.body, scaled)
    return kernel if body == kernel.body else dataclasses.replace(kernel, body=without_unused(body))


def _named(load: Load, namer: Namer) -> Load:
    return dataclasses.replace(load, result=Value(namer.again(load.result.name), load.result.type))


def _scale(side: Factored, k: str, made: Mapping[Value, Op]) -> Load | None:
    """What loads the only factor of an operand: a scale for each block of a row, which lies behind
    the last one of that row, or in an atom.
    """
    tile, factors = side
    op = made.get(factors[0]) if len(factors) == 1 else None
    while isinstance(op, Cast) and widens(op.x.as_tile.dtype, op.result.as_tile.dtype):
        op = made.get(op.x)
    loaded = made.get(tile)
    if not isinstance(op, Load) or not isinstance(loaded, Load):
        return None
    axes = {v.as_axis.name: v for v in loaded.index if isinstance(v.type, Axis)}
    if len(axes) != 2 or {*op.result.as_tile.axes} != {*axes}:
        return None
    (across,) = (v for name, v in axes.items() if name != k)
    summed = axes[k]
    *others, last = op.index
    if blocks_of(last, made) is not None:
        axis, block = blocks_of(last, made) or (summed, 0)
        rows = [v for v in others if isinstance(v.type, Axis)]
        fits = axis == summed and rows == [across] and not any(map(is_tile, others))
        return dataclasses.replace(op, index=(*others, summed), block=block) if fits else None
    before = op.index[:-4]
    sizes = sorted({kind.block for kind in KINDS})
    block = block_in_atoms(op, across.as_axis.name, k, made, sizes)
    if not block or any(is_tile(v) or isinstance(v.type, Axis) for v in before):
        return None
    kind = Tile(op.result.as_tile.dtype, (across.as_axis.name, k))
    made_of = Value(op.result.name, kind)
    return dataclasses.replace(op, result=made_of, index=(*before, across, summed), block=block)
