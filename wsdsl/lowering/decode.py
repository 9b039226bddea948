"""Which operands of products a partition of threads makes: `Schedule.decode="shared"`.

A computed operand is made in the registers of the consumers that multiply it, or once for all of
them, by the threads of a partition of its own, which fill the slots of a circular buffer as TMA
would. That partition may make what is computed from loads, element by element, whatever it is. What
is made of another product, of a reduction, or of what a loop carries stays with the consumers.

In that partition a fragment's columns run along the lines of the operand's tile in its slot, and
its rows across them, whatever rows and columns are in the product: its axes have names and roles of
their own (`assign_decode_axes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel, Op, Value, once, operands
from wsdsl.ir.tile_ops import (
    Bitcast,
    Block,
    Cast,
    Constant,
    Contract,
    DimSize,
    End,
    Full,
    Index,
    Load,
    Lookup,
    Map,
    Store,
)
from wsdsl.ir.tma import TMA_ALIGN
from wsdsl.ir.types import Axis, Role, Tile
from wsdsl.ir.walk import made_of
from wsdsl.ir.wgmma import may_be_mn_major
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.product_operands import computed_operands
from wsdsl.schedule import Schedule

ELEMENTWISE = (Bitcast, Block, Cast, Constant, DimSize, End, Full, Index, Load, Lookup, Map)
ROWS = 64
"""Of a fragment: lines of a tile that are written at once."""


@dataclass(frozen=True)
class Decoded:
    """`tiles`: operands that are decoded, as they lie in their slots, lines along the last axis.
    `summed`: the axis that their product sums over. `inside` has all values that serve nothing
    else; `roles` those of axes in the partition that makes them.
    """

    tiles: Mapping[Value, Tile]
    summed: Mapping[Value, str]
    inside: frozenset[Value]
    roles: Mapping[str, Role]


NOTHING = Decoded({}, {}, frozenset(), {})


@once
def decoded(kernel: Kernel) -> Decoded:
    """What a partition of its own decodes: nothing, unless the schedule asks for it."""
    if kernel.schedule is None or kernel.schedule.decode != "shared":
        return NOTHING
    made, found = kernel.definers, dict[Value, tuple[str, list[Value]]]()
    stored = {op.tensor for op in kernel.of(Store)}
    for op in kernel.of(Contract):
        for operand in computed_operands(kernel, op):
            if operand in found:
                continue
            slice, axes = _slice(operand, made), op.summed
            makers = (made.get(v) for v in slice or ())
            read = {maker.tensor for maker in makers if isinstance(maker, (Load, Lookup))}
            if slice is not None and len(axes) == 1 and not read & stored:
                found[operand] = axes[0], slice
    for as_loaded in (True, False):
        tiles = {v: _tile(v, k, slice, made, as_loaded) for v, (k, slice) in found.items()}
        roles, agree = _roles(tiles.values())
        if agree:
            break
    else:
        # An axis that one product sums over and another one does not has one role: the first's.
        tiles = _that_agree(tiles)
        roles, _ = _roles(tiles.values())
    summed = {v: found[v][0] for v in tiles}
    return Decoded(tiles, summed, _serving(kernel, tiles), roles)


def num_decoders(kernel: Kernel) -> int:
    """Warpgroups that decode."""
    return 1 if decoded(kernel).tiles else 0


def _slice(operand: Value, made: Mapping[Value, Op]) -> list[Value] | None:
    """All that an operand is made of; None if a part of it is not made element by element."""
    found = list[Value]()
    for value, op in made_of((operand,), made, lambda op: isinstance(op, ELEMENTWISE)):
        if isinstance(value.type, Axis):
            continue
        scalar = isinstance(value.type, Tile) and not value.type.axes
        is_iteration = scalar and value is getattr(op, "index", None)
        if not isinstance(op, ELEMENTWISE) and not is_iteration:
            return None
        found.append(value)
    kind = operand.type
    return found if isinstance(kind, Tile) and len(kind.axes) == 2 else None


def _tile(
    operand: Value, summed: str, slice: list[Value], made: Mapping[Value, Op], as_loaded: bool
) -> Tile:
    """Lines along the axis that is summed over, or (of 16 bits) as what it is made of lies."""
    assert isinstance(operand.type, Tile)
    last = summed
    if as_loaded and may_be_mn_major(operand.type.dtype):
        loads = (op for op in map(made.get, slice) if isinstance(op, Load))
        whole = (op.last for op in loads if len(op.axes) == 2)
        last = next((end.name for end in whole if end), summed)
    first = next(x for x in operand.type.axes if x != last)
    return Tile(operand.type.dtype, (first, last))


def _roles(tiles: Iterable[Tile]) -> tuple[dict[str, Role], bool]:
    """By axis; and whether all tiles agree."""
    roles, agree = dict[str, Role](), True
    names: tuple[Role, ...] = ("rows", "columns")
    for tile in tiles:
        for axis, role in zip(tile.axes, names, strict=True):
            agree &= roles.setdefault(axis, role) == role
    return roles, agree


def _that_agree(tiles: Mapping[Value, Tile]) -> dict[Value, Tile]:
    kept = dict[Value, Tile]()
    for value, tile in tiles.items():
        if _roles([*kept.values(), tile])[1]:
            kept[value] = tile
    return kept


def _serving(kernel: Kernel, tiles: Mapping[Value, Tile]) -> frozenset[Value]:
    """The operands, and what nothing but they are made of."""
    users = dict[Value, list[Op]]()
    for op in kernel.ops:
        for value in operands(op):
            users.setdefault(value, []).append(op)
    found = {*tiles}
    ahead = [v for value in tiles for v in operands(kernel.definers[value])]
    while ahead:
        value = ahead.pop()
        op = kernel.definers.get(value)
        if value in found or not isinstance(op, ELEMENTWISE):
            continue
        if all(getattr(user, "result", None) in found for user in users[value]):
            found.add(value)
            ahead += operands(op)
    return frozenset(found)


def decode_faults(kernel: Kernel, sizes: Mapping[str, int]) -> Iterator[Finding]:
    """What is wrong with the tiles that are decoded."""
    for value, tile in decoded(kernel).tiles.items():
        rows, last = tile.axes
        at = kernel.definers[value].loc
        if sizes[rows] % ROWS:
            variable = loop_variable(rows)
            yield Finding(
                f"tile {variable}={sizes[rows]}: lines of an operand that is decoded "
                f'(Schedule.decode="shared") are written by {ROWS}',
                at,
                f"make it a multiple of {ROWS}",
            )
        if axes_of(kernel)[last].role and sizes[last] * tile.dtype.bytes % TMA_ALIGN:
            step = TMA_ALIGN // tile.dtype.bytes
            variable = loop_variable(last)
            yield Finding(
                f"tile {variable}={sizes[last]}: lines of an operand that is decoded "
                f'(Schedule.decode="shared") are multiples of {TMA_ALIGN} bytes',
                at,
                f"make it a multiple of {step}",
            )

    for load in kernel.of(Load):
        last = load.last.name if load.last and load.dtype.bits < 8 and len(load.axes) > 1 else ""
        if (
            load.result in decoded(kernel).inside
            and load.dtype.size(sizes.get(last, 0)) % TMA_ALIGN
        ):
            step, variable = load.dtype.count(TMA_ALIGN), loop_variable(last)
            yield Finding(
                f"tile {variable}={sizes[last]}: lines of {load.tensor.name} are copied by "
                f"{TMA_ALIGN} bytes",
                load.loc,
                f"make it a multiple of {step}",
            )


def unfit_decoding(kernel: Kernel, given: Schedule) -> Iterator[Finding]:
    """Where nothing can be made where the schedule says."""
    made, told = kernel.definers, f'Schedule.decode is "{given.decode}"'
    computed = [v for op in kernel.of(Contract) for v in computed_operands(kernel, op)]
    if given.decode is not None and not computed:
        yield Finding(f"{told}, and no operand of a product is computed", None, "leave it out")
    elif given.decode == "shared" and not decoded(kernel).tiles:
        at = next((made[v].loc for v in computed if v in made), None)
        yield Finding(
            f"{told}, and this operand is not made of loads alone, element by element",
            at,
            "leave it out: what is made of other products is made by who has them, in registers",
        )
