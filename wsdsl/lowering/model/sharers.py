"""CTAs that want the same lines of the operand that most bytes are loaded of.

L2 hands a line once to those of a GPC that ask for it at the same time. CTAs whose numbers follow
each other do, and those of a cluster; clusters get out of step with each other. So a cluster along
`n` loses more of the weights W[n, k] than it gains of X[m, k], if several of its kind have tiles of
the same `n`:

    tiles along m: 3, cluster=dict(n=4)     each line of W is wanted by three clusters
    tiles along m: 3, cluster=dict(m=3)     ... by one
    tiles along m: 1, cluster=dict(n=4)     ... by one

Lines that more clusters want than there are GPCs come to each of these in any case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from wsdsl.lowering.model.numbers import GPCS

if TYPE_CHECKING:
    from wsdsl.lowering.model.workload import Work


def are_scattered(work: Work, tile: Mapping[str, int], cluster: Mapping[str, int]) -> bool:
    """Whether those that want half of what is loaded, or more, are in several clusters, each of
    which has others, too.
    """
    size = math.prod(cluster.values())
    loaded = scattered = 0.0
    for load in work.load_terms if size > 1 else ():
        outside = [axis for axis, _ in work.outer if axis and axis not in load.axes]
        wanted = math.prod([work.places(axis, tile) for axis in outside])
        together = math.prod([cluster.get(axis, 1) for axis in outside])
        own = work.num_bytes(load.op.tensor.type)
        loaded += own
        scattered += own * (together < min(wanted, size) and wanted < GPCS * together)
    return scattered >= loaded / 2 > 0
