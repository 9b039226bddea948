"""Asynchronous writes to SMEM counted by an mbarrier: TMA loads, CLC responses, remote stores."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from wsdsl.simulator.cta import Cta
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.state.mbarrier_state import Barrier
from wsdsl.simulator.state.smem_bytes import Region
from wsdsl.simulator.state.smem_races import CopyIn
from wsdsl.simulator.state.vector_clocks import Clock
from wsdsl.simulator.warpgroup import Warpgroup


@dataclass(eq=False)
class Transfer:
    """A write to the SMEM of a CTA, issued by `threads`. Its bytes land, and are counted, at once
    but late; `known` is complete for all threads that wait for them.
    """

    wg: Warpgroup
    op: Any
    cta: Cta
    region: Region
    barrier: Barrier
    threads: slice
    known: Clock
    speed: float = field(default=1.0, init=False)
    access: CopyIn = field(init=False)
    access_type: ClassVar[type[CopyIn]] = CopyIn

    def __post_init__(self) -> None:
        barrier = self.barrier
        self.access = self.access_type(self.wg.told, self.op, barrier.component, str(barrier))

    def start(self, place: str, asynchronous: bool = True) -> None:
        what, memory = f"it overwrites {place}{self.cta.suffix}", self.cta.memory
        where = memory, self.region, self.access, self.threads
        self.wg.begin(self.op, what, "write", *where, asynchronous=asynchronous)
        # A read before they land finds no old values.
        memory.poison(self.region)
        self.cta.residents.start(self, self.op, self.cta)

    def data(self) -> Array:
        """Return the bytes that land."""
        raise NotImplementedError

    def step(self) -> bool:
        data, barrier = self.data(), self.barrier
        self.cta.memory.write(self.region, data)
        self.access.phase = barrier.phase
        self.wg.note_arrival(self.op, barrier, self.threads)
        self.wg.check(self.op, barrier.complete_tx(data.size, self.known))
        return False
