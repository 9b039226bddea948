"""Kernels whose tiles are as wide as each launch says: what they are at one width.

A launch gives by how many columns of wgmma's N its tiles are narrower than the kernel's widest
(`launch_narrowing`), and what depends on it takes that as `narrower`: products, boxes that TMA
loads, bytes that barriers expect, lines that it stores, and the number of tiles. `narrowed` writes
a number in its place, which leaves a kernel of one width. Spec, prover, simulator and the model go
by these, one after the other; code is made of the kernel as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wsdsl.ir.barrier_ops import ArriveExpectTx, LaunchGrid, LaunchNarrowing
from wsdsl.ir.fragment_ops import Wgmma
from wsdsl.ir.memory_ops import MakeTensorMap, TmaStore
from wsdsl.ir.op import Kernel, Op, Value, once, with_fields
from wsdsl.ir.tile_ops import Constant
from wsdsl.ir.tile_scheduler import Extents, count_work
from wsdsl.ir.types import Accumulator
from wsdsl.ir.walk import rewrite

WIDTH_STEP = 8
"""Columns of wgmma's N from one width to the next."""


BESIDE = 16
"""What a tile takes beside its products counts as so many columns. By the model the width that is
chosen so takes at most 0.4 % longer in the mean than the best one, if it is more than 64 columns,
and 1 % else (benchmarks/results/one_off_races.md)."""
LEAST = 32
"""Tiles of fewer columns take as long: loads of the other operand are the limit
(benchmarks/results/one_off_races.md)."""


def quickest(
    tiles: Extents, narrowed: int, widths: int, size: Callable[[str], int], room: int
) -> int:
    """By how much narrower than the widest ones, which `tiles` has, those of a launch are quickest,
    along the side `narrowed` of them, if `room` work items run at the same time. Of two that take
    as long, the wider ones.
    """

    beside, _ = count_work((*tiles[:narrowed], *tiles[narrowed + 1 :]), (), size)
    (dim, widest), room = tiles[narrowed], max(1, room)
    extent = size(dim)

    def cost(narrower: int) -> int:
        side = widest - narrower
        return -(-beside * -(-extent // side) // room) * (max(LEAST, side) + BESIDE)

    return min(narrowings(widths), key=cost)


def narrower_side(tiles: Extents, narrowed: int, columns: int) -> Extents:
    """Of tiles those that are narrower by so many columns; two of their sides may be along one
    dimension."""
    return tuple((dim, n - columns * (at == narrowed)) for at, (dim, n) in enumerate(tiles))


def narrowings(widths: int) -> range:
    """By how many columns tiles may be narrower, of so many widths."""
    return range(0, WIDTH_STEP * widths, WIDTH_STEP)


def narrowing_of(kernel: Kernel) -> LaunchNarrowing | None:
    """The op by which a kernel gets it, if its launches differ in width."""
    return next(iter(kernel.of(LaunchNarrowing)), None)


def each_width(kernel: Kernel) -> Sequence[Kernel]:
    """Return a SCHEDULED kernel at each of its widths, the widest first; itself if it has one."""
    return _each_width(kernel) if narrowing_of(kernel) else (kernel,)


@once
def _each_width(kernel: Kernel) -> Sequence[Kernel]:
    found = kernel.of(LaunchNarrowing)[0]
    return [narrowed(kernel, columns) for columns in narrowings(found.widths)]


def narrowed(kernel: Kernel, columns: int) -> Kernel:
    """The kernel of the tiles that are by so many columns narrower than its widest."""
    if narrowing_of(kernel) is None:
        return kernel

    def told(op: Op) -> tuple[Op]:
        if isinstance(op, LaunchNarrowing):
            return (Constant(result=op.result, value=columns, loc=op.loc),)
        narrower: Value | None = getattr(op, "narrower", None)
        return (op if narrower is None else _at(op, columns),)

    return kernel.with_body(rewrite(kernel.body, told))


def _at(op: Op, columns: int) -> Op:
    match op:
        case LaunchGrid():
            sizes = narrower_side(op.tiles, op.narrowed, columns)
            return with_fields(op, tiles=sizes, narrower=None, narrowed=0)
        case MakeTensorMap():
            box = (n - columns * (d == op.narrowed) for d, n in enumerate(op.box))
            return with_fields(op, box=tuple(box), narrower=None, narrowed=0)
        case ArriveExpectTx():
            left = op.tx_bytes - columns * op.line_bytes
            return with_fields(op, tx_bytes=left, narrower=None, line_bytes=0)
        case TmaStore():
            return with_fields(op, lines=op.lines - columns, narrower=None)
        case Wgmma():
            left = op.acc.type_as(Accumulator).columns - columns if columns else 0
            return with_fields(op, columns=left, narrower=None, widths=1)
        case _:
            raise AssertionError(op)
