"""What ptxas made of a kernel."""

from __future__ import annotations

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
