"""Errors of a simulated kernel, which a GPU would not report: it would hang or compute garbage."""

from collections.abc import Sequence
from dataclasses import replace

from wsdsl.diagnostics import Finding, WsdslError
from wsdsl.ir.printer import IR_HINT

KINDS = {
    "deadlock": "WS0900 deadlock",
    "race": "WS0901 race",
    "overlap": "WS0902 overlapping stores differ",
    "uninitialized": "WS0903 uninitialized read",
    "bounds": "WS0904 out of bounds",
    "misuse": "WS0905 misuse",
}


class SimulationError(WsdslError):
    """A SCHEDULED kernel deadlocks, races or misuses the hardware.

    `kind` is one of `KINDS`; `trace` has the last steps of each warpgroup.
    """

    def __init__(self, kind: str, findings: Sequence[Finding], trace: str = "") -> None:
        self.kind = kind
        self.trace = trace
        first, *rest = findings
        message, hint = f"{KINDS[kind]}: {first.message}", first.hint or IR_HINT
        first = replace(first, message=message, hint=hint)
        super().__init__([first, *rest, *([Finding(trace)] if trace else [])])
