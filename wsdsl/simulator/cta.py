"""CTAs, their clusters, and those of them that run at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Protocol

from wsdsl.ir.effects import Access, Space
from wsdsl.ir.op import Makers, Op
from wsdsl.simulator.recorded_effects import recorder
from wsdsl.simulator.reference.bound_arrays import Arguments
from wsdsl.simulator.state.gmem_races import GlobalAccesses
from wsdsl.simulator.state.mbarrier_state import Barrier, Meeting
from wsdsl.simulator.state.semaphores import Flags
from wsdsl.simulator.state.smem_bytes import SharedMemory
from wsdsl.simulator.state.tmem_cells import TensorMemory
from wsdsl.simulator.state.vector_clocks import THREADS, Clocks

Recent = deque[tuple[Op, tuple[tuple[str, int], ...]]]
"""The last ops of a warpgroup, each with the indices of the loops around it."""

SPEEDS = (0.02, 1.0, 1.0, 50.0)
"""How eagerly someone gets on, drawn for each: orders that even chances would hardly ever show."""
STRAGGLES = (1.0, 1.0, 1.0, 0.05)
"""By how much one copy differs from others of the same op, so that they overtake each other."""


class Agent(Protocol):
    """Work of the async proxy in flight; the scheduler decides when it advances."""

    speed: float

    def step(self) -> bool:
        """Get on; is there more to come?"""
        ...


class Residents:
    """CTAs that may see each other while they run: one set of clocks covers them."""

    def __init__(
        self,
        arguments: Arguments,
        accesses: GlobalAccesses,
        size: tuple[int, int, int],
        rng: Random,
        seed: int,
        definers: Makers,
    ) -> None:
        """`size` counts CTAs, and the warpgroups and barriers of each."""
        self.definers = definers
        self._accesses: dict[tuple[int, Space], list[Access]] = {}
        self.grid_size, self.num_warpgroups, self.num_barriers = size
        self.arguments, self.accesses, self.rng, self.seed = arguments, accesses, rng, seed
        self.clocks = Clocks(
            self.grid_size * self.num_warpgroups, self.grid_size * self.num_barriers
        )
        self.flags = Flags(self.clocks)
        self.effects = recorder()
        self.agents: list[Agent] = []
        self.ctas: list[Cta] = []
        self.unstarted: list[int] = []
        """Clusters of the grid that may be claimed, `in_order` or any of them."""
        self.in_order = False
        self._speeds: dict[object, float] = {}

    @property
    def alone(self) -> bool:
        return self.grid_size == 1

    def stated(self, op: Op, space: Space) -> list[Access]:
        """Return the accesses to a memory space that the op states (`Op.effects`)."""
        found = self._accesses.get((id(op), space))
        if found is None:
            stated = (e for e in op.effects(self.definers) if isinstance(e, Access))
            found = self._accesses[id(op), space] = [e for e in stated if e.space == space]
        return found

    def start(self, agent: Agent, op: Op, cta: Cta) -> None:
        """Add an agent in flight. Each op has its own speed in each CTA."""
        key = id(op), cta.index
        speed = self._speeds.get(key)
        if speed is None:
            speed = self._speeds[key] = self.rng.choice(SPEEDS)
        agent.speed = speed * self.rng.choice(STRAGGLES)
        self.agents.append(agent)


class Cluster:
    """CTAs that reach each other's barriers and SMEM."""

    def __init__(self, index: int, grid_clusters: int, size: int) -> None:
        self.index, self.grid_clusters, self.size = index, grid_clusters, size
        self.ctas: list[Cta] = []
        self.at_sync = 0
        self.sync_round = 0
        self.refused = False
        """Whether a CLC response has reported that no cluster is left."""

    @property
    def everyone(self) -> slice:
        """All threads, as components of the clocks; those of adjacent CTAs are adjacent."""
        return slice(self.ctas[0].everyone.start, self.ctas[-1].everyone.stop)

    @property
    def barriers(self) -> Iterator[Barrier]:
        return (b for cta in self.ctas for held in cta.barriers.values() for b in held)

    @property
    def done(self) -> bool:
        return all(cta.done for cta in self.ctas)


class Cta:
    """One CTA: its SMEM, barriers and registers."""

    def __init__(
        self,
        index: int,
        grid_size: int,
        residents: Residents,
        cluster: Cluster,
        smem_bytes: int,
        registers: int,
    ) -> None:
        self.index, self.grid_size = index, grid_size
        self.residents, self.cluster = residents, cluster
        self.rank = len(cluster.ctas)
        cluster.ctas.append(self)
        place = len(residents.ctas)
        residents.ctas.append(self)
        self.arguments, self.clocks = residents.arguments, residents.clocks
        first = place * residents.num_warpgroups * THREADS
        self.everyone = slice(first, first + residents.num_warpgroups * THREADS)
        self.next_barrier = len(self.clocks.seen) + place * residents.num_barriers
        self.memory = SharedMemory(smem_bytes, self.clocks, index)
        self.tensor_memory: TensorMemory | None = None
        self.barriers: dict[str, list[Barrier]] = {}
        self.num_warpgroups = residents.num_warpgroups
        self.recent: list[tuple[str, Recent]] = []
        """By warpgroup, with its name."""
        self.free_registers = 0
        self.entry_registers = registers
        self.at_sync = 0
        self.sync_round = 0
        self.meetings: dict[int, Meeting] = {}
        self.done = False

    @property
    def suffix(self) -> str:
        """The CTA's name in messages, where several CTAs run."""
        return "" if self.residents.alone else f" of CTA {self.index}"
