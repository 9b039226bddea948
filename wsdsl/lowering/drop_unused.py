"""Leave out what nobody uses.

Before:
    %r: bf16[m, n] = load(tensor=%R, index=(%m, %n))
    %wide: f32[m, n] = cast(x=%r)
    store(tensor=%C, index=(%m, %n), value=%acc)
After:
    store(tensor=%C, index=(%m, %n), value=%acc)

Why here: first, so that nobody counts, loads or waits for it.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.op import Kernel, Region, regions, results_of
from wsdsl.ir.walk import uses, with_regions


def drop_unused(kernel: Kernel) -> Kernel:
    return dataclasses.replace(kernel, body=without_unused(kernel.body))


def without_unused(body: Region) -> Region:
    """The body without ops whose results nothing uses; what has regions stays, as what has none
    does."""

    def drop(region: Region) -> Region:
        return tuple(
            with_regions(op, drop)
            for op in region
            if regions(op) or not results_of(op) or used & set(results_of(op))
        )

    while True:
        used = set(uses(body))
        shorter = drop(body)
        if shorter == body:
            return body
        body = shorter
