"""The axes of a kernel, by name, and the loops over its output."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, regions, results_of
from wsdsl.ir.ops import DimLoop, Store, Whole, Yield
from wsdsl.ir.rewriter import definitions, retype
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
    """The outermost parallel loops, and what they run; scalar work between them moves inside."""
    body = kernel.body
    nest: list[DimLoop] = []
    around: list[Op] = []
    while True:
        inner = [op for op in body if regions(op)]
        if len(inner) != 1 or not isinstance(inner[0], DimLoop) or inner[0].init:
            break
        loop = inner[0]
        others = [op for op in body if op is not loop and not isinstance(op, Yield)]
        if any(not results_of(op) for op in others) or walks_a_part(loop):
            break
        around += others
        nest.append(loop)
        body = loop.body
    rest = tuple(op for op in body if not (isinstance(op, Yield) and not op.values))
    return nest, (*around, *rest)


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
