"""Whether the tiles of a schedule can be claimed (`scheduler="dynamic"`)."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import Contract
from wsdsl.schedule import Schedule


def claim_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    if chosen.scheduler != "dynamic":
        return
    told = 'scheduler="dynamic"'
    if not kernel.target.claims_clusters:
        what = f"{told}: a CTA asks the card for its next tile, which {kernel.target} does not know"
        hint = 'use scheduler="grid", whose CTAs the card deals out, or compile for arch="sm_100a"'
        yield Finding(what, hint=hint)
    elif not kernel.of(Contract):
        what = f"{told}, and no product: several CTAs are on an SM, which the card deals out"
        yield Finding(what, hint='use scheduler="grid"')
