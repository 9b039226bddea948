"""Tensor memory as cells of 32 bits, who has reached which columns of it, and the products of one
thread, which run in the order of their issue.

Threads may rely on another's accesses from the `tcgen05_fence(after=True)` on that followed what
told them of it. So accesses of columns are checked by what their thread had seen at its last such
fence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from wsdsl.ir.hardware.tcgen05_shapes import COLUMNS, LANES, WARP_LANES
from wsdsl.ir.op import Op
from wsdsl.record import record
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.state.mbarrier_state import Barrier, RemoteArrival
from wsdsl.simulator.state.smem_races import Access, SharedAccesses
from wsdsl.simulator.state.vector_clocks import Clock, Clocks
from wsdsl.simulator.state.wgmma_groups import summed

Cells = tuple[Any, Any]
"""Indices of lanes and of columns."""


class FencedClocks(Clocks):
    """The clocks of threads at their last fence."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.seen = np.zeros_like(clocks.seen)
        self.width, self.own = clocks.width, clocks.own

    def catch_up(self, actors: slice) -> None:
        self.seen[actors] = self.clocks.seen[actors]


class TensorMemory:
    """A CTA's: cells by (lane, column), and the columns that it has, from `first` on."""

    def __init__(self, columns: int, clocks: Clocks, cta: int) -> None:
        self.columns, self.cta = columns, cta
        self.cells = np.full((LANES, COLUMNS), 0xFFFFFFFF, np.uint32)
        self.written = np.zeros((LANES, COLUMNS), bool)
        self.freed = False
        """Also where the other CTA of a pair has done so."""
        self.fenced = FencedClocks(clocks)
        self.accesses = SharedAccesses(2 * COLUMNS, self.fenced)
        """Of the columns of one half of each quarter of the lanes, then of those of the other."""
        for span in self.accesses.spans:
            # A read of cells before any write is legal: an accumulator without MMAs is not used.
            span.write = Untouched("nobody", _NO_OP)

    def read(self, cells: Cells) -> Array:
        return self.cells[cells]

    def write(self, cells: Cells, held: Array) -> None:
        self.cells[cells] = np.ascontiguousarray(held).view(np.uint32)


@record
class ColumnItems:
    """`num` items of `columns` columns from `first` on."""

    label: str
    first: int
    columns: int
    num: int


class Untouched(Access):
    """An access that no thread must wait for."""

    def open_to(self, clocks: Clocks, actors: slice) -> str:
        return ""


_NO_OP: Any = None
NEVER = 1 << 62
"""More phases than there are."""


@dataclass(eq=False)
class PipeAccess(Access):
    """An MMA's read of SMEM or write of TMEM, the `number`-th op of its thread: complete for
    threads that have seen the phase that counted a later commit of that thread.
    """

    pipe: TensorPipe
    number: int
    in_order: bool = False
    """Whether that thread's own products may follow it at once."""

    def open_to(self, clocks: Clocks, actors: slice) -> str:
        if self.in_order and actors == self.pipe.thread:
            return ""
        commits = [c for c in self.pipe.commits if c.number > self.number]
        if not commits:
            return "no tcgen05_commit follows that MMA"
        for commit in commits:
            for barrier, phase in zip(commit.barriers, commit.phases, strict=False):
                if int(clocks.seen[actors, barrier.component].min()) > phase:
                    return ""
        on = commits[0].barriers[0]
        told = f"no wait has completed a phase of {on}, on which its tcgen05_commit counts,"
        return f"{told} with a tcgen05_fence(after=True) before the access"


@dataclass(eq=False)
class CellAccess(Access):
    """A warpgroup's load, or store: over once the wait for it and then a `tcgen05_fence` have
    followed it.
    """

    by: slice
    kind: Literal["read", "write", "add", "take"]
    waited: bool = False
    epochs: Clock | None = None

    def open_to(self, clocks: Clocks, actors: slice) -> str:
        if actors == self.by and self.waited:
            return ""  # A warp's lanes are its own.
        if self.epochs is None:
            wait = "tcgen05_wait_ld" if self.kind == "read" else "tcgen05_wait_st"
            return "no tcgen05_fence follows it" if self.waited else f"no {wait} covers it"
        # A warp's lanes have read together, so one of its threads is enough.
        late = clocks.seen[actors, self.by] >= self.epochs
        if late.reshape(len(late), -1, 2).any(axis=2).all():
            return ""
        return "this is not ordered after its tcgen05_fence"


@dataclass(eq=False)
class Commit:
    """`phases` are those that counted the commit, once complete. `remote` are the barriers in other
    CTAs, which report the thread `by` by the name `who`.
    """

    op: Op
    number: int
    barriers: list[Barrier]
    arrive: Callable[[Barrier], None]
    who: str
    by: int
    remote: list[Barrier]
    phases: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        for barrier in self.remote:
            self.leave(barrier, NEVER)

    def leave(self, barrier: Barrier, epoch: int) -> None:
        barrier.remote[self.by] = RemoteArrival(self.who, self.op, barrier.component, epoch)

    def run(self) -> None:
        for barrier in self.barriers:
            self.phases.append(barrier.phase)
            if barrier in self.remote:
                self.leave(barrier, barrier.phase + 1)
            self.arrive(barrier)


class Job(Protocol):
    """An operation of the tensor pipe, which runs them in order."""

    @property
    def op(self) -> Op: ...
    def run(self) -> None: ...


@dataclass(eq=False)
class CellCopy:
    """The copy of an atom of scale factors, whose SMEM is read when it runs."""

    op: Op
    memory: TensorMemory
    lines: Callable[[], Array]
    cells: Cells

    def run(self) -> None:
        """Words of 32 rows of 16 bytes, to all quarters of the lanes."""
        words = self.lines().reshape(WARP_LANES, 16).view(np.uint32)
        self.memory.write(self.cells, np.tile(words, (4, 1)))


@dataclass(eq=False)
class CellProduct:
    """Its operands are read, and its sums written, when it runs."""

    op: Op
    memory: TensorMemory
    sums: Cells
    operands: tuple[Callable[[], Array], Callable[[], Array]]
    accumulate: bool
    step: int
    dtype: Any

    def run(self) -> None:
        before = self.memory.read(self.sums).view(self.dtype) if self.accumulate else None
        a, b = (fetch() for fetch in self.operands)
        total = summed(a, b, before, self.step)
        assert total is not None
        self.memory.write(self.sums, total)


def lanes_of(rows: int) -> Array:
    """The lane of each row of a sum."""
    row = np.arange(rows)
    return row if rows == LANES else WARP_LANES * (row // 16) + row % 16


@dataclass(eq=False)
class TensorPipe:
    """The products, copies and commits of one thread, in order."""

    thread: slice
    count: int = 0
    queue: deque[Job] = field(default_factory=deque[Job])
    commits: list[Commit] = field(default_factory=list[Commit])
    speed: float = 1.0

    def step(self) -> bool:
        self.queue.popleft().run()
        return bool(self.queue)
