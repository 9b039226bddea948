"""The axes of a kernel, by name, and the loops over its output."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, regions, results_of
from wsdsl.ir.ops import DimLoop, ForEach, ForTiles, Store, Whole, Yield
from wsdsl.ir.rewriter import definitions, makers, retype, uses
from wsdsl.ir.types import Axis


@once
def axes_of(kernel: Kernel) -> Mapping[str, Axis]:
    """Every axis that a loop walks or that takes a dimension whole; names are unique."""
    return {v.type.name: v.type for v in definitions(kernel) if isinstance(v.type, Axis)}


def change_axes(kernel: Kernel, change: Callable[[Axis], Axis]) -> Kernel:
    """The kernel with the type of every axis value changed."""
    swap = {
        v: Value(v.name, change(v.type)) for v in definitions(kernel) if isinstance(v.type, Axis)
    }
    return kernel.with_body(retype(kernel.body, swap))


def loop_variable(axis: str) -> str:
    """The name that a schedule uses: a second loop over `k` has the axis `k__1`."""
    head, _, tail = axis.rpartition("__")
    return head if head and tail.isdigit() else axis


@once
def whole_axes(kernel: Kernel) -> frozenset[str]:
    """Axes that are no loop's: of dimensions taken whole."""
    taken = (op.result.type for op in kernel.of(Whole))
    return frozenset(kind.name for kind in taken if isinstance(kind, Axis))


def axis_of(block: Iterable[Op], name: str) -> Value | None:
    """The axis that these ops take: loops beside them may have axes of that name, too."""
    used = (v for op in block for v in operands(op) if isinstance(v.type, Axis))
    return next((v for v in used if v.as_axis.name == name), None)


def is_scattered(op: Store) -> bool:
    """Whether a tile's places are computed along some dimension."""
    return any(v.is_tile for v in op.index)


OpT = TypeVar("OpT", bound=Op)


@once
def output_nest(kernel: Kernel) -> tuple[Sequence[DimLoop], Region]:
    """The outermost parallel loops, and what they run; scalar work between them moves inside. One
    of them may be ragged (`ragged_loop`).
    """
    body = kernel.body
    nest: list[DimLoop] = []
    around: list[Op] = []
    while True:
        inner = [op for op in body if regions(op)]
        if len(inner) != 1 or not isinstance(inner[0], DimLoop) or inner[0].init:
            break
        loop = inner[0]
        others = [op for op in body if op is not loop and not isinstance(op, Yield)]
        if any(not results_of(op) for op in others):
            break
        if walks_a_part(loop) and not _by_groups(loop, (*around, *others), nest):
            break
        around += others
        nest.append(loop)
        body = loop.body
    rest = tuple(op for op in body if not (isinstance(op, Yield) and not op.values))
    return nest, (*around, *rest)


@once
def ragged_loop(kernel: Kernel) -> ForTiles | None:
    """Return the loop of the output nest that walks a part of its dimension: numbers in GMEM say
    which, in each iteration of the loops over `groups_of`.
    """
    loops = (loop for loop in output_nest(kernel)[0] if walks_a_part(loop))
    return next((loop for loop in loops if isinstance(loop, ForTiles)), None)


@once
def bounds_of(kernel: Kernel) -> Region:
    """Return the ops that compute the bounds of the ragged loop, if there is one."""
    loop = ragged_loop(kernel)
    return _bounds(loop, output_nest(kernel)[1]) if loop else ()


@once
def groups_of(kernel: Kernel) -> Sequence[DimLoop]:
    """Return the loops whose indices determine the bounds of the ragged loop."""
    loop = ragged_loop(kernel)
    return groups_around(kernel, loop) if loop else ()


def groups_around(kernel: Kernel, loop: ForTiles) -> Sequence[DimLoop]:
    """Return the loops of the output nest whose indices determine the bounds of a loop in it."""
    nest, body = output_nest(kernel)
    return _groups(nest, _bounds(loop, body))


def _bounds(loop: ForTiles, region: Region) -> Region:
    return makers(region, (v for v in (loop.start, loop.stop, loop.first) if v is not None))


def _groups(nest: Sequence[DimLoop], bounds: Region) -> list[DimLoop]:
    used = {*uses(bounds)}
    return [loop for loop in nest if loop.index in used]


def _by_groups(loop: DimLoop, around: Region, nest: Sequence[DimLoop]) -> bool:
    """Whether the bounds of a loop depend on indices and on GMEM alone, not on tiles; and no other
    loop around is ragged.
    """
    bounds = _bounds(loop, around) if isinstance(loop, ForTiles) else ()
    scalar = all(not regions(op) and not any(v.is_tile for v in results_of(op)) for op in bounds)
    groups = all(isinstance(each, ForEach) for each in _groups(nest, bounds))
    apart = isinstance(loop, ForTiles) and loop.one_cta
    return scalar and groups and not apart and not any(map(walks_a_part, nest))


def with_loops(region: Region) -> list[tuple[Op, tuple[DimLoop, ...]]]:
    """Every op, with the loops that stand around it in the region."""
    return with_outer(region, (DimLoop,))


def with_outer(
    region: Region, kinds: tuple[type[OpT], ...], around: tuple[OpT, ...] = ()
) -> list[tuple[Op, tuple[OpT, ...]]]:
    """Every op, with the ops of these kinds that stand around it in the region."""
    found: list[tuple[Op, tuple[OpT, ...]]] = []
    for op in region:
        found.append((op, around))
        inner = (*around, op) if isinstance(op, kinds) else around
        for body in regions(op):
            found += with_outer(body, kinds, inner)
    return found
