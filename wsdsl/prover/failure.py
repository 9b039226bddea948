"""Failures of a kernel while it is proved, by kind."""

from typing import Any

from wsdsl.ir.op import Op
from wsdsl.prover.machine.symbolic_terms import Term
from wsdsl.record import record

SPLIT_K, GLOBAL_ORDER = "split-K", "global memory"
KINDS = {
    "deadlock": "WS0950 deadlock",
    "race": "WS0951 race",
    "proxy": "WS0952 missing proxy fence",
    "phase": "WS0953 barrier phase",
    "unwritten": "WS0954 uninitialized read",
    "exit": "WS0955 outstanding at the end",
    "wgmma": "WS0956 wgmma order",
    "tensor": "WS0957 tensor memory order",
    "registers": "WS0958 register count",
    "misuse": "WS0959 misuse",
    SPLIT_K: "WS0960 split-K protocol",
    GLOBAL_ORDER: "WS0961 order of GMEM accesses",
    "unknown": "WS0962 not proved",
}


class Undecided(Exception):  # noqa: N818 - nothing is wrong
    """The run depends on whether `atom` holds: both must be followed."""

    def __init__(self, atom: Term) -> None:
        super().__init__(atom)
        self.atom = atom


class Outside(Exception):  # noqa: N818 - nothing is wrong
    """A CTA reaches one of its cluster that is not looked at with it."""

    def __init__(self, own: int | None, rank: int) -> None:
        super().__init__(f"CTA {own} reaches CTA {rank}")


@record
class Party:
    """The index of an agent, and its op."""

    agent: int
    op: Op


class Failure(Exception):  # noqa: N818 - of the kernel, not of the prover
    """A fault of a kernel: its `kind`, the failing op and the conflicting one.

    `missing` is an event that should have come before (a bit of the history), where one is known.
    """

    def __init__(
        self, kind: str, message: str, party: Party, earlier: Party | None = None, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.party, self.earlier, self.hint = (
            kind,
            message,
            party,
            earlier,
            hint,
        )
        self.details: dict[str, Any] = {}
