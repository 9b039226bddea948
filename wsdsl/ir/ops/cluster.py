"""SCHEDULED: fragments that CTAs of a cluster send each other (DSMEM)."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.effects import Access, Arrive, Effects, scaled, whole
from wsdsl.ir.op import SCHEDULED, Makers, OneResult, Op, Value, op_class
from wsdsl.ir.types import Fragment, Type


@op_class(SCHEDULED, "warpgroup")
class SendFragment(Op):
    """Each thread of the warpgroup starts to write what it holds of the fragment `value` (64 x w,
    elements of four bytes) to item `state.stage` of `shared` of CTA `cta` (i32, a rank in the
    cluster), `offset` (and `shift`, an i32) bytes in: blocks of 64 x 8, in each of them the 4
    elements that thread after thread holds. When they are there, its bytes are counted on that
    CTA's `barriers` at the state's stage (st.async).
    """

    value: Value
    shared: Value
    offset: int = 0
    shift: Value | None = None
    state: Value
    barriers: Value
    cta: Value

    def effects(self, made: Makers) -> Effects:
        kind = self.value.as_fragment
        size = kind.rows * kind.columns * kind.dtype.bytes
        spans = whole(self.offset, size, *scaled(self.shift, 1), align=HELD_BYTES)
        yield Access("write", "smem", self.shared, self.state, spans, cta=self.cta)
        yield Arrive("mbarrier", self.barriers, self.state, 0, -size, cta=self.cta)

    def faults(self, made: Makers) -> Iterator[str]:
        return _block_faults(self.value.type, self.offset)


@op_class(SCHEDULED, "warpgroup")
class ReceiveFragment(OneResult):
    """Read a fragment (64 x w) that `send_fragment` wrote to item `state.stage` of `shared`,
    `offset` (and `shift`, an i32) bytes in: each thread what that of its number has sent.
    """

    shared: Value
    offset: int = 0
    shift: Value | None = None
    state: Value

    def effects(self, made: Makers) -> Effects:
        kind = self.result.as_fragment
        size = kind.rows * kind.columns * kind.dtype.bytes
        spans = whole(self.offset, size, *scaled(self.shift, 1), align=HELD_BYTES)
        yield Access("read", "smem", self.shared, self.state, spans)

    def faults(self, made: Makers) -> Iterator[str]:
        return _block_faults(self.result.type, self.offset)


BLOCK_ROWS, BLOCK_COLUMNS = 64, 8
HELD = 4
"""Elements of a block that a thread holds."""
ELEMENT_BYTES = 4
HELD_BYTES = HELD * ELEMENT_BYTES
BLOCK_BYTES = BLOCK_ROWS * BLOCK_COLUMNS * ELEMENT_BYTES


def _block_faults(kind: Type, offset: int) -> Iterator[str]:
    """Yield the faults of a fragment that is sent in blocks: a thread's part of each at once."""
    is_block = isinstance(kind, Fragment) and kind.rows == BLOCK_ROWS and kind.dtype.bits == 32
    if not is_block or getattr(kind, "columns", 1) % BLOCK_COLUMNS:
        yield f"CTAs send blocks of {BLOCK_ROWS} x {BLOCK_COLUMNS} elements of 32 bits only"
    if offset % HELD_BYTES:
        yield f"offset {offset} is not a multiple of {HELD_BYTES}"
