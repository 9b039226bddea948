"""Events of smem descriptors: which operand a step of an MMA reads."""

from collections.abc import Sequence

from wsdsl.ir.analysis.smem_descriptors import layout_of, low_half
from wsdsl.ir.op import Op, Value
from wsdsl.ir.types import Shared
from wsdsl.prover.ptx.expected_paths import HALVES, Fill, of_warps
from wsdsl.prover.ptx.register_values import BASE
from wsdsl.prover.ptx.sync_trace_builder import TraceBuilder


def operand_event(made: TraceBuilder, op: Op, operand: Value, step: int, version: int = 0) -> None:
    """Emit the descriptor that a step has of an operand: `to` has its low half."""
    of = made.definers[operand]
    held, array = layout_of(of), made.definers[of.shared]
    low = low_half(held, BASE + array.offset + of.offset + held.steps[step])
    starts = made.of_warpgroups(of.start)
    apart = (None if x is None else x * held.per_start >> 4 for x in starts for _ in range(4))
    descriptor_event(made, op, (of.shared, of.state), low, held.high | version, [*apart])


def descriptor_event(
    made: TraceBuilder,
    op: Op,
    of: tuple[Value, Value],
    low: int,
    high: int,
    by_warp: Sequence[int | None],
) -> None:
    shared, state = of
    kind = shared.type_as(Shared)
    start, stride = HALVES + low, kind.bytes >> 4
    ring = f"operands in {shared.name}[]"
    for further in {x for x in by_warp if x is not None}:
        places = range(start + further, start + further + kind.num * stride, stride)
        made.places.operands |= dict.fromkeys(places, ring)
    asked = state if kind.num > 1 else None
    fill = Fill(state=asked, start=start, stride=stride, further=of_warps(by_warp))
    made.emit(op, "operand", str(high), ring, fill=fill)
