"""What ptxas made of a kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resources:
    """What the machine code takes: a thread's registers, stack and spills, a CTA's SMEM. ptxas
    knows of its static part alone; the dynamic one stands in the signature."""

    registers: int
    smem_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    ptxas_version: str


@dataclass(frozen=True, slots=True)
class Assembled:
    cubin: bytes
    resources: Resources
    log: str
    """ptxas' own output."""
    ptx: str


def read_resources(log: str, version: str) -> Resources:
    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        smem_bytes=number(r"(\d+) bytes smem"),
        spill_store_bytes=number(r"(\d+) bytes spill stores"),
        spill_load_bytes=number(r"(\d+) bytes spill loads"),
        stack_bytes=number(r"(\d+) bytes stack frame"),
        ptxas_version=version,
    )
