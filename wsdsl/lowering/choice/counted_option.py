"""Schedules by which a CTA counts in SMEM: few CTAs, for as many tiles as there are, since each
adds all of its counters to memory in the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from wsdsl.ir.op import Kernel
from wsdsl.lowering.choice.plain_tiles import counted_tile
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.counters import countable, counter_faults
from wsdsl.lowering.model.workload import Work
from wsdsl.schedule import Schedule, changed

CONSUMERS, CTAS = (4, 2, 1), 2
"""Of a CTA, the best first; and on an SM, if their counters have room."""


def counted_options(
    kernel: Kernel, given: Schedule, work: Work, rows: Sequence[str], columns: Sequence[str]
) -> Iterator[Schedule]:
    """What is left open filled in, with the variables of the axes that are `rows` and `columns`;
    none if there are to be no counters.
    """
    if (given.counters is None and not work.sized) or given.counters == {}:
        return
    if given.mode == "pingpong" or given.cuts_tiles or cluster_size(given) > 1:
        return
    dims = {name: op.tensor.as_tensor.dims for name, op in countable(kernel).items()}
    known = {name: tuple(map(work.size, own)) for name, own in dims.items()}
    smallest = min(known, key=lambda name: math.prod(known[name]), default="")
    counters = given.counters or {name: known[name] for name in known if name == smallest}
    scheduler = "persistent" if given.scheduler in (None, "auto") else given.scheduler
    # Tiles that are given may be too small for all.
    teams = [given.consumers] if given.consumers else CONSUMERS if given.tile else CONSUMERS[:1]
    on_sm = [given.ctas_per_sm] if given.ctas_per_sm else range(CTAS, 0, -1)
    for consumers, ctas in itertools.product(teams, on_sm):
        option = changed(
            given,
            mode="cooperative",
            consumers=consumers,
            scheduler=scheduler,
            ctas_per_sm=ctas,
            counters=dict(counters),
        )
        height, width = counted_tile(kernel, option, work)
        tile = dict.fromkeys(rows, height) | dict.fromkeys(columns, width)
        option = changed(option, tile=tile | dict(given.tile or {}))
        if counters and not any(counter_faults(kernel, option)):
            yield option
            if not given.tile:
                return
