"""Elements of a tensor in global memory that an op accesses, and the threads that have them."""

from __future__ import annotations

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, regions, results_of
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import Fragment
from wsdsl.prover.machine.linear import Linear
from wsdsl.record import record


@record
class Along:
    """Elements [start, start + extent) of a dimension; without `extent` it is not known which, but
    equal starts are the same ones. `role`: along which side of a fragment they run. Of rows each
    warp has 16, which begin so far `apart`.
    """

    start: Linear
    extent: int | None
    role: str = ""
    apart: int = 16


@record
class Place:
    """Elements of `tensor`. `rows`: the dimension, and its number of elements per warp, one warp
    after another; None if warps do not have their own. `holder`: how many hold each element.
    """

    tensor: str
    dims: tuple[Along, ...]
    rows: tuple[int, int] | None
    holder: int

    def by_same_warps(self, other: Place) -> bool:
        """Whether no warp's elements of the one are another warp's of the other."""
        if self.rows is None or other.rows is None or self.rows[0] != other.rows[0]:
            return False
        (dim, own), (_, others) = self.rows, other.rows
        a, b = self.dims[dim], other.dims[dim]
        # From a warp's first to the next one's; only 16 rows lie `apart`.
        between, more = a.apart if own == 16 else own, b.start - a.start
        if more.terms or between != (b.apart if others == 16 else others):
            return False
        return own - between <= more.number <= between - others


@record
class Access:
    op: Op
    place: Place
    reads: bool
    adds: bool
    by_tma: bool
    pred: Value | None

    def clashes(self, other: Access) -> bool:
        """If they come to the same elements."""
        return not ((self.reads and other.reads) or (self.adds and other.adds))


@record
class Further:
    """By how much one place begins behind another, both ends included; None where that is open."""

    least: int | None
    most: int | None

    def apart(self, first: int, second: int) -> bool:
        """Whether `first` elements of the one, and `second` of the next, are different ones."""
        behind = self.least is not None and self.least >= first
        return behind or (self.most is not None and -self.most >= second)

    def interleaves(self, first: int, second: int) -> bool:
        """Whether the 16 rows of each warp lie between the others'."""
        exact = self.least is not None and self.least == self.most
        return exact and first == second == 32 and (self.least or 0) % 32 == 16


def by_warpgroup(kernel: Kernel) -> frozenset[Value]:
    """Values computed from a warpgroup's index, or from elements, since each warpgroup has its
    own; also what a loop gives whose trip count is such, or an `if` whose condition is.

    Loads of all warpgroups from one place are the same, and so are CTAs' numbers.
    """
    found = set[Value]()

    def differs(values: tuple[Value, ...]) -> bool:
        return any(v in found or isinstance(v.type, Fragment) for v in values)

    def visit(region: Region) -> None:
        for op in region:
            for inner in regions(op):
                visit(inner)
            match op:
                case ops.SpecialRegister(within="partition"):
                    found.update(results_of(op))
                case ops.Loop():
                    if differs(op.bounds[::2]):
                        found.add(op.index)
                    handed = zip(op.args, op.init, yielded(op.body), strict=True)
                    for n, (arg, *of) in enumerate(handed):
                        found.update([arg] if differs(tuple(of)) else [])
                        if differs((arg, *op.bounds)):
                            found.add(op.result[n])
                case ops.If():
                    for value, *of in zip(
                        op.result, yielded(op.then), yielded(op.orelse), strict=True
                    ):
                        found.update([value] if differs((op.cond, *of)) else [])
                case _ if differs(operands(op)):
                    found.update(results_of(op))
                case _:
                    pass

    before = -1
    while before < len(found):
        before = len(found)
        visit(kernel.body)
    return frozenset(found)
