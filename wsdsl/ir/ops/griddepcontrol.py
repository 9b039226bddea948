"""SCHEDULED: programmatic dependent launch (griddepcontrol)."""

from __future__ import annotations

from wsdsl.ir.effects import Arrive, Effects, Wait
from wsdsl.ir.op import SCHEDULED, Makers, Op, op_class


@op_class(SCHEDULED, "any", ptx="griddepcontrol wait", was="wait_predecessor", by_lone_warps=True)
class GriddepWait(Op):
    """griddepcontrol.wait: a kernel with this op may start before the previous kernel on the
    stream is complete (programmatic dependent launch); here each thread waits for that, and sees
    its writes. No op before this one may access GMEM. It precedes the partitions, or is in each of
    them but those that only read tensors of `Schedule.pdl_independent`.
    """

    def effects(self, made: Makers) -> Effects:
        yield Wait("grid")


@op_class(SCHEDULED, "any", ptx="griddepcontrol launch_dependents", was="launch_dependents")
class GriddepLaunchDependents(Op):
    """griddepcontrol.launch_dependents: once every CTA of the grid has run it, the next kernel on
    the stream may start, if it waits for this one by itself. It comes after `griddep_wait`, so
    that at most the previous kernel still runs when a kernel starts.
    """

    def effects(self, made: Makers) -> Effects:
        yield Arrive("grid")
