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
does not write what they are loaded from; other products stay as they are. An operand of fp8 that
is computed may have a scale that is computed, too, and alike in each block:

    %s: f8e8m0[m, k] = cast(x=%largest)
    %q: f8e4m3[m, k] = cast(x=%divided)
    %p: f32[m, n] = contract(a=%q, b=%b, a_scale=%s, b_scale=%t, block=32)

Why here: in front of `move_factors`, which makes factors of a sum of what is left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from wsdsl.ir.block_scales import KINDS, are_scaled, kind_of
from wsdsl.ir.factors import Factored, split, widens
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.scale_atoms import block_in_atoms, in_atoms
from wsdsl.ir.tile_ops import Cast, Contract, Load, Map, Store
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import Namer, rewrite
from wsdsl.lowering.axes import is_tile
from wsdsl.lowering.axis_blocks import is_even
from wsdsl.lowering.passes.drop_unused import without_unused
from wsdsl.lowering.scale_loads import blocks_of

OF_FP8 = 32
"""Elements of a block."""


def scale_products(kernel: Kernel) -> Kernel:
    if not kernel.target.has_tensor_memory:
        return kernel
    made, namer = kernel.definers, Namer.of(kernel)
    stored = {op.tensor for op in kernel.of(Store)}

    def scaled(op: Op) -> tuple[Op, ...]:
        sides = _sides(op, made) if isinstance(op, Contract) else None
        if not isinstance(op, Contract) or sides is None:
            return (op,)
        k, (a, b) = op.summed[0], (tile for tile, _ in sides)
        found = [_scale(side, k, made) for side in sides]
        loads = [load for load in found if load is not None]
        # A scale that is computed has the blocks of the other's; two of them those of fp8.
        alike = {(load.dtype.name, load.block, in_atoms(load)) for load in loads}
        dtype, block, atoms = next(iter(alike), (sides[0][1][0].as_tile.dtype.name, OF_FP8, False))
        if len(alike) > 1 or stored & {load.tensor for load in loads}:
            return (op,)
        if kind_of(a.as_tile.dtype.name, b.as_tile.dtype.name, dtype, block) is None:
            return (op,)
        own, scales = list[Load](), list[Value]()
        for side, load in zip(sides, found, strict=True):
            scale = None if load or atoms else _computed(side, k, block, dtype, made)
            if load is not None:
                own.append(_named(load, namer))
                scale = own[-1].result
            if scale is None:
                return (op,)
            scales.append(scale)
        where = dict[str, Any](a_scale=scales[0], b_scale=scales[1], block=block)
        return (*own, dataclasses.replace(op, a=a, b=b, **where))

    body = rewrite(kernel.body, scaled)
    return kernel if body == kernel.body else dataclasses.replace(kernel, body=without_unused(body))


def _sides(op: Contract, made: Mapping[Value, Op]) -> tuple[Factored, Factored] | None:
    """Both operands and their factors; one that is computed has one factor."""
    if len(op.summed) != 1:
        return None
    k = op.summed[0]
    a, b = (split(v, k, made) or _made(v, k, made) for v in (op.a, op.b))
    if a is None or b is None or not (a[1] and b[1]):
        return None
    total = are_scaled(a[0].as_tile.dtype, b[0].as_tile.dtype)
    return (a, b) if total == op.result.as_tile.dtype else None


def _made(value: Value, k: str, made: Mapping[Value, Op]) -> Factored | None:
    """An operand of 8 bits that is computed, and its scale."""
    op = made.get(value)
    if not isinstance(op, Map) or op.fn != "mul":
        return None
    sides = [_before_widening(v, made) for v in op.args]
    for tile, factor in (sides, sides[::-1]):
        whole = {*tile.as_tile.axes} == {*value.as_tile.axes} and len(value.as_tile.axes) == 2
        if whole and k in factor.as_tile.axes and not isinstance(made.get(tile), Load):
            return tile, [factor]
    return None


def _before_widening(value: Value, made: Mapping[Value, Op]) -> Value:
    op = made.get(value)
    while isinstance(op, Cast) and widens(op.x.as_tile.dtype, op.result.as_tile.dtype):
        value = op.x
        op = made.get(value)
    return value


def _computed(
    side: Factored, k: str, block: int, dtype: str, made: Mapping[Value, Op]
) -> Value | None:
    """The scale of a computed operand, computed, too, and alike in each block."""
    tile, factors = side
    scale = factors[0].as_tile
    fits = len(factors) == 1 and scale.dtype.name == dtype and scale.axes == tile.as_tile.axes
    fits = fits and scale.axes[-1] == k and not isinstance(made.get(factors[0]), Load)
    return factors[0] if fits and is_even(factors[0], k, block, made) else None


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
