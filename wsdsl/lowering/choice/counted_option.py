"""Schedules by which a CTA counts in SMEM: few CTAs, for as many tiles as there are, since each
adds all of its counters to memory in the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from wsdsl.ir.op import Kernel
from wsdsl.lowering.choice.plain_tiles import counted_tile
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.counters import countable, counter_faults
from wsdsl.lowering.model.workload import Work
from wsdsl.schedule import Schedule, changed

CONSUMERS, CTAS = 4, 2
"""Of a CTA; and on an SM, if their counters have room."""


def counted_option(
    kernel: Kernel, given: Schedule, work: Work, rows: Sequence[str], columns: Sequence[str]
) -> Schedule | None:
    """What is left open filled in, with the variables of the axes that are `rows` and `columns`;
    None if there are to be no counters.
    """
    if (given.counters is None and not work.sized) or given.counters == {}:
        return None
    if given.mode == "pingpong" or given.cuts_tiles or cluster_size(given) > 1:
        return None
    dims = {name: op.tensor.as_tensor.dims for name, op in countable(kernel).items()}
    known = {name: tuple(map(work.size, own)) for name, own in dims.items()}
    smallest = min(known, key=lambda name: math.prod(known[name]), default="")
    smallest = min(known, key=lambda name: math.prod(known[name]), default="")
    counters = given.counters or {name: known[name] for name in known if name == smallest}
    scheduler = "persistent" if given.scheduler in (None, "auto") else given.scheduler
    for ctas in [given.ctas_per_sm] if given.ctas_per_sm else range(CTAS, 0, -1):
        option = changed(
            given,
            mode="cooperative",
            consumers=given.consumers or CONSUMERS,
            scheduler=scheduler,
            ctas_per_sm=ctas,
            counters=dict(counters),
        )
        if counters and not any(counter_faults(kernel, option)):
            height, width = counted_tile(kernel, option, work)
            tile = dict.fromkeys(rows, height) | dict.fromkeys(columns, width)
            return changed(option, tile=tile | dict(given.tile or {}))
    return None
