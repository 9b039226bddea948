"""What a tile asks of the card, step by step: what `Work` adds up and `predict` goes by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wsdsl.rates import Rates

if TYPE_CHECKING:
    from wsdsl.lowering.model.workload import Work


@dataclass(slots=True, eq=False)
class Step:
    """What one iteration of a loop asks of an SM, but for loops in it; outside of loops, once.

    times: iterations for a tile
    chained: a product's operand is made of another one's results, which runs beside them
    decodes: consumers compute a product's operand of what is loaded
    tensor, read, operations: cycles of the tensor cores, bytes that these read of SMEM, and what
        they multiply and add
    promoted, further: products that are read at once, and parts of these, but the first of each
    instructions: of all threads
    moved, loaded: bytes that come through slots; as many aligned ones as would in the time
    direct, stored: bytes that threads load by themselves, and that are stored
    """

    times: float
    in_loop: bool
    chained: bool
    decodes: bool = False
    tensor: float = 0.0
    read: float = 0.0
    operations: float = 0.0
    promoted: float = 0.0
    further: float = 0.0
    instructions: float = 0.0
    moved: float = 0.0
    loaded: float = 0.0
    direct: float = 0.0
    stored: float = 0.0


@dataclass(eq=False)
class Workload:
    """Of all tiles, and of each.

    depth, sums, columns: where the contraction can be cut, tiles of it, elements of the sums, and
        their columns
    cold_bytes: loaded of the tensor that nearly all comes from, as far as it does
    few_columns: a tile has all columns of the output, and these are few
    uneven: so many tiles that follow each other take from one part of as many to all of the time
    is_shared_out: it is what one of several CTAs of a cluster has that share a contraction
    clock: cycles a nanosecond in which all is told, of SMs whose tensor cores are busy
    bytes_per_cycle: what loads ask of L2 while the tensor cores are busy
    turn: cycles of a tile in ping-pong until the tensor cores are busy with the next one: they are
        handed over, and so is the first of its slots
    """

    work: Work
    steps: tuple[Step, ...]
    tiles: int
    depth: int
    sums: int
    columns: int
    rows: int
    cold_bytes: float
    few_columns: bool
    uneven: int
    is_shared_out: bool = False

    def __post_init__(self) -> None:
        self.target, self.rates, self.clock = self.work.target, self.work.rates, self.work.clock
        self.product_cycles, self.operand_bytes = self.in_all("tensor"), self.in_all("loaded")
        self.promoted, self.further_parts = self.in_all("promoted"), self.in_all("further")
        self.decodes = any(step.decodes for step in self.steps)
        self.bytes_per_cycle = self.operand_bytes / max(1.0, self.product_cycles)
        self.start = start_cycles(self.rates, self.product_cycles > 0)
        self.turn = 2 * self.rates.mbarrier_cycles

    def in_all(self, what: str) -> float:
        """Of a tile."""
        return sum([step.times * getattr(step, what) for step in self.steps])

    @property
    def crossing(self) -> float:
        """How much longer operands take to load, since their lines cross those of L2."""
        return self.operand_bytes / max(1.0, self.in_all("moved"))

    def shared_out(self, sharing: int) -> Workload:
        """Of each CTA, where so many share the contraction of a tile: as if tiles were more."""
        depth = -(-self.depth // sharing)

        def own(step: Step) -> Step:
            if step.in_loop:
                return replace(step, times=step.times * depth / max(1, self.depth))
            computing, stored = step.instructions / sharing, step.stored / sharing
            return replace(step, instructions=computing, stored=stored)

        steps, tiles = tuple(map(own, self.steps)), self.tiles * sharing
        return replace(self, steps=steps, tiles=tiles, depth=depth, is_shared_out=True)


def start_cycles(rates: Rates, has_products: bool) -> float:
    """Until a kernel that is let start early has begun; and, for products, until TMA has read how a
    tensor lies, and the first operands have come."""
    start = rates.dependent_kernel_ns * rates.tensor_smem_clock
    first = rates.dram_loaded_ns * rates.tensor_smem_clock + 2 * rates.mbarrier_cycles
    return start + rates.tma_l2_cycles + first if has_products else start
