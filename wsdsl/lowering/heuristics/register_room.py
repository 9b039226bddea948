"""Whether a choice of tiles surely leaves an epilogue the registers that it needs, and other
choices, where ptxas has too few registers for the first.

The numbers are registers of a thread, and say when ptxas 13.0 spills: of 232 or 240 that consumers
have, what it needs beside sums.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator

from wsdsl.ir.op import Kernel, Value, once
from wsdsl.ir.ops import Cast, Constant, Contract, ForEach, ForTiles, Full, Load, Map, Store
from wsdsl.ir.types import Tile
from wsdsl.lowering.axes import axes_of, loop_variable, whole_axes
from wsdsl.lowering.epilogue_operands import epilogue_slots
from wsdsl.lowering.footprint import (
    accumulator_registers,
    axis_sizes,
    is_heavy,
    promoted_registers,
    register_demand,
    score_registers,
)
from wsdsl.lowering.held_rows import with_roles
from wsdsl.lowering.heuristics.held_row_options import with_fewer_elements
from wsdsl.lowering.heuristics.reduced_row_options import with_fewer_rows
from wsdsl.lowering.heuristics.tile_sizes import with_fixed_tiles
from wsdsl.lowering.instruction_counts import COUNTED
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.lowering.spread_rows import with_more_ctas
from wsdsl.schedule import Schedule

MOST_PROMOTED = {1: 208, 2: 208, 3: 128, 4: 80}
"""Registers a thread for sums in the tensor cores and those they are promoted to, by consumers."""
MOST_SUMS, MOST_SUMS_TOGETHER, MOST_SUMS_OF_TILES = 192, 160, 128
"""The same of sums that are not promoted: where the epilogue reads nothing beside them; vectors, by
consumers who share a tile; and tiles.
"""
MOST_BESIDE_COPIES = (176, 128, 128)
"""The same by what the epilogue reads (`rank_beside_sums`), where threads copy operands: for more
sums they would have to spare registers, and ask for less at once."""
MOST_BESIDE_FACTORS = 168
"""The same of sums that threads add up beside tensor memory, with the factors of their columns: of
128 columns with factors that lie beside each other nothing spills, or 40 bytes; with others some
200, and of 112 nothing but where the epilogue reads tiles of 32 bits."""
LANES_OF_ROW = 4
"""Which share the columns of a row in a fragment."""
HEAVY = 176
"""Accumulators a thread from which on consumers need what loading can hardly spare."""
HEAVY_VECTORS = {"pingpong": 128, "cooperative": 144}
"""The same where the epilogue reads vectors: ptxas has all of them loaded at its start, if it may,
and spills."""
HEAVY_PROMOTED = 160
"""The same where sums are promoted: scaled products of 192 columns are 10 to 25 % slower with 232
registers a thread than with 240, though nothing spills."""
VECTOR_REGISTERS = 16
"""Of a row of 64 numbers, a thread's share."""
LONG = (3, 20, 60, 60, 60)
"""Instructions from which on a function holds as much, and as much again: `exp`; `tanh`; `**`."""


def leaves_room(kernel: Kernel, option: Schedule) -> bool:
    """Whether the epilogue surely has the registers it needs; a given schedule may try more. Least
    can be spared where it reads tiles beside the sums, but by a warpgroup with a tile of its own,
    for which they come through SMEM: 256 x 160 with bias and residual take 10 % longer than 128 x
    256.
    """
    accumulators = register_demand(kernel, option)
    if copied_operands(kernel) and accumulators > MOST_BESIDE_COPIES[rank_beside_sums(kernel)]:
        return False
    if promoted := promoted_registers(kernel, option):
        return accumulators + promoted <= MOST_PROMOTED[option.consumers or 1]
    if (factors := _factors(kernel, option)) and accumulators + factors > MOST_BESIDE_FACTORS:
        return False
    if option.consumers in (3, 4):
        return accumulators <= (96 if option.consumers == 3 else 64)
    return accumulators <= _most_sums(kernel, option)


def _factors(kernel: Kernel, option: Schedule) -> int:
    """Registers of a thread for what sums in tensor memory are scaled by in a loop, of each of its
    columns: numbers, and addresses of those that do not lie beside each other.
    """
    if not kernel.target.has_tensor_memory:
        return 0
    found, sizes, axes = 0, axis_sizes(kernel, option), axes_of(kernel)
    bodies = [loop.body for loop in kernel.of(ForTiles)]
    bodies = [body for body in bodies if any(isinstance(op, Contract) for op in body)]
    for op in (op for body in bodies for op in body if isinstance(op, Load)):
        own = op.result.as_tile.axes
        if len(own) == 1 and axes[own[0]].role == "columns":
            found += sizes[own[0]] // LANES_OF_ROW * (1 if op.last else 2)
    return found


def wants_registers(kernel: Kernel, chosen: Schedule) -> bool:
    """Whether its consumers need more registers than usual, and loading has to spare them."""
    sums, promoted = register_demand(kernel, chosen), promoted_registers(kernel, chosen)
    if promoted:
        return sums > HEAVY or sums + promoted > HEAVY_PROMOTED
    if rank_beside_sums(kernel) == 1:
        return sums > HEAVY_VECTORS[chosen.mode or "cooperative"]
    return sums > HEAVY or (is_heavy(kernel, chosen) and bool(epilogue_slots(kernel, chosen)))


def _most_sums(kernel: Kernel, option: Schedule) -> int:
    is_pingpong, rank = option.mode == "pingpong", rank_beside_sums(kernel)
    if rank == 0:
        return MOST_SUMS
    if rank == 2:
        return MOST_SUMS if is_pingpong and epilogue_slots(kernel, option) else MOST_SUMS_OF_TILES
    if is_pingpong:
        return MOST_SUMS - VECTOR_REGISTERS * _num_held(kernel)
    return min(MOST_SUMS_TOGETHER, MOST_SUMS - VECTOR_REGISTERS * (1 + _num_held(kernel)))


@once
def _num_held(kernel: Kernel) -> int:
    """Vectors that the epilogue reads, but for one along the rows and one along the columns, and as
    many for what it computes: ptxas 13.0 spills if that is more than 192 sums leave room for.
    """
    loaded = (op.result.type for op in kernel.of(Load))
    axes = [kind.axes for kind in loaded if isinstance(kind, Tile) and len(kind.axes) == 1]
    roles = [axes_of(kernel)[name].role for (name,) in axes]
    rows, columns = roles.count("rows"), roles.count("columns")
    both = rows > 0 and columns > 1
    longest = max((COUNTED.get(op.fn, 0) for op in kernel.of(Map)), default=0)
    computing = sum(longest >= least for least in LONG)
    return max(0, columns - 1) + max(0, rows - 1) + both + computing


@once
def rank_beside_sums(kernel: Kernel) -> int:
    """The axes, two at the most, of what stored values are made of beside sums: 0 of scalars and
    constants, 1 of vectors, such as a bias; 2 where they are made otherwise than element by
    element.
    """
    made, found = kernel.definers, dict[Value, int]()

    def rank(value: Value) -> int:
        if value not in found:
            found[value] = look(value)
        return found[value]

    def look(value: Value) -> int:
        match made.get(value):
            case Cast(x=x) | Full(value=x):
                return rank(x)
            case Map(args=args):
                return max(map(rank, args))
            case Constant() | ForTiles() | ForEach() | Contract():
                return 0
            case Load() | None if isinstance(value.type, Tile):
                return min(2, len(value.type.axes))
            case _:
                return 2

    stores = kernel.of(Store)
    return max((2 if op.accumulate else rank(op.value) for op in stores), default=2)


SHARES = ((64, 0.92), (512, 0.75), (math.inf, 0.5))
"""Where so many bytes spill, at the most, what share of the registers for sums is tried next. With
gelu, bias, residual and two results 192 columns in ping-pong spill 2644, 176 1684, 144 652, 128 332
and 96 nothing.
"""
MOST_FEWER = 3
"""Of those that are tried, by what spilled of the one before."""
WIDTHS = (192, 128, 64, 32)


def with_fewer_sums(
    kernel: Kernel, options: Iterable[Schedule], failed: Schedule, spilled: int
) -> Iterator[Schedule]:
    """Of the ways that are left open, best first, those whose threads hold so many fewer sums than
    under `failed` as what it spilled suggests.
    """
    most = next(share for limit, share in SHARES if spilled <= limit) * _sums(kernel, failed)
    return (o for o in options if 0 < _sums(kernel, o) <= most)


def _sums(kernel: Kernel, schedule: Schedule) -> int:
    """Registers of a thread that hold them, and what is made of scores."""
    sums = accumulator_registers(kernel, schedule) + promoted_registers(kernel, schedule)
    return sums + score_registers(kernel, schedule)


def narrower(source: Kernel, kernel: Kernel, given: Schedule | None) -> Iterator[Schedule]:
    """`given` with fewer elements of rows that are held, or more CTAs that share those of products,
    or fewer rows that are reduced at a time, with fewer CTAs on an SM, then with fewer and fewer
    columns in the widest tiles of a PARTITIONED kernel; none where `given` or the `source` says how
    many there are: by now all loops over tiles have a size.
    """
    given = given or Schedule()
    if kernel.schedule:
        roled = with_roles(source)
        yield from with_fewer_elements(roled, kernel.schedule, given) if roled else ()
        yield from with_more_ctas(source, kernel.schedule, given)
        yield from with_fewer_rows(kernel, kernel.schedule, given)
    beside = kernel.schedule.ctas_per_sm if kernel.schedule and not given.ctas_per_sm else None
    for fewer in range((beside or 1) - 1, 0, -1):
        yield dataclasses.replace(given, ctas_per_sm=fewer)
    known = (with_fixed_tiles(source, given)[0].tile or {}).keys() | whole_axes(kernel)
    widths = {
        loop_variable(axis.name): axis.size
        for axis in axes_of(kernel).values()
        if axis.role == "columns" and not {axis.name, loop_variable(axis.name)} & known
    }
    widest = max(widths, key=lambda x: widths[x], default="")
    for width in WIDTHS:
        if width < widths.get(widest, 0):
            yield dataclasses.replace(given, tile={**(given.tile or {}), widest: width})
