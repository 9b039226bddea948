"""Partitions of the warpgroups of a CTA."""

from wsdsl.codegen.emission_context import Context
from wsdsl.diagnostics import CompileError
from wsdsl.ir.ops import Partition, by_warpgroup
from wsdsl.ir.printer import IR_HINT


def convert_partition(c: Context, *ops: Partition) -> None:
    """One chain of ifs on the warpgroup's index; the last partition takes all that are left."""
    w = c.w
    join = w.name("join")
    first = 0
    together = by_warpgroup(ops)
    for i, sharing in enumerate(together):
        op = sharing[0]
        if c.place.inside:
            raise CompileError("WS0602 a partition is within a partition", op.loc, IR_HINT)
        label = w.name(f"{op.role}_partition")
        if i + 1 < len(together):
            following = w.name("other_partitions")
            own = w.compare("ult", c.threads.warpgroup, first + op.num_warpgroups)
            w.branch(own, label, following, likely=True)
        else:
            following = join
            w.jump(label)
        w.begin(label)
        # Warps other than the one elected pass over a body, so that these run side by side.
        for warp, one in enumerate(sharing):
            with c.at(first_warpgroup=first, warp=warp):
                c.convert(c, one.body)
        w.jump(join)
        w.begin(following)
        first += op.num_warpgroups
