"""A loop whose threads take sums of products from tensor memory: its body once for tiles that need
no masks, and once for others (`loop_stages.Masks`).

Before:
    for_range(index=%t, ...) {
      %s: f32[q, t] = slot_sum(...)
      %seen = map(fn="where", args=(%test, %s, %neutral))
      ...
    }
After:
    for_range(index=%t, ...) {
      %whole: bool = ... whether the test holds for all elements, and all are there ...
      if(cond=%whole) { ... with %s for %seen ... } { ... as before ... }
    }
"""

from __future__ import annotations

from functools import partial

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.op import Value, with_fields
from wsdsl.ir.slot_ops import SlotSum
from wsdsl.ir.tile_ops import Yield
from wsdsl.lowering.loop_stages import LoopStages
from wsdsl.lowering.pipelined_loop import PipelinedLoop


def takes_sums(loop: ForRange) -> bool:
    """In each iteration, with nothing but this loop around it."""
    inner = any(isinstance(op, ForRange) for op in loop.body)
    return not inner and any(isinstance(op, SlotSum) for op in loop.body)


def as_one_stage(loop: ForRange) -> LoopStages:
    return LoopStages(loop, loop.body[:-1], (), (), (), {})


class MaskedLoop(PipelinedLoop):
    """All of its body is one stage."""

    def emit(self) -> None:
        b, loop = self.builder, self.loop
        with b.region() as body:
            whole = self.is_whole(loop.index)
            if whole is not None:
                made = self.either(whole, partial(self.tile, True), partial(self.tile, False))
                b.add(Yield(values=made, loc=loop.loc))
        b.add(loop if whole is None else with_fields(loop, body=tuple(body)))

    def tile(self, whole: bool) -> tuple[Value, ...]:
        swap = dict[Value, Value]()
        ops = self.stages.first
        # In their order: what stands behind an `axis_at` is of that tile.
        self.copy_seen(map(self.whole, ops) if whole else ops, swap, whole)
        return self.carried(swap, {})
