"""The synchronizing events of a SCHEDULED kernel, as codegen is to emit them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from wsdsl.ir.op import Kernel, Op, Region, by_op
from wsdsl.ir.ops import Partition, by_warpgroup
from wsdsl.prover import ops as op_files
from wsdsl.prover.ptx.accessed_bytes import kinds_of
from wsdsl.prover.ptx.expected_paths import Places, Skeleton
from wsdsl.prover.ptx.loop_events import both_ways, of_several
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder

TRACES: dict[type[Op], Callable[[TraceBuilder, Any, ThreadSet], None]] = by_op(
    op_files, prefix="trace_"
)
"""How each op with events appends them; `Op.ptx` is the event of most others."""


def skeleton_of_kernel(kernel: Kernel, together: bool = False) -> tuple[Skeleton, Places]:
    """With `together`, loops of the same bounds that follow one another all run or none."""
    made = _Builder(together, kernel.definers)
    num = sum(op.num_warpgroups for op in kernel.body if isinstance(op, Partition)) or 1
    made.places.num_threads = 128 * num
    made.region(kernel.body, ThreadSet(num=num))
    made.graph.end = made.now
    return made.graph, made.places


class _Builder(TraceBuilder):
    # Shapes of control ---------------------------------------------------------------------------

    def region(self, region: Region, who: ThreadSet) -> None:
        at = 0
        while at < len(region):
            op, last = region[at], at + 1
            if self.together and (bounds := of_several(self, op, region[last:])):
                both_ways(self, bounds, region[at:], who)
                return
            if isinstance(op, Partition):
                while last < len(region) and isinstance(region[last], Partition):
                    last += 1
                self.partitions(region[at:last])
            else:
                self.op(op, who)
            at = last

    def partitions(self, members: Sequence[Op]) -> None:
        """Each warpgroup runs one, and those of its further warps; the last one what is left."""
        bodies: list[tuple[list[tuple[Region, ThreadSet]], int]] = []
        first = 0
        for together in by_warpgroup([op for op in members if isinstance(op, Partition)]):
            who = ThreadSet(first, together[0].num_warpgroups, inside=True)
            sharing = [(op.body, replace(who, warp=warp)) for warp, op in enumerate(together)]
            bodies.append((sharing, who.one_in(1)))
            first += together[0].num_warpgroups
        self.either(bodies)

    def either(self, bodies: Sequence[tuple[Sequence[tuple[Region, ThreadSet]], int]]) -> None:
        before, ends = self.now, list[int]()
        for sharing, threads in bodies:
            self.now = self.silent(before, threads=threads)
            for body in sharing:
                self.region(*body)
            ends.append(self.now)
        self.now = self.silent(*ends)

    def op(self, op: Op, who: ThreadSet) -> None:
        for kind in kinds_of(op, self.definers):
            self.emit(op, kind)
        if op.ptx:
            kind, _, detail = op.ptx.partition(" ")
            self.emit(op, kind, detail)
        elif (trace := TRACES.get(type(op))) is not None:
            trace(self, op, who)
