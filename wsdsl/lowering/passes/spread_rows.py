"""Have the CTAs of a cluster reduce the columns of products together.

Before, in a cluster of 8 CTAs along n:
    for_tiles(index=%n: axis<n of N by 256 columns>, whole=True) {
      %s: f32[m] = reduce(fn="add", x=%squares, axis="n")
After:
    for_tiles(index=%n: axis<n of N by 256 columns>, whole=True) {
      %s: f32[m] = reduce(fn="add", x=%squares, axis="n", ctas=8)

Why here: tile sizes and clusters are settled.
"""

from wsdsl.ir.op import Kernel, Op, Region, with_fields
from wsdsl.ir.ops import Reduce
from wsdsl.ir.rewriter import rewrite
from wsdsl.lowering.cooperation import cluster_along
from wsdsl.lowering.spread_rows import spread_axes


def spread_rows(kernel: Kernel) -> Kernel:
    assert kernel.schedule is not None
    schedule = kernel.schedule
    ctas = {name: cluster_along(schedule, name) for name in spread_axes(kernel)}

    def change(op: Op) -> Region:
        if isinstance(op, Reduce) and op.axis in ctas:
            return (with_fields(op, ctas=ctas[op.axis]),)
        return (op,)

    return kernel.with_body(rewrite(kernel.body, change))
