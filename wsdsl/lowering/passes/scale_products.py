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

Both operands have one scale each, of types and blocks that an instruction takes, and the kernel
does not write what they are loaded from; other products stay as they are.

Why here: in front of `move_factors`, which makes factors of a sum of what is left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from wsdsl.ir.block_scales import kind_of
from wsdsl.ir.factors import Factored, factored, widens
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.tile_ops import Cast, Contract, Load, Store
from wsdsl.ir.types import Axis
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
        sides = factored(op, made) if isinstance(op, Contract) else None
        if not isinstance(op, Contract) or sides is None:
            return (op,)
        a, b = (tile for tile, _ in sides)
        loads = [load for side in sides if (load := _scale(side, op.summed[0], made))]
        alike = len({(load.dtype.name, load.block) for load in loads}) == 1
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
    """What loads the only factor of an operand: a scale for each block of a row."""
    tile, factors = side
    op = made.get(factors[0]) if len(factors) == 1 else None
    while isinstance(op, Cast) and widens(op.x.as_tile.dtype, op.result.as_tile.dtype):
        op = made.get(op.x)
    if not isinstance(op, Load) or op.result.as_tile.axes != tile.as_tile.axes:
        return None
    *others, last = op.index
    block = blocks_of(last, made)
    rows = [v for v in others if isinstance(v.type, Axis)]
    if block is None or block[0].as_axis.name != k or len(rows) != 1 or any(map(is_tile, others)):
        return None
    return dataclasses.replace(op, index=(*others, block[0]), block=block[1])
