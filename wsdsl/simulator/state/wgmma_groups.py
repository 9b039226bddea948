"""The wgmmas of a warpgroup that are in flight, their groups, and the accumulators they write."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from wsdsl.ir.op import Op
from wsdsl.simulator.reference.arithmetic import Array, contracted
from wsdsl.simulator.state.smem_races import TensorRead


@dataclass(eq=False)
class AccumulatorRegisters:
    """Registers that wgmma writes. `version` counts the SSA values that have stood for them.

    `touched` is the number of wgmma fences at the time when other instructions last used them.
    """

    value: Array | None
    touched: int
    version: int = 0


@dataclass(frozen=True, eq=False)
class AccumulatorValue:
    registers: AccumulatorRegisters
    version: int

    @property
    def stale(self) -> bool:
        return self.version != self.registers.version


@dataclass(eq=False)
class Product:
    """One wgmma: its operands are read, and its registers written, when it runs."""

    op: Op
    registers: AccumulatorRegisters
    operands: tuple[Callable[[], Array], Callable[[], Array]]
    accumulate: bool
    step: int
    read: TensorRead
    fragment: Array | None = None
    """Its operand in registers, if it has one."""
    beyond: int = 0
    """Columns of the registers behind those that it adds to, which then hold anything."""
    done: bool = False

    def run(self) -> None:
        a, b = (fetch() for fetch in self.operands)
        before = self.registers.value if self.accumulate else None
        if before is not None:
            before = before[:, : before.shape[1] - self.beyond]
        found = summed(a, b, before, self.step)
        if self.beyond and found is not None:
            anything = float("nan") if found.dtype.kind == "f" else 77
            found = np.pad(found, ((0, 0), (0, self.beyond)), constant_values=anything)
        self.registers.value = found
        self.done = True


def summed(a: Array, b: Array, total: Array | None, step: int) -> Array | None:
    """`total` and the product of rows of K elements: one instruction (`step` of K) at a time, which
    is also too little for BLAS to thread.

    Floats are summed in f64, where as few products are exact: which way BLAS takes depends on
    where in a matrix an element lies, and its bits must not.
    """
    a, b = _wide(a), _wide(b)
    with np.errstate(all="ignore"):
        for k in range(0, a.shape[1], step):
            part = slice(k, k + step)
            product = contracted(a[:, part], b[:, part], ([1], [1]))
            product = product.astype(np.float32) if product.dtype == np.float64 else product
            total = product if total is None else total + product
    return total


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype == np.float32 else x


@dataclass(eq=False)
class WgmmaPipe:
    """Products run in the order of their issue; groups retire in the order of their commits."""

    fences: int = 0
    queue: deque[Product] = field(default_factory=deque[Product])
    open: list[Product] = field(default_factory=list[Product])
    groups: list[list[Product]] = field(default_factory=list[list[Product]])
    speed: float = 1.0

    def step(self) -> bool:
        self.queue.popleft().run()
        return bool(self.queue)

    def in_flight(self, registers: AccumulatorRegisters) -> bool:
        held = [*self.open, *(p for group in self.groups for p in group)]
        return any(p.registers is registers for p in held)
