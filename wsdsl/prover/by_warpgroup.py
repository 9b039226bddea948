"""Scalars that may differ between the warpgroups of a partition."""

from __future__ import annotations

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Kernel, Region, Value, operands, regions, results_of
from wsdsl.ir.types import Fragment
from wsdsl.ir.walk import yielded


def by_warpgroup(kernel: Kernel) -> frozenset[Value]:
    """What is computed from a warpgroup's index, or from elements, of which each warpgroup has its
    own; also what a loop gives whose trip count is such, or an `if` whose condition is.

    What all warpgroups load from the same place is the same, and so are CTAs' numbers.
    """
    found = set[Value]()

    def differs(values: tuple[Value, ...]) -> bool:
        return any(v in found or isinstance(v.type, Fragment) for v in values)

    def visit(region: Region) -> None:
        for op in region:
            for inner in regions(op):
                visit(inner)
            match op:
                case b.WarpgroupIndex():
                    found.update(results_of(op))
                case b.ForRange():
                    if differs((op.start, op.step)):
                        found.add(op.index)
                    handed = zip(op.args, op.init, yielded(op.body), strict=True)
                    for n, (arg, *of) in enumerate(handed):
                        found.update([arg] if differs(tuple(of)) else [])
                        if differs((arg, op.start, op.stop, op.step)):
                            found.add(op.result[n])
                case t.If():
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
