"""SCHEDULED: control, pipeline state and everything that makes one thread wait for another."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.attribute_checks import PLACE
from wsdsl.ir.effects import Access, Arrive, Effects, Fence, Wait
from wsdsl.ir.op import (
    SCHEDULED,
    Makers,
    OneResult,
    Op,
    Value,
    op_class,
    with_fields,
)
from wsdsl.ir.types import Barriers, State


@op_class(SCHEDULED, "kernel", was="allocate_barriers", ranges=dict(offset=PLACE), result=Barriers)
class AllocateMbarriers(OneResult):
    """mbarriers at `offset` in SMEM (8 bytes each; -1: not yet placed). A phase completes after
    `arrivals` arrivals and as many bytes as were expected.
    """

    label: str
    arrivals: int
    offset: int = -1

    @property
    def smem_bytes(self) -> int:
        return 8 * self.result.type_as(Barriers).num


@op_class(SCHEDULED, "one", was="initialize_barriers")
class MbarrierInit(Op):
    """mbarrier.init each of the barriers; run by one thread."""

    barriers: Value

    def effects(self, made: Makers) -> Effects:
        yield Access("write", "mbarrier", self.barriers)


@op_class(SCHEDULED, "one", was="fence_barrier_init")
class FenceMbarrierInit(Op):
    """fence.mbarrier_init: make the initialized barriers visible to the async proxy; the
    initializing thread runs it.
    """

    def effects(self, made: Makers) -> Effects:
        yield Fence("mbarrier")


@op_class(SCHEDULED, "any", pure=True, result=State)
class InitialState(OneResult):
    """The pipeline state at stage 0 that waits for `parity`: a consumer of full barriers starts
    with 0, a producer waits for empty barriers with 1 (its first lap passes at once).
    """

    parity: int


@op_class(SCHEDULED, "any", pure=True, result=State)
class Advance(OneResult):
    """The state of the next stage: stage + 1; at `num` stages back to 0, with the other parity."""

    state: Value
    num: int


def counts_stages(first: Op | None, following: Op | None, state: Value, num: int) -> bool:
    """Return whether a state starts at stage 0, and `following` advances it over `num` stages."""
    is_next = isinstance(following, Advance) and (following.state, following.num) == (state, num)
    return is_next and isinstance(first, InitialState)


@op_class(SCHEDULED, "any", was="wait_barrier")
class MbarrierWait(Op):
    """Wait until the phase of the state's parity is complete on the state's stage. Every thread
    that runs it waits and then sees what was written before the arrivals.
    """

    barriers: Value
    state: Value

    def effects(self, made: Makers) -> Effects:
        yield Wait("mbarrier", self.barriers, self.state)


@op_class(SCHEDULED, "any", was="arrive_barrier")
class MbarrierArrive(Op):
    """Arrive on the state's stage: one thread for the executing warpgroup (or the elected thread),
    one of each warp with `each_warp`, all 128 with `each_thread`. With `pred` (a bool scalar) only
    where it holds; with `cta` (i32, a rank in the cluster) on that CTA's barrier rather than on
    one's own.
    """

    barriers: Value
    state: Value
    pred: Value | None = None
    cta: Value | None = None
    each_warp: bool = False
    each_thread: bool = False

    def effects(self, made: Makers) -> Effects:
        threads = "all" if self.each_thread else "warps" if self.each_warp else "one"
        yield Arrive(
            "mbarrier", self.barriers, self.state, threads=threads, pred=self.pred, cta=self.cta
        )

    def faults(self, made: Makers) -> Iterator[str]:
        if self.each_warp and self.each_thread:
            yield "each_warp and each_thread exclude each other"


@op_class(SCHEDULED, "one", was="arrive_expect_tx")
class MbarrierArriveExpectTx(Op):
    """Arrive once, and expect `tx_bytes` more bytes in this phase, or with `narrower` `line_bytes`
    times that fewer; run by one thread. With `cta` (i32, a rank in the cluster) on that CTA's
    barrier.
    """

    barriers: Value
    state: Value
    tx_bytes: int
    narrower: Value | None = None
    line_bytes: int = 0
    cta: Value | None = None

    def effects(self, made: Makers) -> Effects:
        yield Arrive(
            "mbarrier", self.barriers, self.state, tx=self.tx_bytes, threads="one", cta=self.cta
        )

    def at_width(self, columns: int) -> Op:
        left = self.tx_bytes - columns * self.line_bytes
        return with_fields(self, tx_bytes=left, narrower=None, line_bytes=0)

    def faults(self, made: Makers) -> Iterator[str]:
        if self.narrower is None and self.line_bytes != 0:
            yield f"line_bytes={self.line_bytes!r} needs `narrower`, which is missing"
