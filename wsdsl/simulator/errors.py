"""What the simulator raises when a kernel does what a card would hang on or get wrong."""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.diagnostics import Finding, WsdslError


class SimulationError(WsdslError):
    """A SCHEDULED kernel deadlocks, races or misuses the hardware.

    `kind` is "deadlock", "race", "misuse", or "overlap" where tiles that overlap store other bits;
    `trace` tells the last steps of each warpgroup.
    """

    def __init__(self, kind: str, findings: Sequence[Finding], trace: str = "") -> None:
        self.kind = kind
        self.trace = trace
        shown = [*findings, Finding(trace)] if trace else list(findings)
        super().__init__(shown)
