"""What a tile asks of the card, step by step: what `Work` adds up and `predict` goes by."""

from __future__ import annotations

from dataclasses import dataclass

from wsdsl.ir.target import Target
from wsdsl.rates import Rates


@dataclass(slots=True, eq=False)
class Step:
    """What one iteration of a loop asks of an SM, but for loops in it: cycles of the tensor cores,
    bytes that they read of SMEM, instructions of all threads, bytes that come through slots, and
    bytes that threads load and store by themselves. `times`: iterations of it for a tile; outside
    of loops, 1.
    """

    times: float
    tensor: float = 0.0
    read: float = 0.0
    instructions: float = 0.0
    loaded: float = 0.0
    direct: float = 0.0
    stored: float = 0.0
    in_loop: bool = False
    chained: bool = False
    """Whether a product's operand is made of another one's results, which runs beside them."""
    decodes: bool = False
    """Whether consumers compute a product's operand of what is loaded."""


@dataclass(slots=True, eq=False)
class Workload:
    """Per output tile: its `steps`, and what they come to: cycles of the tensor cores, their
    multiplications and additions, bytes of operands, products that
     are read at once (`promoted`), rows, and, where the contraction can be cut, tiles of it
    (`depth`), elements of the sums, and their columns; and of the whole problem: tiles, bytes of
    the tensors, and of those that are written.
    """

    target: Target
    rates: Rates
    steps: tuple[Step, ...]
    tiles: int
    product_cycles: float
    operations: float
    operand_bytes: float
    tensor_bytes: float
    written_bytes: float
    promoted: float = 0
    further_parts: float = 0
    """Of products that are promoted in parts, but the first of each."""
    scaled: bool = False
    """Whether products are multiplied before they are summed."""
    rows: int = 0
    depth: int = 1
    sums: int = 0
    columns: int = 0
    least_slice: int = 8
    """Of the columns, where pieces finish slices of a tile."""
    cold_bytes: float = 0.0
    """Of those that are loaded, of the tensor that nearly all comes from, as far as it does."""
    crossing: float = 1.0
    """How much longer operands take to load, since their lines cross those of L2."""
    few_columns: bool = False
    """Whether a tile has all columns of the output, and these are few."""
    shared_out: bool = False
    """Whether it is what one of several CTAs of a cluster has, that share a contraction."""
    uneven: int = 1
    """So many tiles that follow each other are of unlike length: one part of as many, to all."""

    @property
    def clock(self) -> float:
        """Cycles a nanosecond in which all else is told: of SMs whose tensor cores are busy."""
        return self.rates.tensor_smem_clock

    @property
    def bytes_per_cycle(self) -> float:
        """What the loads ask of L2 while the tensor cores are busy."""
        return self.operand_bytes / max(1.0, self.product_cycles)

    @property
    def start(self) -> float:
        return start_cycles(self.rates, self.product_cycles > 0)

    @property
    def turn(self) -> float:
        """Of a tile in ping-pong, until the tensor cores are busy with the next one: they are
        handed over, and so is the first of its slots."""
        return 2 * self.rates.mbarrier_cycles


def start_cycles(rates: Rates, has_products: bool) -> float:
    """Until a kernel that is let start early has begun; and, for products, until TMA has read how a
    tensor lies, and the first operands have come."""
    start = rates.dependent_kernel_ns * rates.tensor_smem_clock
    first = rates.dram_loaded_ns * rates.tensor_smem_clock + 2 * rates.mbarrier_cycles
    return start + rates.tma_l2_cycles + first if has_products else start
